"""Sources of outcomes: finds the cluster in the background, calibrates machines, and chooses who answers a run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from cluster.client import Cluster
from cluster.hosts import local_ranks
from cluster.seating import Ranks, WorkerDescription, Workers
from kernels.machine import Machine
from workbench import machines
from workbench.analysis.accuracy import wrong_estimates
from workbench.experiment.calibration import (
    FAILED,
    INSIST,
    REFUSE,
    RUNNING,
    WAITING,
    UnsoundFit,
    calibrate,
    lab_calibration,
)
from workbench.experiment.experiment import Experiment
from workbench.experiment.form import FormQuestion
from workbench.experiment.question import together
from workbench.experiment.run import Replay, StoredRun
from workbench.experiment.run import run as experiment_run
from workbench.experiment.sources import Answer, FromCluster, FromRecordings, FromSimulator
from workbench.machines import BusyComputer, matching
from workbench.machines.calibrate_cpu import FULL_SECONDS
from workbench.machines.calibrate_gpu import SECONDS as GPU_SECONDS
from workbench.machines.calibrate_gpu import calibrate_here
from workbench.resources import LAPTOP
from workbench.results import recordings
from workbench.results.quiet import busiest_party, busy_host_sentence
from workbench.results.recordings import Recorded
from workbench.results.rows import Row
from workbench.results.runs import replayable
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

_LOG = logging.getLogger(__name__)

# The cluster is searched for and checked in the background, so that the page shows its state.

LOOK_SECONDS, MISS_SECONDS = 3.0, 1.0
"""Pause between checks of a connected cluster, and between searches for one."""
LOOKING_MOST = 4
"""The most explorers of a kernel that watch their cluster; older ones keep its last state."""
NO_CLUSTER = (
    "No cluster answers yet: the lab's takes some seconds to start, `workbench cluster up` starts one elsewhere. "
    "The other two ways to begin need none."
)
GONE = (
    "The cluster at {address} has not answered since {since}, and the page goes on by itself when it does. Until then "
    "Recorded GPUs and A machine I do not have work, or `workbench cluster up` starts ranks here."
)
"""What a page says that had a cluster."""
CALIBRATE, ANYWAY = "Calibrate", "Calibrate anyway"
"""Labels of the button: the second one insists on a busy computer."""
RENEWED = "The estimates on this page are of it now."
CLOSING_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""The longest wait of `ClusterWatcher.cluster` for a connection."""


