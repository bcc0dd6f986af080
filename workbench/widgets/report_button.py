"""A button that writes the current run as one HTML page and offers it for download."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable

import ipywidgets
from markupsafe import Markup

from workbench.reports.export import export, file_name
from workbench.reports.stored import stored_report
from workbench.store import Store
from workbench.targets import Target
from workbench.widgets.words import note_html, refusal_html


class ReportButton:
    """`button` starts, `note` holds what its author has to say, `link` shows where the report is."""

    def __init__(self, store: Store, current_run: Callable[[], str | None]) -> None:
        self._store, self._current_run = store, current_run
        self.button = ipywidgets.Button(description="Report", icon="file-text", tooltip="This run as one HTML page")
        self.note = ipywidgets.Text(
            placeholder="a note for the report", tooltip="It stands under the report's title", continuous_update=False,
            layout=ipywidgets.Layout(width="150px", flex="0 1 150px", margin="0"),
        )  # fmt: skip
        self.link = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.button.add_class("wb-report")
        self.note.add_class("wb-report-note")
        self.link.add_class("wb-report-link")
        self.button.on_click(lambda _: self.write())
        self._wanted: str | None = None
        """The run whose report the link may show."""

    def forget(self) -> None:
        """Another question, or another run: the report of the one before is no longer offered."""
        self._wanted = None
        self.link.value = ""

    def write(self) -> None:
        """Writes the report in the background; returns at once."""
        run = self._current_run()
        if run is None:
            self.link.value = note_html("There is no run yet: press Run first.")
            return
        self._wanted = run
        self.button.disabled = True
        self.link.value = note_html("The report is being written …")
        threading.Thread(target=self._write, args=(run, self.note.value), name="workbench report", daemon=True).start()

    def _write(self, run: str, note: str) -> None:
        try:
            folder = self._store.path.parent / "reports"
            folder.mkdir(parents=True, exist_ok=True)
            target = Target(folder / file_name(run, "html"), inputs=(self._store.path,))
            path = export(stored_report(self._store, run, note=note), target, kind="html")
            said = _download(path.name, path.read_bytes(), str(path))
        except (ValueError, OSError) as error:
            said = refusal_html(str(error))
        finally:
            self.button.disabled = False
        if self._wanted == run:
            self.link.value = said


def _download(name: str, content: bytes, where: str) -> str:
    data = base64.b64encode(content).decode()
    link = Markup(
        '<div class="wb-note"><a download="{}" href="data:text/html;base64,{}">Download the report</a><br>{}</div>'
    )
    return str(link.format(name, data, where))
