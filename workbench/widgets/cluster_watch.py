"""Who answers: the cluster measures, the simulator estimates, or a recording is played as if live."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from cluster.client import Cluster
from cluster.hosts import local_ranks
from cluster.seating import Ranks, WorkerDescription, Workers
from kernels.machine import Machine
from workbench import machines
from workbench.analysis.accuracy import wrong_estimates
from workbench.experiment.calibration import UnsoundFit, calibrate
from workbench.experiment.form import FormQuestion
from workbench.experiment.run import Replay, StoredRun
from workbench.experiment.run import run as experiment_run
from workbench.experiment.sources import Answer, FromCluster, FromRecordings, FromSimulator
from workbench.machines import matching
from workbench.machines.calibrate_cpu import FULL_SECONDS
from workbench.machines.calibrate_gpu import SECONDS as GPU_SECONDS
from workbench.machines.calibrate_gpu import calibrate_here
from workbench.resources import LAPTOP
from workbench.results import recordings
from workbench.results.recordings import Recorded
from workbench.results.store import Store
from workbench.widgets.controls import (
    HIDDEN,
    SHOWN,
    button,
    dropdown,
    html,
    marked,
    note_html,
    one_of,
    refusal_html,
    tick,
    warning_html,
)
from workbench.widgets.form import Availability, QuestionForm

# Who measures: the cluster is looked for in the background, and looked at again, so that the page says how it is.

LOOK_SECONDS, MISS_SECONDS = 3.0, 1.0
"""How often a cluster is looked at, and how often it is looked for."""
LOOKING_MOST = 4
"""So many explorers of a kernel look for their cluster; older ones keep what they have found."""
NOBODY = (
    "No cluster answers yet: the lab's takes some seconds to start, `workbench cluster up` starts one elsewhere. "
    "Simulate and Replay need none."
)
CLOSING_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""So long may somebody who needs a cluster wait for one that is being found."""


