"""What the check before a release asks, by backend: every operator once, spaces that last, and what must be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernels.operators import OPERATORS

GEMM = "gemm_all_to_all"
OTHER_GEMMS = ("all_gather_gemm", "all_to_all_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
TINY = {
    "embedding_all_to_all": "tables_per_rank=2 rows=100 dim=16 batch=16 pooling=4 indices=uniform",
    "gemv_all_reduce": "n=64 k=64 tokens=2",
    **dict.fromkeys((GEMM, *OTHER_GEMMS), "m=64 n=64 k=64"),
}
SMALL = {
    "embedding_all_to_all": "tables_per_rank=8 rows=20000 dim=128 batch=2048 pooling=16 indices=uniform",
    "gemv_all_reduce": "n=4096 k=4096 tokens=1",
    GEMM: "m=2048 n=4096 k=1792",
    "all_gather_gemm": "m=512 n=7168 k=8192",
    "all_to_all_gemm": "m=512 n=14336 k=4096",
    "gemm_reduce_scatter": "m=512 n=8192 k=7168",
    "gemm_all_reduce": "m=512 n=8192 k=7168",
}
"""Of the tables of docs/results/ the smallest of each operator, but for fewer lookups."""


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """A space of schedules of one GEMM + all-to-all, as a file for `workbench sweep`."""

    protocol: str
    shape: str
    schemes: str
    """TOML: one table per scheme."""
    count: int
    """How many schedules it has."""

    def toml(self, world: int, backend: str, fabric: str | None = None) -> str:
        sizes, link = "\n".join(self.shape.split()), f'fabric = "{fabric}"\n' if fabric else ""
        return (
            f'operator = "{GEMM}"\nbackend = "{backend}"\nprotocol = "{self.protocol}"\nworld = {world}\n{link}'
            f"[shape]\n{sizes}\n{self.schemes}\n"
        )


@dataclass(frozen=True, slots=True)
class Questions:
    """Of one backend."""

    shapes: dict[str, str]
    """By operator."""
    schemes: Callable[[str], tuple[str, ...]]
    """What `run` compares of an operator where no scheme is stated."""
    sweep: SpaceFile
    """Every collective of the baseline, and some fused schedules: one block."""
    long: SpaceFile
    """Of several blocks, so that something can happen in the midst of it."""
    alone: SpaceFile
    """The same for a gang of one rank."""


PIECES, WHOLE = ("sequential", "decomposed", "fused"), ("sequential", "fused")
_SWEPT_CPU = '[scheme.sequential]\n[scheme.fused]\ntile_order = "all"'
_SWEPT_GPU = (
    '[scheme.sequential]\ncollective = "all"\n'
    '[scheme.fused]\ntile_order = ["remote_first", "rotated", "natural", "interleaved"]'
)
_FUSED_CPU = '[scheme.fused]\ntile_order = "all"\nslice_tiles = [1, 2]\ntile = ["256x256x256", "128x256x256"]'
_FUSED_GPU = '[scheme.fused]\ntile_order = ["remote_first", "rotated"]\ngroup_rows = [2, 4, 8, 16]\ngrid = [0, 132]'
"""None of these axes makes Triton compile another kernel."""

QUESTIONS = {
    "cpu": Questions(
        shapes=TINY,
        schemes=lambda operator: PIECES,
        sweep=SpaceFile("quick", "m=64 n=64 k=64", _SWEPT_CPU, 5),
        long=SpaceFile("thorough", "m=512 n=256 k=256", _FUSED_CPU, 16),
        alone=SpaceFile("thorough", "m=512 n=256 k=256", _FUSED_CPU, 16),
    ),
    "triton": Questions(
        shapes=SMALL,
        schemes=lambda operator: PIECES if OPERATORS[operator].work == "gemm" else WHOLE,
        sweep=SpaceFile("quick", SMALL[GEMM], _SWEPT_GPU, 8),
        long=SpaceFile("default", SMALL[GEMM], _FUSED_GPU, 16),
        alone=SpaceFile("thorough", SMALL[GEMM], _FUSED_GPU, 16),  # two gangs must be timed at the same moment
    ),
}
SHARED = "triton, one GPU"
"""GPU ranks that share a GPU: they have no copy engine, and nobody asks for a gang of one rank."""
QUESTIONS[SHARED] = replace(QUESTIONS["triton"], sweep=SpaceFile("quick", SMALL[GEMM], _SWEPT_GPU, 6))


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that cannot be, and what its one sentence says."""

    words: str
    sentence: str
    status: int = 2


REFUSED = {
    "unknown operator": Refused("run gemm --json", "There is no operator 'gemm'. Accepted: "),
    "unknown axis": Refused(f"run {GEMM} SIZES --set peices=2 --json", "peices"),
    "missing size": Refused(f"run {GEMM} --shape m=256 --json", f"{GEMM} needs n"),
    "sizes that do not divide": Refused(f"run {GEMM} SIZES --world 7 --json", "Accepted: multiples of 7"),
    "unknown dtype": Refused(f"run {GEMM} SIZES --dtype int3 --json", "There is no dtype 'int3'"),
    "one micro-batch": Refused(
        f"run {GEMM} SIZES --scheme concurrent --set micro_batches=1 --json", "Accepted: 2 to 32"
    ),
    "link that these ranks have not": Refused(f"run {GEMM} SIZES --fabric network:x --json", "fabric"),
    "more ranks than there are": Refused(f"run {GEMM} SIZES --world 64 --json", "Accepted: "),
    "missing space": Refused("sweep nowhere.toml --json", "There is no space file nowhere.toml"),
    "second cluster": Refused("cluster up", "A second cluster does not start."),
    "unknown ending of a report": Refused("report last -o run.doc", "Accepted: one of these endings, or --to."),
    "nobody at the address": Refused(f"run {GEMM} SIZES --cluster tcp://127.0.0.1:1 --json", "cannot be reached", 1),
}
"""SIZES stands for the shape and the backend of the ranks at hand."""
