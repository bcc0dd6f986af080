"""How many measurements each search needs: played over recorded spaces of schedules, without a GPU.

`python -m tests.gpu.documents` writes the table of docs/results/searches.md, `python -m tests.gpu.searches` its chart.
A space is all schedules of one problem that recordings of drawn schedules hold. Prices were fitted to none of the
spaces, and to the problem of one of them by other schedules.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import altair
import numpy as np

from tests.gpu.choices import table_text
from workbench.analysis import searches
from workbench.analysis.searches import RecordedSpace
from workbench.experiment.experiment import installed_kinds
from workbench.machines import shipped_machine
from workbench.machines.calibrate_gpu import problem_text
from workbench.results import recordings

OF_SPACES = "h200_nvl2_space"
"""Beginning of the names of recordings of drawn schedules."""


@cache
def spaces() -> tuple[RecordedSpace, ...]:
    """The recorded spaces, by problem."""
    shipped = recordings.shipped().items()
    drawn = [entry for name, entries in shipped if name.startswith(OF_SPACES) for entry in entries]
    return tuple(searches.spaces(drawn, shipped_machine))


@cache
def text() -> str:
    """A row for each space: how many measurements each search needs, and where estimate first stops by itself."""
    rows = []
    for space in spaces():
        by_kind = {each.kind: each for each in searches.played(space)}
        first, random, count = by_kind["estimate_first"], by_kind["random"], len(space.times)
        assert first.then_over_best is not None, "estimate first has a stopping rule"
        rows.append((problem_text(space.problem), str(count), str(first.needed), f"{first.needed / count:.0%}",
                     f"{random.needed} ({random.low} to {random.high})", str(first.stopped_after),
                     f"{first.then_over_best - 1:.1%}"))  # fmt: skip
    heads = ("space", "schedules", "estimate first", "of the space", "random, median (10 to 90 %)", "it stops after",
             "then above the best")  # fmt: skip
    return table_text(heads, rows)


# The chart.


def chart() -> altair.FacetChart:
    """Best so far by number of measurements, a panel for each space; random's band is 10 to 90 % of the seeds."""
    lines, band = [], []
    for space in spaces():
        title = f"{space.problem.operator}, {len(space.times)} schedules"
        for kind in installed_kinds():
            path = searches.walked(space, kind)
            if kind == "random":
                path = np.median(searches.random_walks(space), axis=0)
            lines += [{"space": title, "search": searches.NAMES[kind], "measured": n, "over": float(y)}
                      for n, y in enumerate(path, 1)]  # fmt: skip
        low, high = np.quantile(searches.random_walks(space), searches.BAND, axis=0)
        band += [{"space": title, "measured": n, "low": float(a), "high": float(b)}
                 for n, (a, b) in enumerate(zip(low, high, strict=True), 1)]  # fmt: skip
    measured = altair.X("measured:Q", title="schedules measured", scale=altair.Scale(type="log", domain=[1, 130]))
    colours = altair.Scale(domain=list(searches.NAMES.values()), range=["#7f7f7f", "#1976d2", "#d26a00", "#8e44ad"])
    drawn = altair.Chart().mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=measured, y=altair.Y("over:Q", title="best so far over the best", scale=altair.Scale(zero=False)),
        color=altair.Color("search:N", scale=colours, title=None),
    )  # fmt: skip
    shaded = altair.Chart().mark_area(interpolate="step-after", opacity=0.18, color="#1976d2").encode(
        x=measured, y="low:Q", y2="high:Q")  # fmt: skip
    data = altair.Data(values=[*({**row, "kind": "line"} for row in lines), *({**row, "kind": "band"} for row in band)])
    both = altair.layer(shaded.transform_filter("datum.kind == 'band'"), drawn.transform_filter("datum.kind == 'line'"),
                        data=data).properties(width=300, height=190)  # fmt: skip
    return both.facet(facet=altair.Facet("space:N", title=None), columns=2).resolve_scale(y="independent")


if __name__ == "__main__":
    place = Path(__file__).parents[2] / "docs" / "results" / "searches.svg"
    chart().save(place)
    print(f"written: {place.name}, {place.stat().st_size // 1024} KiB")
