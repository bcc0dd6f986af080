"""The vertical axis of a chart of times: the times themselves, or their signed differences to a pinned baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from kernels.units import seconds_text
from workbench.charts.labels import EXTENT_PIXELS, schedule_label, time_expr, time_y
from workbench.charts.parallel import SPREAD_OF_LOG
from workbench.charts.theme import FACTS, INK, best_label_position, haloed
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

TIMES, SHARES = "ms", "share"
"""Endings of the columns of both quantities: `time_ms` and `time_share`."""
DIFFERENCE = "Difference to the baseline"
NO_DIFFERENCE = 5e-4
"""A smaller share is written as none."""
AUTOMATIC, LOGARITHMIC, LINEAR = "automatic", "log", "linear"
SCALES = (AUTOMATIC, LOGARITHMIC, LINEAR)
"""What a person may choose for the axis of time."""


def scale_of(chosen: str, times_s: Iterable[float], baseline: Pinned | None = None) -> str:
    """LOGARITHMIC or LINEAR: as *chosen*, or by how far apart the times are. Differences, which may be negative, are
    linear."""
    if baseline is not None:
        return LINEAR
    if chosen != AUTOMATIC:
        return chosen
    known = [time_s for time_s in times_s if time_s > 0]
    return LOGARITHMIC if known and max(known) / min(known) >= SPREAD_OF_LOG else LINEAR


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """One switch for all layers of a chart: which columns they draw, on which scale, and as which text."""

    scale: alt.Scale
    baseline: str = ""
    """The baseline as `name_of` says it; empty where times are drawn."""
    runs: tuple[str, ...] = ()
    """The runs that differ in shape; empty where there is one."""

    @classmethod
    def of(cls, linear: alt.Scale, baseline: str, scale: str = LINEAR, runs: Sequence[str] = ()) -> TimeAxis:
        """The axis with the *linear* scale, or a logarithmic one of times."""
        is_log = scale == LOGARITHMIC and not baseline
        return cls(alt.Scale(type="log", nice=False, padding=18) if is_log else linear, baseline, tuple(runs))

    def column(self, name: str) -> str:
        """The column of the number *name*: `time_ms` of `time`."""
        return f"{name}_{SHARES if self.baseline else TIMES}"

    def y(self, name: str) -> alt.Y:
        """The position of the number *name*."""
        if not self.baseline:
            return time_y(self.column(name), self.scale)
        # a low chart has no room for all of the title
        axis = alt.Axis(labelExpr=share_expr("datum.value"), minExtent=EXTENT_PIXELS, titleLimit=alt.expr("height"))
        return alt.Y(f"{self.column(name)}:Q", title=DIFFERENCE, scale=self.scale, axis=axis)

    def known(self, *names: str) -> str:
        """The Vega expression that is true of rows that have these numbers."""
        return " && ".join(f"isValid(datum.{self.column(name)})" for name in names)

    def text(self, name: str) -> str:
        """The Vega expression that writes the number *name* of a row."""
        field = f"datum.{self.column(name)}"
        return share_expr(field) if self.baseline else time_expr(field)

    def label_position(self) -> dict[str, Any]:
        """Position of the label of the best time: below its mark, or above it where the floor is near."""
        return best_label_position(*(f"datum.{self.column(name)}" for name in ("floor", "time")))

    @property
    def subtitle(self) -> list[str]:
        """The lines below a title that say what the numbers are differences to; none where times are drawn."""
        return [f"Below zero is less time than the baseline: {self.baseline}"] if self.baseline else []

    @property
    def facts(self) -> Mapping[str, str]:
        """Columns of a tooltip, and their titles."""
        difference = {"difference": "To the baseline"} if self.baseline else {}
        return {**FACTS, **difference, **({"run": "Run"} if self.runs else {})}

    def zero(self, align: Literal["left", "right"] = "left") -> list[alt.Chart]:
        """A line at the baseline and its label; no layer where times are drawn."""
        if not self.baseline:
            return []
        at_zero = alt.Chart().transform_aggregate(count="count()").transform_calculate(**{self.column("time"): "0"})
        side = alt.value(4) if align == "left" else alt.value("width")
        line = at_zero.mark_rule(stroke=INK, strokeWidth=1.5, aria=False).properties(name="baseline")
        label = at_zero.mark_text(align=align, baseline="bottom", dy=-3, aria=False).properties(name="baseline_name")
        named = label.encode(y=self.y("time"), x=side, text=alt.value("baseline"))
        return [line.encode(y=self.y("time")), *haloed(named)]


def share_expr(share: str) -> str:
    """The Vega expression that writes *share*, itself an expression, in per cent with its sign: `-31 %`."""
    return f"(abs({share}) < {NO_DIFFERENCE} ? '0 %' : format(100 * {share}, '+.1~f') + ' %')"


RATIO = "log_ratio"
"""The column of the logarithm of base 2 of the ratio to the baseline: one step of colour is one factor."""


REACH_MOST = 1
"""From this RATIO on, twice or half the baseline's time, colours differ no more: those near it are what one chooses
from."""


def ratio_legend(**options: Any) -> alt.Legend:
    """The legend of a colour scale of RATIO up to REACH_MOST, labelled with signed per cent."""
    share = share_expr("(pow(2, datum.value) - 1)")
    ends = f"(abs(datum.value) >= {REACH_MOST} ? (datum.value > 0 ? '\N{GREATER-THAN OR EQUAL TO} ' : "
    label = f"{ends}'\N{LESS-THAN OR EQUAL TO} ') : '') + {share}"
    return alt.Legend(labelExpr=label, labelOverlap="greedy", **options)


def name_of(baseline: Pinned | None) -> str:
    """Schedule and time of the pinned row, as the charts say it; empty for None."""
    if baseline is None:
        return ""
    return f"{schedule_label(baseline.row)}, {seconds_text(baseline.row['time_s'])}"


def against(record: dict[str, Any], row: Row, baseline: Pinned | None) -> dict[str, Any]:
    """*record* of *row* with the share of the *baseline* by which each of its times differs; without one as it is.

    All times of a row are scaled alike: those of another block are as far from the baseline as the row's own time.
    """
    if baseline is None:
        return record
    delta, base_s = baseline.delta(row), float(baseline.row["time_s"])
    scale = None if delta.share is None else (1 + delta.share) / float(row["time_s"])
    if row.get("time_s") is None and baseline.delta({**row, "time_s": base_s}).share is not None:
        scale = 1 / base_s  # a failure has no time, but the floor of its problem
    shares = {f"{name.removesuffix(f'_{TIMES}')}_{SHARES}": None if scale is None or value is None else
              float(f"{value * 1e-3 * scale - 1:.6g}")
              for name, value in record.items() if name.endswith(f"_{TIMES}")}  # fmt: skip
    return {**record, **shares, "difference": delta.text, "aloud": f"{record['aloud']}; to the baseline: {delta.text}"}
