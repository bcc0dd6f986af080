"""Titles of everything that people see: operators, axes, and the signs of the sources of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.operators import OPERATORS
from kernels.schemes.concurrent import MICRO_BATCHES

AXES = {
    "collective": "Collective",
    "comm_priority": "Comm. priority",
    "comm_sms": "Comm. SMs",
    "engine": "Engine",
    "grid": "Grid",
    "group_rows": "Rows of tiles together",
    "grouping": "Grouping",
    "kernel": "Kernel",
    "launches": "Launches",
    "load_hint": "Load hint",
    "micro_batches": "Micro-batches",
    "num_stages": "Stages",
    "num_warps": "Warps",
    "pattern": "Pattern",
    "pieces": "Pieces",
    "ranks_per_host": "Ranks per host",
    "resident_blocks": "Resident blocks",
    "shots": "Shots",
    "slice_tiles": "Tiles per slice",
    "split": "Split",
    "split_k": "Split of the contraction",
    "steps": "Steps",
    "store": "Store",
    "store_hint": "Store hint",
    "tile": "Tile",
    "tile_columns": "Tile columns",
    "tile_depth": "Tile depth",
    "tile_order": "Tile order",
    "tile_rows": "Tile rows",
    "transport": "Transport",
    "write": "Write",
}

TILE_SIDES = {"tile_rows": "m", "tile_columns": "n", "tile_depth": "k"}
"""The sides of a tile as axes of their own, each with its field of kernels.schedule.Tile."""

TOGETHER = " + "
"""Between the names of axes of which only what they do together is known."""

COLUMNS = {
    "backend": "Backend",
    "cores": "Cores",
    "cpu": "CPU",
    "dtype": "Number format",
    "fabric": "Fabric",
    "git_commit": "Commit",
    "gpu": "GPU",
    "gpus": "GPU of each rank",
    "host": "Host",
    "machine": "Machine",
    "machine_digest": "Machine file",
    "operator": "Operator",
    "part": "Part",
    "protocol": "Protocol",
    "regime": "Regime",
    "run": "Run",
    "scheme": "Scheme",
    "source": "Source",
    "source_print": "Source fingerprint",
    "world": "Ranks",
}
"""Titles of the columns of rows, and of the facts of runs, that say what was timed and where."""

ENGINES = {"compute": "computes", "copy_engine": "copy engine", "link": "link",
           "link_between_hosts": "link between hosts", "library": "library"}  # fmt: skip
"""Titles of the pools of a rank, which are rows of the timeline in this order."""

SIGNS = {"measured": "\N{BLACK CIRCLE}", "recorded": "\N{BLACK SQUARE}", "estimated": "\N{WHITE CIRCLE}",
         "published": "\N{WHITE DIAMOND}"}  # fmt: skip
"""The mark of each source in tables and charts; filled if it was timed."""

TIMED = ("measured", "recorded")
"""Sources whose times come from a clock on a machine of this workbench."""

PUBLISHED = "published"
"""The source of a paper's numbers, which charts draw as separate marks, on none of our lines."""

PER_PROBLEM_NOTE = "calls of several micro-batches have the time of one"
"""The remark on times of calls of several micro-batches."""


def is_per_problem(row: Mapping[str, Any]) -> bool:
    """Whether the time of *row* is that of a call of several problems, divided by their number."""
    return MICRO_BATCHES in (row.get("axes") or {})


def operator_title(name: str | None) -> str:
    """`GEMM -> all-to-all` for `gemm_all_to_all`; an unknown name is returned unchanged."""
    known = OPERATORS.get(name or "")
    return known.title if known else str(name or "")


def axis_title(name: str) -> str:
    """`Tiles per slice` for `slice_tiles`; an axis, shape key or column without a title is returned unchanged."""
    return AXES.get(name, name)


def column_title(name: str) -> str:
    """`Number format` for `dtype`; `Cpu model` for a name without a title."""
    return COLUMNS.get(name) or name.replace("_", " ").capitalize()


def axis_text(name: str) -> str:
    """An axis inside a sentence: `tiles per slice`."""
    title = axis_title(name)
    return title[:1].lower() + title[1:]


def engine_title(pool: str, stream: int, *, one_stream: bool = True) -> str:
    """`computes`, `link`; `stream 1` where a rank computes on several streams; other pools unchanged."""
    if pool == "compute" and not one_stream:
        return f"stream {stream}"
    return ENGINES.get(pool, pool)


def schedule_title(scheme: str, axes: Mapping[str, object]) -> str:
    """`fused, tiles per slice 8, write zero copy`."""
    return ", ".join(filter(None, (scheme, axes_title(axes))))


BASIC = {
    "sequential": (),
    "decomposed": ("pieces",),
    "fused": ("slice_tiles",),
    "concurrent": ("micro_batches", "comm_priority"),
}
"""By scheme, the axes that its short name has, and that are not under Advanced."""


def short_title(scheme: str, axes: Mapping[str, object]) -> str:
    """The scheme with its basic axes, as far as *axes* has them: `fused, tiles per slice 8`."""
    return schedule_title(scheme, {axis: axes[axis] for axis in BASIC.get(scheme, ()) if axis in axes})


def axes_title(axes: Mapping[str, object]) -> str:
    """`tiles per slice 8, write zero copy`."""
    return ", ".join(f"{axis_text(name)} {value_title(value)}" for name, value in axes.items())


def baseline_title(axes: Mapping[str, object] | None) -> str:
    """The axes that distinguish baselines: `collective direct`, and `kernel ours` where that is not the library's."""
    distinguishing = {name: value for name, value in (axes or {}).items() if name in ("collective", "kernel")}
    return axes_title({name: value for name, value in distinguishing.items() if (name, value) != ("kernel", "library")})


def shape_title(key: str) -> str:
    """`Tables per rank` for `tables_per_rank`; the letters of a GEMM stay letters."""
    return key if len(key) == 1 else key.replace("_", " ").capitalize()


def value_title(value: object) -> str:
    """`zero copy` for `zero_copy`: the value of an axis, or a name in a shape."""
    return str(value).replace("_", " ")


def source_title(source: str | None) -> str:
    """The source after its sign; a source without a sign is returned unchanged."""
    return f"{SIGNS[source]}\N{NO-BREAK SPACE}{source}" if source in SIGNS else str(source or "")