class ClusterWatcher:
    """*tell* is called with the workers, or None, and with a sentence, whenever these have changed.

    Only the finder's own thread connects: a connection may hang, and whoever presses Run must not hang with it.
    """

    def __init__(self, tell: Callable[[Workers | None, str], Any], cluster: Cluster | str | None = None) -> None:
        self._tell = tell
        self._cluster = None if isinstance(cluster, str) else cluster
        self._address = cluster if isinstance(cluster, str) else None
        self._is_lab = cluster is None
        self._told: tuple[Workers | None, str] | None = None
        self._why = "it is still being looked for"
        self._closed = False
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """A cluster was found, is needed at once, or is needed no more. Held for moments, never while connecting."""
        self._needed = False

    def start(self) -> None:
        """Begins to look, in a thread that ends with `close` or with the kernel."""
        self._thread = threading.Thread(target=self._look, name="workbench cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing is told from now on: what is being told is waited for, a connection that hangs only so long."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def cluster(self) -> Cluster:
        """The cluster that was found, connected; ValueError when nobody has answered."""
        with self._news:
            self._needed = not self._connected()
            self._news.notify_all()
            self._news.wait_for(self._connected, PATIENCE_SECONDS)
            if self._cluster is not None and self._connected():
                return self._cluster
            raise ValueError(
                f"Measuring needs 1 cluster, but 0 have answered: {self._why.rstrip('.')}. Accepted: a simulation, "
                "a replay, or another try once the page says that a cluster is there."
            )

    def ranks(self, world: int, backend: str, across: bool = False) -> Ranks | None:
        """What a gang would run on: of the cluster as it was seen last, or of the one that the lab is starting here."""
        workers = self._told and self._told[0]
        if workers is not None:
            return workers.ranks(world, backend, across)
        return local_ranks(world, backend) if self._is_lab else None

    def _connected(self) -> bool:
        return self._cluster is not None and self._cluster.client.status == "running"

    def _look(self) -> None:
        while not self._closed:
            news = self._found()
            if news != self._told and not self._closed:
                self._told = news
                try:
                    self._tell(*news)
                except ValueError:
                    if not self._closed:  # else the page went meanwhile, and its store with it
                        raise
            with self._news:
                pause_s = MISS_SECONDS if news[0] is None else LOOK_SECONDS
                self._news.wait_for(lambda: self._needed or self._closed, pause_s)
                self._needed = False

    def _connect(self) -> Cluster:
        with self._news:
            if self._cluster is not None and self._connected():
                return self._cluster
            self._cluster = None  # a lab that was ended and started again has another address
        cluster = Cluster.connect(self._address)
        with self._news:
            self._cluster = cluster
            self._news.notify_all()
        return cluster

    def _found(self) -> tuple[Workers | None, str]:
        try:
            cluster = self._connect()
            workers = Workers.described(cluster.describe())
        except (ValueError, OSError, TimeoutError, RuntimeError) as error:
            self._why = str(error) or type(error).__name__
            return None, NOBODY
        troubles = [f"{worker.name}: {worker.trouble}." for worker in workers.here if worker.trouble]
        silent = [worker.name for worker in workers.here if isinstance(worker, WorkerDescription) and worker.is_away]
        if silent:
            troubles.append(f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer now.")
        hosts = len({worker.host for worker in workers.here})
        where = "this host" if cluster.address.startswith("tcp://127.0.0.1") else f"{hosts} hosts"
        return workers, " ".join([f"Cluster: {len(workers)} ranks on {where}.", *troubles])


# Estimates that are off are told, and a button fits the machine; what was predicted before stays as it was.

Row = Mapping[str, Any]


class CalibrationNotice:
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
        estimates = wrong_estimates(rows)
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
        except (UnsoundFit, ValueError, OSError, RuntimeError) as error:
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


# The form begins with the machine of the ranks that measure: the one that fits them, or one made of what they tell.


def begin_with(question: QuestionForm, workers: Workers | None, find: Callable[[], Cluster]) -> None:
    """Sets the machine of *question* to that of *workers*, where it is the usual one and not theirs.

    What a person chose stays, and is refused with the name of the one that fits.
    """
    machine = question.machine_value
    if not workers or machine.name != LAPTOP or Availability(True, workers).of_machine(machine) is None:
        return
    backend = "triton" if all(worker.backend == "triton" for worker in workers.here) else "cpu"
    try:
        theirs = matching.cluster_site(find(), backend)
        if theirs is not None:
            question.choose_machine(matching.saved_machine(theirs).name)
    except (ValueError, OSError, RuntimeError, TimeoutError):  # then the form says why its machine is refused
        return


# Who answers: the cluster measures, the simulator estimates, or a recording is played as if live.

MEASURE, SIMULATE, REPLAY = "cluster", "simulator", "recordings"
SOURCES = (("Measure", MEASURE), ("Simulate", SIMULATE), ("Replay", REPLAY))
TOOLTIPS = ("On the cluster's ranks", "Played on a machine's description", "Recorded runs as if live")
SPEEDS = (("as it was", 1.0), ("10 times as fast", 10.0), ("at once", float("inf")))
OWN_RUNS = 20
"""The newest runs of one's own that are offered for replay."""


class SourceChoice:
    """`view` is the choice; `sitting` makes of a question what is to be iterated."""

    def __init__(self, store: Store, find: Callable[[], Cluster], ranks: Callable[[int, str], Ranks | None],
                 wait_s: Callable[[], float]) -> None:  # fmt: skip
        """*wait_s*: how long a run may wait for ranks, when it begins."""
        self._store, self._find, self._ranks, self._wait_s = store, find, ranks, wait_s
        self._listeners: list[Callable[[], Any]] = []
        self._read: tuple[Any, list[Recorded]] | None = None
        self.source = one_of(SOURCES, MEASURE, "wb-source", TOOLTIPS)
        self.recording = dropdown("Recording", [], "wb-recording")
        self.whole = tick("Play all of it, not just what the form asks", "wb-replay-all", value=True)
        self.speed = dropdown("Speed", SPEEDS, "wb-replay-speed")
        self._replay = ipywidgets.VBox(
            [self.recording, self.speed, self.whole], layout=ipywidgets.Layout(display=HIDDEN)
        )
        self.view = ipywidgets.VBox([self.source, self._replay])
        self.source.observe(self._source_changed, "value")
        self.recording.observe(self._tell, "value")
        self.whole.observe(self._tell, "value")

    @property
    def value(self) -> str:
        """MEASURE, SIMULATE or REPLAY."""
        return str(self.source.value)

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    def recorded(self) -> list[Recorded]:
        """The recording that is chosen; ValueError when there is none, or it has nothing."""
        if self.recording.value is None:
            raise ValueError(
                "There is nothing to replay: 0 recordings and 0 measured runs. Accepted: measure something first, "
                "or put a recording (a .jsonl file) into data/recordings."
            )
        kind, name = self.recording.value
        return recordings.recordings(name) if kind == "shipped" else recordings.recordings_of_run(self._store, name)

    def refusal(self, question: FormQuestion, machine: Machine) -> str | None:
        """Why nothing can be replayed, or None; of a sweep what was recorded is played."""
        if self.value != REPLAY:
            return None
        try:
            recorded = self._recorded_once()
            if self.whole.value or question.swept_values(machine) or question.schemes() != (question.scheme,):
                return None
            return FromRecordings(recorded).absence(question.trial(machine))
        except ValueError as refused:
            return str(refused)

    def _recorded_once(self) -> list[Recorded]:
        """The recording, read once as long as it is the one that is chosen."""
        if self._read is None or self._read[0] != self.recording.value:
            self._read = self.recording.value, self.recorded()
        return self._read[1]

    def sitting(self, question: FormQuestion, machine: Machine) -> StoredRun:
        """What Run iterates; ValueError in one sentence when it cannot be."""
        if self.value == REPLAY and self.whole.value:
            return self._replay_of(self.recorded())
        return experiment_run(question.experiment(machine), self._store, self._answer(machine), machine)

    def _replay_of(self, recorded: list[Recorded]) -> Replay:
        trial = recorded[0].measurement.trial if recorded else None
        machine = machines.known(trial.machine) if trial else None
        _, name = self.recording.value
        return Replay(recorded, self._store, machine=machine, speed=self.speed.value, title=f"replay of {name}")

    def _answer(self, machine: Machine) -> Answer:
        match self.value:
            case "simulator":
                return FromSimulator(machine, self._ranks)
            case "recordings":
                return FromRecordings(self.recorded(), self.speed.value)
        return FromCluster(self._find(), wait_s=self._wait_s())

    def _source_changed(self, _: Any) -> None:
        replay = self.value == REPLAY
        if replay:
            self.offer()
        self._replay.layout.display = SHOWN if replay else HIDDEN
        self._tell()

    def offer(self) -> None:
        """The recordings that there are now: those shipped, then one's own measured runs, the newest first."""
        self._read = None
        shipped = [(name, ("shipped", name)) for name in recordings.paths()]
        runs = [
            (f"{run['title'] or 'run'}, {run['id']}", ("own", run["id"])) for run in self._store.measured_runs(OWN_RUNS)
        ]
        options = (*shipped, *runs)
        if tuple(self.recording.options) != options:
            self.recording.options = options
            self.recording.value = options[0][1] if options else None

    def _tell(self, _: Any = None) -> None:
        for listener in self._listeners:
            listener()
