"""The ruler: guess, estimate, measurement, floor and best sequential schedule as named marks on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kernels.machine import Machine
from kernels.outcome import Estimate
from kernels.schemes import BASELINE
from kernels.units import ratio_text, seconds_text, spread_text
from workbench.charts import theme
from workbench.experiment.experiment import Experiment
from workbench.experiment.space import Space
from workbench.naming import baseline_title
from workbench.results import comparison, verdict
from workbench.results.metrics import gain
from workbench.results.rows import Row
from workbench.simulator.predict import predict

LINEAR_MOST = 25.0
"""Times that are further apart than this ratio are drawn on a logarithmic axis, on which each stays visible."""
TICKS = 6
"""About so many ticks; the page leaves out labels that would touch."""
BEST = "best sequential"
"""The name of the mark that a speed-up is over."""
MARGIN = 1.06
"""The axis ends a little after its last mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One time on the ruler; all times are in seconds."""

    name: str
    seconds: float
    look: str
    """A name of `theme.LOOKS`: its shape says where the time is from."""
    low_s: float | None = None
    high_s: float | None = None
    """The interval around it; None where there is none."""
    colour: str = theme.INK

    def to_json(self) -> dict[str, Any]:
        """The mark for the browser."""
        shape, filled = theme.LOOKS[self.look]
        return {
            "name": self.name, "seconds": self.seconds, "text": seconds_text(self.seconds), "low": self.low_s,
            "high": self.high_s, "shape": shape, "filled": bool(filled), "colour": self.colour,
            "title": f"{self.name}: {spread_text(self.seconds, self.low_s, self.high_s)}",
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gain:
    """The speed-up of the shown schedule over the best sequential one, with the baseline's time in seconds."""

    text: str
    """`1.32x`, or that it is not certain."""
    over: str
    """What it is over, and by which source."""
    why: str
    """The whole sentence, for a tooltip."""
    mark: Mark


class Ruler(anywidget.AnyWidget):
    """The widget: the page moves labels apart at any width, so that none covers another one."""

    _esm = Path(__file__).parent / "ruler.js"
    _css = Path(__file__).parent / "ruler.css"
    drawing: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)

    def show(self, marks: Sequence[Mark], gain: Gain | None = None, note: str = "") -> None:
        """Draws *marks*, the *gain* at their right and the *note* below; without marks the note alone."""
        shown = [*marks, *([gain.mark] if gain else [])]
        scale = axis([end for mark in shown for end in (mark.seconds, mark.low_s, mark.high_s) if end],
                     [mark.seconds for mark in shown])  # fmt: skip
        self.drawing = {
            "marks": [drawn_mark(mark, *scale["domain"]) for mark in shown],
            "gain": {"text": gain.text, "over": gain.over, "why": gain.why} if gain else None,
            "note": note,
            **scale,
        }


def drawn_mark(mark: Mark, start_s: float, stop_s: float) -> dict[str, Any]:
    """*mark* for the browser, with the ends of a ruler from *start_s* to *stop_s* beyond which its interval goes."""
    shown = mark.to_json()
    is_left = mark.low_s is not None and mark.low_s < start_s
    is_right = mark.high_s is not None and mark.high_s > stop_s
    ends = ["left"] * is_left + ["right"] * is_right
    more = f"; an arrowhead: it goes on beyond the {' and the '.join(ends)} end of the ruler" if ends else ""
    return {**shown, "beyond": ends, "title": f"{shown['title']}{more}"}


def axis(ends: Sequence[float], times: Sequence[float]) -> dict[str, Any]:
    """Scale, domain and ticks that show all *times*; an interval's *ends* count up to twice the largest of these.

    The estimate of a machine that was never calibrated may be wrong by three: its interval may leave the ruler. No
    mark lies beyond the last tick.
    """
    if not times:
        return {"log": False, "domain": [0.0, 1.0], "ticks": []}
    high = MARGIN * max(end for end in ends if end <= 2 * max(times))
    low = min(times)
    if high / low > LINEAR_MOST:
        decades = range(floor(log10(low / MARGIN)), ceil(log10(high)) + 1)
        domain = [low / MARGIN**2, high]
        ticks = [m * 10.0**decade for decade in decades for m in (1, 2, 5)] if len(decades) < TICKS else [
            10.0**decade for decade in decades]  # fmt: skip
        last = next((each for each in ticks if each >= max(times)), domain[1])
        domain[1] = max(high, last)
        ticks = [each for each in ticks if domain[0] <= each <= domain[1]]
        return {"log": True, "domain": domain, "ticks": _labelled(ticks)}
    step = _nice(high / TICKS)
    count = ceil(high / step - 1e-9)
    return {"log": False, "domain": [0.0, step * count], "ticks": _labelled([step * n for n in range(count + 1)])}


