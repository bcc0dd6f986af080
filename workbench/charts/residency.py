"""How many thread blocks are resident as each takes more shared memory? A step line for each machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from kernels.machine import Machine
from kernels.occupancy import BlockResources, SmLimits, blocks_alongside, limits_of, resident_blocks
from workbench.charts.labels import title
from workbench.charts.theme import INK, LOSS_COLOURS, SPAN_COLOURS
from workbench.results.rows import Row

QUESTION = "How many blocks are resident when each asks for more shared memory?"
KIB = 1024
ROW_PIXELS, WIDTH_PIXELS = 62, 520
COUNTS = alt.Axis(tickMinStep=1, tickCount=4)
FITS, FULL = "a communication block fits as well", "it does not fit"
LINE_COLOURS = {FITS: SPAN_COLOURS["copy"], FULL: LOSS_COLOURS["unexplained"]}
COLUMNS = ("machine", "from_kib", "to_kib", "blocks", "number", "beside", "aloud")
POINTS = ("machine", "padding_kib", "blocks", "aloud")
NO_POINTS = "Lines are computed from documented limits; nothing was measured yet."
WITH_POINTS = "Lines are computed from documented limits; full points were measured."


def chart(
    machines: Sequence[Machine],
    block: BlockResources,
    other: BlockResources | None = None,
    measured: Sequence[Row] = (),
    context: str = "",
) -> alt.FacetChart:
    """Blocks like *block* that are resident on one SM of each of *machines*, over padding of its shared memory (KiB).

    The colour says whether a block like *other* fits as well. *measured*: rows of the probe `occupancy` (machine,
    padding_bytes, resident_blocks, shared_bytes, registers, threads, by); those of the same block are drawn.
    """
    points = point_rows(machines, block, measured)
    data = pd.DataFrame([*step_rows(machines, block, other), *points], columns=list(dict.fromkeys([*COLUMNS, *POINTS])))
    below = [context, _block_text(block, other), WITH_POINTS if points else NO_POINTS]
    layers = alt.layer(*_lines(is_coloured=other is not None), _points()).properties(
        width=WIDTH_PIXELS, height=ROW_PIXELS
    )
    return layers.facet(
        data=data,
        row=alt.Row("machine:N", sort=[each.device.name for each in machines], title=None,
                    header=alt.Header(labelAngle=0, labelAnchor="start", labelOrient="top", labelPadding=4)),
        spacing=8,
    ).properties(
        title=title(QUESTION, [text for text in below if text]),
        description="By machine, a step line of resident blocks of an SM over padding of a block's shared memory.",
    )  # fmt: skip


def step_rows(
    machines: Sequence[Machine], block: BlockResources, other: BlockResources | None = None
) -> list[dict[str, Any]]:
    """One record for each level of each machine: the range of padding, and how many blocks are resident."""
    return [
        record
        for machine in machines
        for record in _machine_steps(machine.device.name, limits_of(machine), block, other)
    ]


def point_rows(machines: Sequence[Machine], block: BlockResources, measured: Sequence[Row]) -> list[dict[str, Any]]:
    """One record for each measured row of a block like *block* on one of *machines*."""
    names = {machine.name: machine.device.name for machine in machines}
    same = [row for row in measured if row["machine"] in names and _is_like(row, block)]
    return [
        {"machine": names[row["machine"]], "padding_kib": row["padding_bytes"] / KIB, "blocks": row["resident_blocks"],
         "aloud": f"{names[row['machine']]}, measured by {row['by']}: {row['resident_blocks']} blocks at "
                  f"{row['padding_bytes'] / KIB:.1f} KiB of padding"}
        for row in same
    ]  # fmt: skip


def _is_like(row: Row, block: BlockResources) -> bool:
    """Compiled blocks take a little less shared memory than the formula says (kernels/occupancy.py: gemm_block)."""
    return row["threads"] == block.threads and 0 <= block.shared_bytes - row["shared_bytes"] <= KIB


def _machine_steps(
    name: str, limits: SmLimits, block: BlockResources, other: BlockResources | None
) -> Iterator[dict[str, Any]]:
    above = 0
    for (count, fits), start, stop in _levels(limits, block, other):
        level = f"{name}: {count} blocks from {start / KIB:.1f} to {stop / KIB:.1f} KiB of padding"
        fit = FITS if fits else FULL
        yield {"machine": name, "from_kib": start / KIB, "to_kib": stop / KIB, "blocks": count,
               "number": "" if count == above else str(count), "beside": fit,
               "aloud": f"{level}, {fit}" if other else level}  # fmt: skip
        above = count


def _levels(
    limits: SmLimits, block: BlockResources, other: BlockResources | None
) -> Iterator[tuple[tuple[int, bool], int, int]]:
    """Resident blocks and whether *other* fits as well, with the first and last bytes of padding for which this holds.

    Shared memory is allocated in units, so a machine has only a few hundred different paddings.
    """

    def level(padding: int) -> tuple[int, bool]:
        padded = replace(block, shared_bytes=block.shared_bytes + padding)
        count = resident_blocks(limits, padded.shared_bytes, padded.registers, padded.threads)
        return count, other is not None and blocks_alongside(limits, padded, count, other) > 0

    most = limits.most_shared_bytes - block.shared_bytes
    if most < 0:
        return
    start, before = 0, level(0)
    for padding in range(0, most, limits.shared_unit_bytes):
        if (now := level(padding)) != before:
            yield before, start, padding
            start, before = padding, now
    yield before, start, most


def _lines(*, is_coloured: bool) -> list[alt.Chart]:
    """The levels, each a line with its number of blocks."""
    base = alt.Chart().transform_filter("isValid(datum.to_kib)").encode(
        x=alt.X("from_kib:Q", title="Padding of each block (KiB)", scale=alt.Scale(nice=False)),
        x2="to_kib:Q",
        y=alt.Y("blocks:Q", title="Blocks", scale=alt.Scale(zero=True, padding=6), axis=COUNTS),
        tooltip=[alt.Tooltip("aloud:N", title="This step")], description=alt.Description("aloud:N"),
    )  # fmt: skip
    scale = alt.Scale(type="ordinal", domain=list(LINE_COLOURS), range=list(LINE_COLOURS.values()))
    legend = alt.Legend(title=None, orient="bottom", labelLimit=320)
    colour = alt.Color("beside:N", scale=scale, legend=legend) if is_coloured else alt.value(INK)
    number = base.mark_text(align="left", baseline="bottom", dx=3, dy=-3, aria=False).encode(text="number:N")
    return [base.mark_rule(strokeWidth=4).encode(color=colour), number]


def _points() -> alt.Chart:
    return (
        alt.Chart()
        .transform_filter("isValid(datum.padding_kib)")
        .mark_point(size=70, filled=True, opacity=1, stroke="white", strokeWidth=1, color=INK)
        .encode(x=alt.X("padding_kib:Q"), y=alt.Y("blocks:Q"), tooltip=[alt.Tooltip("aloud:N", title="Measured")],
                description=alt.Description("aloud:N"))
    )  # fmt: skip


def _block_text(block: BlockResources, other: BlockResources | None) -> str:
    def text(each: BlockResources) -> str:
        return f"{each.shared_bytes / KIB:.1f} KiB, {each.threads} threads of {each.registers} registers"

    other_text = f" The other block has {other.threads} threads of {other.registers} registers." if other else ""
    return f"A block takes {text(block)}.{other_text}"
