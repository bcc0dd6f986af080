"""Estimates that are off are told, and a button fits the machine; what was predicted before stays as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from cluster.dispatch import Cluster
from workbench import machines
from workbench.calibration import Unsound, calibrate
from workbench.calibration_gpus import SECONDS as GPU_SECONDS
from workbench.calibration_gpus import calibrate_here
from workbench.off_estimates import off
from workbench.simulator.calibrate import FULL_SECONDS
from workbench.widgets.controls import HIDDEN, SHOWN, button, html, marked
from workbench.widgets.words import note_html, refusal_html, warning_html

Row = Mapping[str, Any]


class Calibrating:
    """`show` tells what is off; the button fits that machine in the background, and then calls *done*."""

    def __init__(self, find: Callable[[], Cluster], done: Callable[[], None]) -> None:
        self._find, self._done = find, done
        self._machine = ""
        self._busy = False
        self._stop = threading.Event()
        self.words = html("wb-off")
        self.button = button("Calibrate", "wb-calibrate", "sliders", "Fit the machine to the ranks that measure")
        self.button.on_click(lambda _: self.start())
        self.button.layout.display = HIDDEN
        self.view = marked(ipywidgets.VBox([self.words, self.button]), "wb-calibrating")

    def show(self, rows: Sequence[Row]) -> None:
        """Says which estimates among the *rows* of a run are off, and offers what helps."""
        if self._busy:
            return
        estimates = off(rows)
        digests = {row.get("machine_digest") for row in rows if row["source"] == "estimated"} - {None}
        self._machine = estimates[0].machine if estimates else ""
        self.words.value = warning_html(" ".join(map(str, estimates))) if estimates else ""
        machine = machines.known(self._machine)
        offers = machine is not None
        if machine is not None and digests and machine.digest not in digests:
            self.words.value += note_html(f"{self._machine} was calibrated since: new runs have other estimates.")
            offers = False
        self.button.layout.display = SHOWN if offers else HIDDEN

    def start(self) -> None:
        """Fits the machine; returns at once."""
        if self._busy or not self._machine:
            return
        self._busy = True
        self._stop.clear()
        self.button.layout.display = HIDDEN
        threading.Thread(target=self._work, args=(self._machine,), name="workbench calibrate", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def _work(self, name: str) -> None:
        said = ""
        try:
            said = self._fit(name)
        except (Unsound, ValueError, OSError, RuntimeError) as error:
            said = refusal_html(str(error))
        finally:
            self._busy = False
            if not self._stop.is_set():  # else the page went meanwhile, and its store with it
                self._done()
                self.words.value = said

    def _fit(self, name: str) -> str:
        """What to say of it."""
        on_cpus = machines.machine(name).backend == "cpu"
        takes = FULL_SECONDS if on_cpus else GPU_SECONDS
        self.words.value = note_html(f"Calibrating {name}: about {takes:.0f} s. Measure nothing meanwhile.")
        if on_cpus:
            calibrate(self._find(), FULL_SECONDS, self._stop, name=name)
        else:
            calibrate_here(name, GPU_SECONDS)
        return note_html(f"{name} is calibrated. Estimates that were made before a run stay beside its measurements.")