def _nice(step: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.999)


def _labelled(ticks: Sequence[float]) -> list[dict[str, Any]]:
    return [{"seconds": tick, "text": seconds_text(tick) if tick else "0"} for tick in ticks]


# The speed-up over the best sequential schedule: measured by the one verdict, or by estimate.


def measured_gain(row: Row, rows: Sequence[Row]) -> Gain | None:
    """The speed-up of the timed *row* over the best baseline of its block, among the *rows* of its problem.

    None where it is a baseline, or none was timed with it.
    """
    base = next(iter(comparison.baselines(row, rows)), None)
    if base is None or row["scheme"] == BASELINE:
        return None
    decided = comparison.over_baseline(row, base, rows)
    ratio = decided.ratio or gain({**row, "sequential_s": base["time_s"]})
    text = ratio_text(ratio) if ratio and decided.word in (verdict.FASTER, verdict.SLOWER) else decided.word
    over = f"over {_baseline(base['axes'])}"
    why = f"{row['scheme']} over {BASELINE} is {decided.word}: {decided.why}."
    mark = Mark(name=BEST, seconds=base["time_s"], look=str(base["source"]), colour=theme.SCHEME_COLOURS[BASELINE])
    return Gain(text, over, why, mark)


def missing_gain_text(row: Row | None, rows: Sequence[Row] = ()) -> str:
    """Why the timed *row* has no speed-up, and what to press; empty for a baseline, and for None.

    A baseline that failed in its run is among the *rows* of its problem: pressing changes nothing then.
    """
    if row is None or row["scheme"] == BASELINE:
        return ""
    is_replayed = row["source"] == "recorded" and not row.get("origin")
    of_run = [one for one in rows if one["scheme"] == BASELINE and one["run"] == row["run"]]
    if (failed := next((one for one in of_run if one["stage"]), None)) is not None:
        what = "No speedup" if is_replayed else "No measured speedup"
        name = ", ".join(filter(None, (BASELINE, baseline_title(failed["axes"]))))
        return f"{what}: {name} failed ({failed['stage']}). {failed['message']}"
    if is_replayed:
        return f"No speedup: in the recording {comparison.NO_BASELINE}."
    return (f"No measured speedup: {comparison.NO_BASELINE}. To get one, tick “Measure again what is known” under "
            "Advanced, then press Run.")  # fmt: skip


def estimated_gain(estimate: Estimate, machine: Machine) -> Gain | None:
    """The speed-up of *estimate*, which is of *machine*, over the best of its estimated baselines.

    None where it is one, or where the form, which another thread reads, has another machine by now.
    """
    trial = estimate.trial
    if trial.schedule.scheme == BASELINE or trial.machine != machine.name:
        return None
    experiment = Experiment(problems=(trial.problem,), space=Space(()), backend=trial.backend, machine=trial.machine,
                            fabric=trial.fabric, protocol=trial.protocol)  # fmt: skip
    plan = experiment.baseline_plan(trial.problem, [trial.schedule], trial.fabric, machine)
    bases = [predict(base, machine, with_spans=False) for base in plan.with_all().baselines]
    best = min(bases, key=lambda each: each.time_s)
    how = _baseline(dict(best.trial.schedule.axes))
    why = f"{seconds_text(estimate.time_s)} against {seconds_text(best.time_s)}, both estimated: nothing is certain."
    mark = Mark(name=BEST, seconds=best.time_s, look=best.source, colour=theme.SCHEME_COLOURS[BASELINE])
    return Gain(ratio_text(best.time_s / estimate.time_s), f"over {how}, by estimate", why, mark)


def _baseline(axes: Mapping[str, object]) -> str:
    """`the best sequential (collective direct)`."""
    how = baseline_title(axes)
    return f"the best sequential ({how})" if how else "the best sequential"
