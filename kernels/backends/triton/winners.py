"""Which of its settings NCCL was fastest with in a recorded sweep on H200s, at each size of each collective.

`python -m tests.gpu.nccl_sweep` is the sweep, data/probes/h200_nvl2_nccl.jsonl what it said. `WINNERS` are the fastest
of the settings that one process can have side by side: as NCCL comes, more channels, symmetric windows. A test
computes the table from the file. Algorithms and protocols are variables of a whole process. The only one that won,
trees for all-reduces of 128 MiB, gains less than 1 % over 32 channels.

Ranks have NCCL_GRAPH_REGISTER=0. This sweep, of two GPUs, mixed both: NCCL registered the buffers of graphs under all
settings but the windows. The next sweep has it off under all of them.
"""

from __future__ import annotations

from math import log

DEFAULT, WINDOWS = "default", "windows"
FARTHEST = 2
"""A size tells of those up to so many times larger or smaller."""
CHANNELS = {"32 channels": 32}
"""Settings that are a communicator of its own with so many channels."""
WINNERS: dict[str, dict[int, str]] = {
    "all_gather": {8388608: WINDOWS, 33554432: WINDOWS, 134217728: "32 channels"},
    "all_reduce": {
        8192: WINDOWS, 16384: WINDOWS, 32768: DEFAULT, 65536: DEFAULT, 131072: DEFAULT, 262144: "32 channels",
        8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels",
    },
    "all_to_all": {
        4194304: WINDOWS, 16777216: WINDOWS, 33554432: WINDOWS, 67108864: WINDOWS, 117440512: WINDOWS,
        134217728: WINDOWS,
    },
    "reduce_scatter": {8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels"},
}  # fmt: skip
"""By collective and bytes of one rank's whole buffer, as nccl-tests count them: the setting that took least in
graphs."""


def winner(collective: str, num_bytes: int) -> str:
    """The setting for *collective* of *num_bytes*: that of the nearest size of the sweep, by their ratio.

    Where that is further than FARTHEST away: what the sizes on both sides agree on, or else NCCL as it comes.
    """
    sizes = WINNERS[collective]
    nearest = min(sizes, key=lambda size: abs(log(size / num_bytes)))
    if num_bytes <= FARTHEST * nearest and nearest <= FARTHEST * num_bytes:
        return sizes[nearest]
    below, above = [size for size in sizes if size < num_bytes], [size for size in sizes if size > num_bytes]
    around = {sizes[max(below)], sizes[min(above)]} if below and above else set()
    return around.pop() if len(around) == 1 else DEFAULT
