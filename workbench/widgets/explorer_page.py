"""Where everything stands on the explorer's page: the question on the left, what is known about it on the right."""

from __future__ import annotations

from dataclasses import dataclass

import ipywidgets

from workbench.widgets.controls import button, html, marked
from workbench.widgets.keyboard import Keyboard
from workbench.widgets.panels import Panels
from workbench.widgets.question import Question
from workbench.widgets.report_button import ReportButton
from workbench.widgets.results import Results
from workbench.widgets.shown import Shown
from workbench.widgets.source_choice import SourceChoice
from workbench.widgets.words import STYLE, note_html

FORM_PIXELS = 392


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is made elsewhere."""

    question: Question
    source: SourceChoice
    results: Results
    panels: Panels
    report: ReportButton
    shown: Shown
    calibrating: ipywidgets.Widget
    """Which estimates are off, and the button that fits their machine."""
    loaded: ipywidgets.Widget
    """What a click has changed, and its Undo."""


class Page:
    """`view` is shown; the controls are what the explorer listens to and writes on."""

    def __init__(self, parts: Parts) -> None:
        self.run = button("Run", "wb-run", "play", "Measure, simulate or replay what the form asks")
        self.run.button_style = "primary"
        self.stop = button("Stop", "wb-stop", "stop", "End the run; what was measured stays", disabled=True)
        self.plan, self.message = html("wb-plan"), html("wb-message")
        self.banner, self.status = html("wb-banner"), html("wb-cluster")
        self.left_out = html("wb-left-out")
        self.status.value = note_html("Looking for a cluster …")
        shown = parts.shown
        self.guess, self.pin, self.headline, self.timeline = shown.guess, shown.pin, shown.headline, shown.timeline
        self.view = self._laid_out(parts)

    def _laid_out(self, parts: Parts) -> ipywidgets.Widget:
        left = marked(ipywidgets.VBox(self._left(parts)), "wb-card")
        left.layout = ipywidgets.Layout(flex=f"0 0 {FORM_PIXELS}px", width=f"{FORM_PIXELS}px")
        head = marked(ipywidgets.HBox([self.headline, self.pin, parts.report.note, parts.report.button]), "wb-head")
        right = marked(
            ipywidgets.VBox([head, parts.report.link, self.timeline, parts.panels.view, parts.results.table]),
            "wb-right",
        )
        right.layout = ipywidgets.Layout(flex="1 1 520px", min_width="420px", overflow="hidden")
        page = ipywidgets.HBox([left, right])
        page.layout = ipywidgets.Layout(flex_flow="row wrap", width="100%", grid_gap="12px", align_items="flex-start")
        box = ipywidgets.VBox([ipywidgets.HTML(STYLE), Keyboard(), page], layout=ipywidgets.Layout(width="100%"))
        return marked(box, "wb-explorer")

    def _left(self, parts: Parts) -> list[ipywidgets.Widget]:
        buttons = marked(ipywidgets.HBox([self.run, self.stop, self.plan]), "wb-buttons")
        guess = [self.guess, parts.shown.guess_refusal]
        answered = [parts.question.view, *guess, parts.source.view, buttons, parts.question.refusal, parts.loaded]
        said = [parts.results.progress, self.message, parts.calibrating, self.banner, self.left_out, self.status]
        return [*answered, *said, parts.question.advanced, parts.question.sizes]