class ClusterWatcher:
    """Watches the cluster, and calls *report* with its workers, or None, and a message whenever these change.

    Only the watcher's thread connects: a connection may hang, and pressing Run must not hang with it.
    """

    def __init__(
        self,
        report: Callable[[Workers | None, str], Any],
        cluster: Cluster | str | None = None,
        look: Callable[[], Any] = lambda: None,
    ) -> None:
        """*look* is called at every check as well: files that other processes write are looked at as often."""
        self._report, self._look_also = report, look
        self._cluster = None if isinstance(cluster, str) else cluster
        self._address = cluster if isinstance(cluster, str) else None
        self._is_lab = cluster is None
        self._reported: tuple[Workers | None, str] | None = None
        self._why = "it is still being looked for"
        self._closed = False
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """Notified when a cluster is found, needed at once, or no longer needed. Never held while connecting."""
        self._needed = False
        self._answered: tuple[str, str] | None = None
        """Address of the cluster that answered last, and the time of day since which it does not."""
        self._busy = ""
        """What the page says of a busy computer; kept while the same party is busy, since a new text redraws the
        page."""
        self._whom = ""

    @property
    def is_busy(self) -> bool:
        """Whether the page says that others use the cores of the ranks."""
        return bool(self._busy)

    def start(self) -> None:
        """Starts the watching thread, which ends with `close` or with the kernel."""
        self._thread = threading.Thread(target=self._look, name="workbench cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops reports. Waits at most CLOSING_SECONDS for a report or connection in progress."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def cluster(self) -> Cluster:
        """The connected cluster; ValueError if none has answered."""
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
        """The ranks that a gang would use: of the cluster's last state, or of the one that the lab is starting here."""
        workers = self._reported and self._reported[0]
        if workers is not None:
            return workers.ranks(world, backend, across)
        return local_ranks(world, backend) if self._is_lab else None

    def _connected(self) -> bool:
        return self._cluster is not None and self._cluster.client.status == "running"

    def _look(self) -> None:
        while not self._closed:
            pause_s = MISS_SECONDS
            try:
                news = self._state()
                if news != self._reported and not self._closed:
                    self._reported = news
                    self._report(*news)
                if not self._closed:
                    self._look_also()
                pause_s = MISS_SECONDS if news[0] is None else LOOK_SECONDS
            except Exception:  # one that ends this thread would leave the page without a cluster for good
                if not self._closed:  # otherwise the page and its store were closed meanwhile
                    _LOG.exception("The page could not show the cluster's state, and looks again soon.")
                    self._reported = None
            with self._news:
                self._news.wait_for(lambda: self._needed or self._closed, pause_s)
                self._needed = False

    def _absence(self) -> str:
        """What the page says while no cluster answers; the same text until one does, since a new one redraws it."""
        if self._answered is None:
            return NO_CLUSTER
        address, since = self._answered
        self._answered = address, since or time.strftime("%H:%M")
        return GONE.format(address=self._answered[0], since=self._answered[1])

    def _connect(self) -> Cluster:
        with self._news:
            if self._cluster is not None and self._connected():
                return self._cluster
            self._cluster = None  # a lab that was restarted has another address
        cluster = Cluster.connect(self._address)
        with self._news:
            self._cluster = cluster
            self._news.notify_all()
        return cluster

    def _state(self) -> tuple[Workers | None, str]:
        try:
            cluster = self._connect()
            workers = Workers.from_description(cluster.describe())
            # GPU ranks wait for their GPUs: who uses the host's cores changes none of their times
            uses = cluster.core_use() if any(worker.backend != "triton" for worker in workers.here) else ()
        except (ValueError, OSError, TimeoutError, RuntimeError) as error:
            self._why = str(error) or type(error).__name__
            return None, self._absence()
        self._answered = cluster.address, ""
        troubles = [f"{worker.name}: {worker.trouble}." for worker in workers.here if worker.trouble]
        silent = [worker.name for worker in workers.here if isinstance(worker, WorkerDescription) and worker.is_away]
        if silent:
            troubles.append(f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer now.")
        busy, whom = busy_host_sentence(uses), busiest_party(uses)
        if not busy or whom != self._whom:
            self._busy, self._whom = busy, whom if busy else ""
        if self._busy:
            troubles.insert(0, self._busy)
        hosts = len({worker.host for worker in workers.here})
        where = (
            "this host"
            if cluster.address.startswith("tcp://127.0.0.1")
            else "1 host"
            if hosts == 1
            else f"{hosts} hosts"
        )
        return workers, " ".join([f"Cluster: {len(workers)} ranks on {where}.", *troubles])


# A notice about a machine's calibration, and a button that calibrates; stored estimates do not change.


class CalibrationNotice:
    """Reports inaccurate estimates, and what the lab's own calibration does.

    Its button calibrates their machine in the background, and then calls *done*.
    """

    def __init__(self, find: Callable[[], Cluster], done: Callable[[], None]) -> None:
        self._find, self._done = find, done
        self._of_run = self._of_lab = ""
        """The machines that a run and the lab's state offer to calibrate; empty: none."""
        self._digests: dict[str, str] = {}
        self._busy = False
        self._stop = threading.Event()
        self.lab, self.text = html("wb-lab-calibration"), html("wb-off")
        self.button = button(CALIBRATE, "wb-calibrate", "sliders", "Fit the machine to the ranks that measure")
        self.button.on_click(lambda _: self.start())
        self.view = marked(ipywidgets.VBox([self.lab, self.text, self.button]), "wb-calibrating")
        self._offer()

    def show(self, rows: Sequence[Row]) -> None:
        """Reports which estimates among the *rows* of a run are inaccurate, and offers a calibration."""
        if self._busy:
            return
        if not rows and RENEWED in self.lab.value:  # a run begins, and its estimates are the new ones
            self.lab.value = ""
        estimates = wrong_estimates(rows)
        digests = {row.get("machine_digest") for row in rows if row["source"] == "estimated"} - {None}
        name = estimates[0].machine if estimates else ""
        self.text.value = warning_html(" ".join(map(str, estimates))) if estimates else ""
        machine = machines.known(name)
        if machine is not None and digests and machine.digest not in digests:
            self.text.value += note_html(f"{name} was calibrated since: new runs have other estimates.")
            machine = None
        self._of_run = name if machine is not None else ""
        self._offer()

    def look(self) -> None:
        """Shows the state of the lab's own calibration; called every few seconds, before any run, too."""
        state = lab_calibration()
        if state is not None:
            machine = machines.known(state.machine)
            if machine is not None and machine.calibrated is not None:  # by a person, meanwhile
                state = None
        draw = {WAITING: warning_html, RUNNING: note_html, FAILED: refusal_html}
        known = self.lab.value if state is None and RENEWED in self.lab.value else ""
        text = draw.get(state.state, note_html)(state.message) if state is not None else known
        name = state.machine if state is not None and state.state != RUNNING else ""
        if (text, name) != (self.lab.value, self._of_lab):
            self.lab.value, self._of_lab = text, name
            self._offer()

    def compare(self, machine: Machine, *, timed: bool) -> None:
        """Says that estimates are new where *machine* is not as it was drawn last; *timed*: the page has measured rows.

        Called whenever the page draws estimates of *machine*.
        """
        before = self._digests.get(machine.name)
        self._digests[machine.name] = machine.digest
        if before not in (None, machine.digest):
            since = f"calibrated {machine.calibrated}" if machine.calibrated else "not calibrated any more"
            kept = " What was measured stays, with the estimates of its time." if timed else ""
            self.lab.value = note_html(f"{machine.name} is {since}. {RENEWED}{kept}")

    def is_new(self, machine: Machine) -> bool:
        """Whether *machine* is not as it was when the page drew its estimates."""
        return self._digests.get(machine.name, machine.digest) != machine.digest

    def _offer(self) -> None:
        self.button.layout.display = SHOWN if (self._of_run or self._of_lab) and not self._busy else HIDDEN

    def start(self) -> None:
        """Starts the calibration, and returns at once."""
        name = self._of_run or self._of_lab
        if self._busy or not name:
            return
        self._busy = True
        self._stop.clear()
        self._offer()
        threading.Thread(target=self._work, args=(name,), name="workbench calibrate", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def _work(self, name: str) -> None:
        result, label = "", CALIBRATE
        try:
            result = self._fit(name)
            self._of_run = self._of_lab = ""
        except BusyComputer as error:
            result, label = refusal_html(str(error)), ANYWAY
        except (UnsoundFit, ValueError, OSError, RuntimeError) as error:
            result = refusal_html(str(error))
        finally:
            self._busy = False
            if not self._stop.is_set():  # otherwise the page and its store were closed meanwhile
                self._done()
                self.text.value, self.button.description = result, label
                self.lab.value = "" if RENEWED in result else self.lab.value
                self._offer()

    def _fit(self, name: str) -> str:
        """Calibrates the machine *name*, and returns the message to show."""
        on_cpus = machines.machine(name).backend == "cpu"
        takes = FULL_SECONDS if on_cpus else GPU_SECONDS
        self.text.value = note_html(f"Calibrating {name}: about {takes:.0f} s. Measure nothing meanwhile.")
        insists = self.button.description == ANYWAY
        if on_cpus:
            busy = INSIST if insists else REFUSE
            calibrate(self._find(), FULL_SECONDS, self._stop, name=name, busy=busy)
        else:
            calibrate_here(name, GPU_SECONDS, busy=insists)
        fitted = note_html(f"{name} is calibrated. {RENEWED} Estimates from before a run stay with its measurements.")
        distrusted = machines.distrusted(machines.machine(name))
        if not distrusted:
            return fitted
        count = "1 value is" if len(distrusted) == 1 else f"{len(distrusted)} values are"
        return fitted + warning_html(f"{count} not to be trusted, since others used the cores meanwhile "
                                     f"({next(iter(distrusted.values()))}).")  # fmt: skip


# The form starts with the machine of the measuring ranks: a description that fits them, or a new one.


def begin_with(question: QuestionForm, workers: Workers | None, find: Callable[[], Cluster]) -> None:
    """Sets the machine of *question* to that of *workers* if it is the default one and does not fit them.

    A machine that a person chose stays, and is refused with the name of the one that fits.
    """
    machine = question.machine_value
    if not workers or machine.name != LAPTOP or Availability(True, workers).machine_refusal(machine) is None:
        return
    backend = "triton" if all(worker.backend == "triton" for worker in workers.here) else "cpu"
    try:
        theirs = matching.cluster_site(find(), backend)
        if theirs is not None:
            question.choose_machine(matching.saved_machine(theirs).name)
    except (ValueError, OSError, RuntimeError, TimeoutError):  # the form shows why its machine is refused
        return


# The three ways to begin: the cluster measures, the simulator estimates, or a recording is replayed.

MEASURE, SIMULATE, REPLAY = "cluster", "simulator", "recordings"
SOURCES = (("This computer", MEASURE), ("A machine I do not have", SIMULATE), ("Recorded GPUs", REPLAY))
TOOLTIPS = (
    "Measure on the cluster's ranks, by default those of this computer",
    "Simulate: estimates are played on a machine's description, and nothing is timed",
    "Replay: recorded runs, of H200s or your own, as if they were live",
)
SPEEDS = (("as it was", 1.0), ("10 times as fast", 10.0), ("at once", float("inf")))
OWN_RUNS_MOST = 20
"""The most runs of this person that are offered for replay."""


class SourceChoice:
    """The buttons `source` of the ways to begin, and the controls `replay` of a recording; `run_for` makes a run."""

    def __init__(self, store: Store, find: Callable[[], Cluster], ranks: Callable[[int, str], Ranks | None],
                 wait_s: Callable[[], float]) -> None:  # fmt: skip
        """*wait_s* gives how long a run may wait for ranks, in seconds, when it begins."""
        self._store, self._find, self._ranks, self._wait_s = store, find, ranks, wait_s
        self._listeners: list[Callable[[], Any]] = []
        self._read: tuple[Any, list[Recorded]] | None = None
        self.source = one_of(SOURCES, MEASURE, "wb-source", TOOLTIPS)
        self.source.layout.flex = "0 0 auto"
        self.recording = dropdown("Recording", [], "wb-recording")
        self.about = html("wb-recording-about")
        self._abouts: dict[Any, str] = {}
        """By choice of recording, what the page says of it."""
        self.whole = tick("Play all of it, not just this question", "wb-replay-all", value=True)
        self.speed = dropdown("Speed", SPEEDS, "wb-replay-speed")
        self.replay = ipywidgets.VBox(
            [self.recording, self.about, self.speed, self.whole], layout=ipywidgets.Layout(display=HIDDEN)
        )
        self.source.observe(self._source_changed, "value")
        self.recording.observe(self._recording_changed, "value")
        self.whole.observe(self._notify, "value")

    @property
    def value(self) -> str:
        """MEASURE, SIMULATE or REPLAY."""
        return str(self.source.value)

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    def recorded(self) -> list[Recorded]:
        """The chosen recording; ValueError if there is none, or it is empty."""
        if not self.recording.options:  # whoever hears of Replay first may be called before they are offered
            self.offer()
        if self.recording.value is None:
            raise ValueError(
                "There is nothing to replay: 0 recordings and 0 measured runs have a whole schedule. Accepted: measure "
                "something first, or put a recording (a .jsonl file) into data/recordings."
            )
        kind, name = self.recording.value
        return recordings.recordings(name) if kind == "shipped" else recordings.recordings_of_run(self._store, name)

    def refusal(self, question: FormQuestion, machine: Machine) -> str | None:
        """Why *question* cannot be replayed, or None; a sweep replays whatever was recorded of it."""
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
        """The chosen recording, which is read once."""
        if self._read is None or self._read[0] != self.recording.value:
            self._read = self.recording.value, self.recorded()
        return self._read[1]

    def only_replay(self) -> None:
        """Leaves one way to begin, recordings, which are played at once."""
        self.source.value, self.speed.value = REPLAY, SPEEDS[-1][1]
        for control in (self.source, self.speed):
            control.layout.display = HIDDEN

    def run_for(self, question: FormQuestion, machine: Machine) -> StoredRun:
        """The run that the button Run iterates; ValueError with a message if there cannot be one."""
        if self.value == REPLAY and self.whole.value:
            return self._replay_of(self.recorded())
        return experiment_run(question.experiment(machine), self._store, self._answer(machine, question.fresh), machine)

    def run_together(self, rows: Sequence[Row]) -> StoredRun:
        """The run that times *rows* in turns on the cluster; ValueError with a message if there cannot be one."""
        experiment = together(rows)
        if experiment is None:
            raise ValueError("These schedules do not fit into one block. Accepted: a sweep of them, with fresh times.")
        return self.run_of(experiment)

    def run_of(self, experiment: Experiment) -> StoredRun:
        """The run that measures *experiment* on the cluster; ValueError with a message if there cannot be one."""
        answer = FromCluster(self._find(), wait_s=self._wait_s(), shared=not experiment.fresh)
        return experiment_run(experiment, self._store, answer, machines.machine(experiment.machine))

    def _replay_of(self, recorded: list[Recorded]) -> Replay:
        trial = recorded[0].measurement.trial if recorded else None
        machine = machines.known(trial.machine) if trial else None
        _, name = self.recording.value
        return Replay(recorded, self._store, machine=machine, speed=self.speed.value, title=f"replay of {name}")

    def _answer(self, machine: Machine, fresh: bool) -> Answer:
        match self.value:
            case "simulator":
                return FromSimulator(machine, self._ranks)
            case "recordings":
                return FromRecordings(self.recorded(), self.speed.value)
        return FromCluster(self._find(), wait_s=self._wait_s(), shared=not fresh)

    def _source_changed(self, _: Any) -> None:
        replay = self.value == REPLAY
        self.replay.layout.display = SHOWN if replay else HIDDEN
        if replay:
            self.offer()
        self._notify()

    def offer(self) -> None:
        """Offers what can be replayed: shipped recordings, the most instructive first, then this person's newest runs.

        Those without a whole schedule are left out: charts would stay empty.
        """
        self._read = None
        if not self.recording.options:
            self.about.value = note_html("Reading the recordings.")
        shipped = [
            (each.name, ("shipped", each.name), each.question, each.schedules) for each in recordings.summaries()
        ]
        runs = [(f"{run['title'] or 'run'}, {run['run']}", ("own", run["run"]), "Your own run.", run["schedules"])
                for run in replayable(self._store, OWN_RUNS_MOST)]  # fmt: skip
        offered = [*shipped, *runs]
        self._abouts = {value: f"{question} It has {_counted(count)}.".strip() for _, value, question, count in offered}
        options = tuple((f"{label} ({_counted(count)})", value) for label, value, _, count in offered)
        if tuple(self.recording.options) != options:
            self.recording.options = options
            self.recording.value = options[0][1] if options else None
        self._describe()

    def _describe(self) -> None:
        self.about.value = note_html(self._abouts.get(self.recording.value, ""))

    def _recording_changed(self, _: Any) -> None:
        self._describe()
        self._notify()

    def _notify(self, _: Any = None) -> None:
        for listener in self._listeners:
            listener()


def _counted(count: int) -> str:
    return "1 whole schedule" if count == 1 else f"{count:,} whole schedules"
