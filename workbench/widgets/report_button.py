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
from workbench.widgets.words import note_html, refusal_html


class ReportButton:
    """`button` starts, `link` shows where the report is."""

    def __init__(self, store: Store, current_run: Callable[[], str | None]) -> None:
        self._store, self._current_run = store, current_run
        self.button = ipywidgets.Button(description="Report", icon="file-text", tooltip="This run as one HTML page")
        self.link = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.button.add_class("wb-report")
        self.link.add_class("wb-report-link")
        self.button.on_click(lambda _: self.write())

    def write(self) -> None:
        """Writes the report in the background; returns at once."""
        run = self._current_run()
        if run is None:
            self.link.value = note_html("There is no run yet: press Run first.")
            return
        self.button.disabled = True
        self.link.value = note_html("The report is being written …")
        threading.Thread(target=self._write, args=(run,), name="workbench report", daemon=True).start()

    def _write(self, run: str) -> None:
        try:
            folder = self._store.path.parent / "reports"
            folder.mkdir(parents=True, exist_ok=True)
            path = export(stored_report(self._store, run), folder / file_name(run, "html"), kind="html")
            self.link.value = _download(path.name, path.read_bytes(), str(path))
        except (ValueError, OSError) as error:
            self.link.value = refusal_html(str(error))
        finally:
            self.button.disabled = False


def _download(name: str, content: bytes, where: str) -> str:
    data = base64.b64encode(content).decode()
    link = Markup(
        '<div class="wb-note"><a download="{}" href="data:text/html;base64,{}">Download the report</a><br>{}</div>'
    )
    return str(link.format(name, data, where))
