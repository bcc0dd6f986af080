"""Which of its settings NCCL was fastest with in a recorded sweep on H200s, at each size of each collective.

`python -m tests.gpu.nccl_sweep` is the sweep, data/probes/h200_nvl2_nccl.jsonl what it said. `WINNERS` are the fastest
of the settings that one process can have side by side: as NCCL comes, more channels, symmetric windows. A test
computes the table from the file. Algorithms and protocols are variables of a whole process. Two of them won: trees
for all-reduces of 128 MiB, by less than 1 % over 32 channels, and the protocol LL for all-reduces of 64 and 128 KiB, by
2 and 5 %; torch's one-shot all-reduce, another baseline, is faster there.

All settings were swept with NCCL_GRAPH_REGISTER=0, as ranks have it.
"""

from __future__ import annotations

from math import log

DEFAULT, WINDOWS = "default", "windows"
FARTHEST = 2
"""A size tells of those up to so many times larger or smaller."""
CHANNELS = {"32 channels": 32}
"""Settings that are a communicator of its own with so many channels."""
WINNERS: dict[str, dict[int, str]] = {
    "all_gather": {2097152: WINDOWS, 8388608: WINDOWS, 33554432: WINDOWS, 134217728: "32 channels"},
    "all_reduce": {
        8192: WINDOWS, 16384: WINDOWS, 32768: WINDOWS, 65536: WINDOWS, 131072: "32 channels", 262144: WINDOWS,
        2097152: WINDOWS, 8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels",
    },
    "all_to_all": {
        1048576: WINDOWS, 4194304: WINDOWS, 16777216: WINDOWS, 33554432: WINDOWS, 67108864: WINDOWS,
        117440512: WINDOWS, 134217728: WINDOWS,
    },
    "reduce_scatter": {2097152: WINDOWS, 8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels"},
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
