"""How steady is a trial, and which rank is slowest? Samples are dots by rank; the page computes the medians."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import altair as alt
import pandas as pd

from kernels.outcome import Sample
from kernels.units import seconds_text
from workbench.charts.labels import milliseconds, time_expr, time_x, title
from workbench.charts.layers import first
from workbench.charts.theme import scheme_colour

BAND_PIXELS = 44
DATASET = "samples"
QUESTION = "How steady is it, and which rank is slowest?"
HINT = "One dot per iteration, downwards in time. The slowest rank's median is the time of the trial."


def chart(
    samples: Iterable[Sample | Mapping[str, Any]], scheme: str | None = None, context: str = ""
) -> alt.LayerChart:
    """The samples of one trial."""
    return _drawn(pd.DataFrame(rows(samples, scheme), columns=list(_COLUMNS)), context)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended; it is replaced when a trial begins."""
    return _drawn(alt.NamedData(DATASET), context)


def rows(samples: Iterable[Sample | Mapping[str, Any]], scheme: str | None = None) -> list[dict[str, Any]]:
    """One record per sample of one trial, coloured by *scheme*."""
    return [_record(*_fields(sample), scheme) for sample in samples]


def _fields(sample: Sample | Mapping[str, Any]) -> tuple[int, int, float]:
    if isinstance(sample, Sample):
        return sample.rank, sample.index, sample.seconds
    return sample["rank"], sample["index"], sample["seconds"]


def _record(rank: int, index: int, seconds: float, scheme: str | None) -> dict[str, Any]:
    time = seconds_text(seconds)
    return {"rank": rank, "index": index, "time_ms": milliseconds(seconds), "scheme": scheme, "time": time,
            "aloud": f"rank {rank}, iteration {index}: {time}"}  # fmt: skip


_COLUMNS = ("rank", "index", "time_ms", "scheme", "time", "aloud")


def _drawn(data: Any, context: str) -> alt.LayerChart:
    return alt.LayerChart(
        layer=[_dots(), _medians(), _headline(), _slowest_label()],
        data=data,
        title=title(QUESTION, [context, HINT]),
        height=alt.Step(BAND_PIXELS),
        description="Samples by rank, with each rank's median. Use the arrow keys to go from one to another.",
    )


def _ranks(position: float = 0.5) -> alt.Y:
    axis = alt.Axis(title=None, labelExpr="'rank ' + datum.label", ticks=False, domain=False, grid=False)
    return alt.Y("rank:O", axis=axis, scale=alt.Scale(type="band", padding=0), bandPosition=position)


def _time(field: str = "time_ms") -> alt.X:
    scale = alt.Scale(zero=False, padding=12)
    return time_x(field, "Time of one iteration", scale)


def _dots() -> alt.Chart:
    shown = {"rank": "Rank", "index": "Iteration", "time": "Time"}
    return (
        alt.Chart(name="samples")
        .mark_point(size=24, filled=True, opacity=0.75)
        .encode(
            x=_time(),
            y=_ranks(),
            yOffset=alt.YOffset("index:Q", scale=alt.Scale(range=[7, BAND_PIXELS - 7])),
            color=scheme_colour(legend=None),
            tooltip=[alt.Tooltip(f"{field}:N", title=name) for field, name in shown.items()],
            description="aloud:N",
        )
    )


def _by_rank(name: str) -> alt.Chart:
    return alt.Chart(name=name).transform_aggregate(median_ms="median(time_ms)", groupby=["rank"])


def _medians() -> alt.Chart:
    tooltip = [alt.Tooltip("rank:O", title="Rank"), alt.Tooltip("words:N", title="Median")]
    return (
        _by_rank("medians")
        .transform_calculate(words=time_expr("datum.median_ms"))
        .mark_rule(strokeWidth=2)
        .encode(x=_time("median_ms"), y=_ranks(0.08), y2=alt.Y2("rank", bandPosition=0.92), tooltip=tooltip)
    )


def _slowest(name: str) -> alt.Chart:
    words = f"'slowest: rank ' + datum.rank + ', median ' + {time_expr('datum.median_ms')}"
    return first(_by_rank(name), ["-median_ms"]).transform_calculate(words=words).encode(x=_time("median_ms"))


def _headline() -> alt.Chart:
    return _slowest("headline").mark_rule(strokeDash=[4, 3]).encode(description="words:N")


def _slowest_label() -> alt.Chart:
    # towards the middle of the plot, so that the label is never cut off
    side = alt.expr("scale('x', datum.median_ms) > width / 2 ? 'right' : 'left'")
    return _slowest("words").mark_text(align=side, baseline="bottom", dy=-3, y=0, aria=False).encode(text="words:N")
