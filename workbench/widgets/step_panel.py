"""A preset's model on many ranks: the step that the operator is a part of, simulated while somebody looks."""

from __future__ import annotations

from typing import Any

import ipywidgets

from kernels.schedule import Refusal
from kernels.units import percent_text
from workbench.charts import scale_out
from workbench.machines import shipped_machine
from workbench.simulator.network import of_machine
from workbench.simulator.step.configurations import Setting, named, rows
from workbench.simulator.step.model import model, names
from workbench.simulator.step.prices import Prices
from workbench.widgets.controls import dropdown, html
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import note_html, refusal_html

MACHINE = "h200_ib"
"""Hosts of eight GPUs and a network: no other machine of ours has many hosts."""
USUAL = "fused"
"""The configuration that is chosen first: every model has it."""
WORLDS = (8, 64, 512, 4096)
NOBODY = "Everything here is estimated: nothing between hosts was measured, and our kernels do not run there."


def model_of(preset: str) -> str | None:
    """The model that the preset's operator is of, by its name: the longest that the preset's begins with."""
    return max((name for name in names() if f"{preset}_".startswith(f"{name}_")), key=len, default=None)


class StepPanel:
    """`view` is the tab; `offer` says which preset the form has, `look` whether the tab is open."""

    def __init__(self) -> None:
        self._preset, self._watched, self._drawn = "", False, ("", "")
        self._offering = False
        self.configuration = dropdown("Overlapped", [], "wb-step-configuration")
        self.configuration.layout = ipywidgets.Layout(width="260px")
        self.configuration.observe(lambda _: self._draw(), "value")
        self.message = html("wb-step-message")
        self.chart = LiveChart(ready(scale_out.live))
        self.view = ipywidgets.VBox([self.configuration, self.message, self.chart])

    def offer(self, preset: str) -> None:
        """The preset that the form has now."""
        self._preset = preset
        self._draw()

    def look(self, watched: bool) -> None:
        """A step is simulated while somebody looks."""
        self._watched = watched
        self._draw()

    def _draw(self) -> None:
        if not self._watched or self._offering:
            return
        name = model_of(self._preset)
        if name is None:
            self._say_none()
            return
        known = model(name)
        offered = tuple(named(None, known))
        if self.configuration.options != offered:
            self._offer(offered)
        question = (name, str(self.configuration.value))
        if question == self._drawn:
            return
        self._drawn = question
        try:
            steps = _steps(name, question[1])
        except Refusal as refusal:
            self.message.value = refusal_html(str(refusal))
            self.chart.replace(scale_out.DATASET, [])
            return
        self.chart.replace(scale_out.DATASET, scale_out.rows(steps))
        most = steps[-1]
        self.message.value = note_html(
            f"{known.title} on {MACHINE}: {question[1].replace('_', ' ')} takes {_words(most['reduction'])} "
            f"on {most['world']:,} ranks. {NOBODY} More: notebooks/scale_out.ipynb, `workbench predict-step {name}`."
        )

    def _offer(self, offered: tuple[str, ...]) -> None:
        """Other configurations; the one that is chosen stays where it can."""
        before, self._offering = self.configuration.value, True
        try:
            self.configuration.options = offered
            self.configuration.value = before if before in offered else USUAL
        finally:
            self._offering = False

    def _say_none(self) -> None:
        self._drawn = ("", "")
        self.chart.replace(scale_out.DATASET, [])
        self.message.value = note_html(
            f"No model of {', '.join(names())} has this problem: choose a preset of one of them."
        )


def _words(reduction: float) -> str:
    return f"{percent_text(abs(reduction))} {'less' if reduction >= 0 else 'more'} than sequential"


def _steps(name: str, configuration: str) -> list[dict[str, Any]]:
    """One row for each of WORLDS; shapes that several of them have are priced once."""
    machine = shipped_machine(MACHINE)
    first = Prices(machine, of_machine(machine, WORLDS[0]))
    settings = [Setting(model=model(name), prices=first.over(of_machine(machine, world))) for world in WORLDS]
    return [row for setting in settings for row in rows(setting, (configuration,))]
