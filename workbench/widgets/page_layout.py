"""Where everything on the explorer's page is: a strip on top, the question on the left, views over the timeline.

The page is as high as what its notebook shows of itself, and its parts scroll. Below NARROW pixels (`explorer.css`) the
left column is folded above the views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from markupsafe import Markup

from workbench.widgets.controls import FILLING, STYLE, Keyboard, Screen, button, html, marked, note_html
from workbench.widgets.form import QuestionForm
from workbench.widgets.timeline_view import TimelineView

FOLDED, UNFOLDED = "caret-right", "caret-down"
UNFOLD, FOLD = "Show the form: question, schedule and sweep", "Hide the form"
"""What the button over the views of a narrow page does next."""

# The parts.


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """The parts of the page that other modules make."""

    form: QuestionForm
    shown: TimelineView
    ways: ipywidgets.Widget
    """The buttons of the ways to begin."""
    replay: ipywidgets.Widget
    """The choice of a recording."""
    progress: ipywidgets.Widget
    """How far a run is, and how long it takes."""
    answer: ipywidgets.Widget
    """The line with the answer for the form's problem."""
    views: ipywidgets.Widget
    """What is switched between: charts, tables."""
    report: Sequence[ipywidgets.Widget]
    """The author's note, the buttons that write a report and its files, and the link to it."""
    copying: ipywidgets.Widget
    """The menu that copies the question."""
    calibrating: ipywidgets.Widget
    """The notice of inaccurate estimates, with the button that calibrates their machine."""
    loaded: ipywidgets.Widget
    """The note of what a click has changed, with its button Undo."""
    shown_again: Callable[[], Any]
    """Called whenever a browser has made the page's controls."""


class ExplorerPage:
    """The page `view` with the buttons and messages that the explorer uses."""

    def __init__(self, parts: PageParts) -> None:
        self.run = button("Run", "wb-run", "play", "Measure, simulate or replay what the form asks")
        self.run.button_style = "primary"
        self.stop = button("Stop", "wb-stop", "stop", "End the run; what was measured stays", disabled=True)
        self.title = html("wb-title", **FILLING)
        self.plan, self.message = html("wb-plan"), html("wb-message")
        self.banner, self.status = html("wb-banner"), html("wb-cluster")
        self.left_out, self.older = html("wb-left-out"), html("wb-older")
        self.older.tooltip = "What the views show is of another question than the form's"
        self.status.value = note_html("Looking for a cluster …")
        shown = parts.shown
        self.guess, self.pin, self.headline, self.timeline = shown.guess, shown.pin, shown.headline, shown.timeline
        self.baseline = button("Pin baseline", "wb-pin-baseline", "thumb-tack",
                               "Charts and tables show differences to the selected row")  # fmt: skip
        self.fold = _toggle("Question, schedule and sweep", "wb-fold", UNFOLD)
        self.fold.icon = FOLDED
        self.taller = _toggle("Hide timeline", "wb-taller", "Give the view the timeline's room, or give it back")
        self.view = self._laid_out(parts)
        self.fold.observe(lambda change: self._unfold(change["new"]), "value")
        self.taller.observe(lambda change: self._hide_timeline(change["new"]), "value")

    def name(self, title: str) -> None:
        """Writes the *title* of the question into the strip and over the folded controls."""
        self.title.value = str(Markup('<div class="wb-title-line" title="{}">{}</div>').format(title, title))
        self.fold.description = title or "Question, schedule and sweep"

    def pin_baseline(self, is_pinned: bool) -> None:
        """Names what the button of the baseline does next."""
        self.baseline.description = "Unpin baseline" if is_pinned else "Pin baseline"

    def _unfold(self, wanted: bool) -> None:
        self._switch("wb-controls-open", wanted)
        self.fold.icon, self.fold.tooltip = (UNFOLDED, FOLD) if wanted else (FOLDED, UNFOLD)

    def _hide_timeline(self, wanted: bool) -> None:
        self._switch("wb-no-timeline", wanted)
        self.taller.description = "Show timeline" if wanted else "Hide timeline"

    def _switch(self, mark: str, wanted: bool) -> None:
        (self.view.add_class if wanted else self.view.remove_class)(mark)

    def _laid_out(self, parts: PageParts) -> ipywidgets.Widget:
        says = marked(ipywidgets.VBox([parts.form.refusal, parts.shown.guess_refusal, self.message, parts.loaded]),
                      "wb-says")  # fmt: skip
        body = marked(ipywidgets.HBox([self._left(parts), self._right(parts)]), "wb-body")
        inside = [
            ipywidgets.HTML(STYLE),
            Keyboard(),
            Screen(parts.shown_again),
            self._strip(parts),
            says,
            self.fold,
            body,
        ]
        return marked(ipywidgets.VBox(inside, layout=ipywidgets.Layout(width="100%")), "wb-explorer")

    def _strip(self, parts: PageParts) -> ipywidgets.Widget:
        """The question, its times on one ruler and the answer; at their right guess, buttons and progress."""
        head = marked(ipywidgets.HBox([parts.ways, self.title]), "wb-strip-head")
        times = marked(ipywidgets.VBox([parts.shown.ruler, self.headline]), "wb-times")
        question = marked(ipywidgets.VBox([head, times, parts.answer]), "wb-strip-question")
        buttons = marked(ipywidgets.HBox([self.guess, self.run, self.stop]), "wb-buttons")
        running = marked(ipywidgets.VBox([buttons, self.plan, parts.progress]), "wb-strip-run")
        return marked(ipywidgets.HBox([question, running]), "wb-strip")

    def _left(self, parts: PageParts) -> ipywidgets.Widget:
        form = parts.form
        notes = [parts.calibrating, self.banner, self.left_out, self.status]
        groups = [form.question_group, form.schedule_group, form.sweep_group, form.advanced]
        return marked(ipywidgets.VBox([parts.replay, *groups, *notes]), "wb-card")

    def _right(self, parts: PageParts) -> ipywidgets.Widget:
        *writing, link = parts.report
        views = marked(ipywidgets.VBox([self.older, parts.views]), "wb-stage")
        tools = [self.baseline, self.pin, parts.shown.tools, self.taller]
        head = marked(ipywidgets.HBox([*tools, parts.copying, *writing]), "wb-head")
        shown = parts.shown
        timeline = marked(ipywidgets.VBox([shown.timeline, shown.difference, shown.words]), "wb-timeline-box")
        return marked(ipywidgets.VBox([views, head, link, timeline]), "wb-right")


def _toggle(label: str, mark: str, tooltip: str) -> ipywidgets.ToggleButton:
    """A button that stays pressed."""
    layout = ipywidgets.Layout(width="auto", flex="0 0 auto")
    return marked(ipywidgets.ToggleButton(description=label, tooltip=tooltip, layout=layout), mark)
