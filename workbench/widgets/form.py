"""The form of a question: it offers only what is legal, and says why the rest is not."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, TypeVar

import ipywidgets

from cluster.seating import Workers
from cluster.watchdog import WAIT_S
from kernels import backends, schemes
from kernels.backends import capabilities
from kernels.fabric import KINDS, MOST_SHARING, SHARED_GPU, TIMES_ARE_NOT, Fabric, parse, sharing_mismatch
from kernels.machine import BACKENDS, Machine
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import COMPARED, SCHEMES, axis_rules
from kernels.trial import PROTOCOLS, Trial
from kernels.units import DTYPE_BYTES
from workbench import machines
from workbench.charts.labels import LINKS, fabric_label
from workbench.experiment.experiment import Search
from workbench.experiment.form import SCHEME, FormQuestion
from workbench.experiment.sources import share_memory
from workbench.machines import machine as machine_named
from workbench.machines import matching
from workbench.results.rows import Row
from workbench.widgets.controls import (
    FILLING,
    HIDDEN,
    SHOWN,
    QuietControls,
    choice_or_label,
    dropdown,
    fold,
    group,
    html,
    marked,
    number_line,
    one_of,
    refusal_html,
    side_by_side,
    sizes_html,
    sweep_tick,
    tick,
    unavailable_html,
    wide,
)
from workbench.widgets.form_fields import AxisRows, ProblemForm, Unavailable, is_number_line

# Why Run would be refused: reasons of the scheme, the cluster's workers and the backend, known before it is pressed.

Choice = TypeVar("Choice", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Availability:
    """Which questions one source can answer: legal ones, and if it measures, those for which ranks are available."""

    measures: bool = False
    workers: Workers | None = None
    """None until a cluster was found."""

    def seats(self, machine: Machine, *, share_gpu: bool = False) -> int:
        """The most ranks that may be requested: as many as the cluster can seat, and the machine or a GPU takes."""
        known, most = self.workers if self.measures else None, MOST_SHARING if share_gpu else machine.max_world
        seats = known.seats(machine.backend) if known is not None else 0
        return min(seats or most, most)

    def offers_sharing(self, machine: Machine, world: int) -> bool:
        """Whether the workers have GPUs, but fewer than *world*, so that ranks may share one."""
        known = self.workers if self.measures else None
        return machine.backend == "triton" and known is not None and 0 < known.gpus < world

    def refusal(self, question: FormQuestion, machine: Machine) -> str | None:
        """Why *question* cannot be answered, or None."""
        try:
            trial = question.trial(machine)
        except Refusal as refusal:
            return str(refusal)
        return self._hardware_refusal(machine, trial.world) or self._ranks_refusal(trial)

    def machine_refusal(self, machine: Machine) -> str | None:
        """Why no question about *machine* can be answered, or None."""
        known = self.workers if self.measures else None
        unseated = known.refusal(1, machine.backend, shares_heap=True) if known is not None else None
        return unseated or self._hardware_refusal(machine, 1)

    def _hardware_refusal(self, machine: Machine, world: int) -> str | None:
        """Why the cluster's ranks do not match *machine*, or None."""
        ranks = self.workers.ranks(world, machine.backend) if self.measures and self.workers is not None else None
        return None if ranks is None else matching.refusal(machine, ranks.hardware, world)

    def scheme_refusal(self, question: FormQuestion, scheme: str, machine: Machine) -> str | None:
        """Why no schedule of *scheme* can be run, or None."""
        plain = replace(question, scheme=scheme, values=())
        message = self.refusal(plain, machine)
        return None if message is None or self.fitting(plain, machine) is not None else message

    def link_refusal(self, question: FormQuestion, link: str, machine: Machine) -> str | None:
        """Why no scheme can be run over *link*, or None."""
        messages = []
        for scheme in schemes.SCHEMES:
            message = self.refusal(replace(question, fabric=link, scheme=scheme, values=()), machine)
            if message is None:
                return None
            messages.append(message)
        return messages[0]

    def value_refusals(self, question: FormQuestion, axis: Axis, machine: Machine) -> dict[Value, str | None]:
        """By value of *axis*, why the ranks cannot run the scheme's default schedule with it; None where they can."""
        if not self.measures:
            return {}
        try:
            usual = self.fitting(question, machine) or replace(question, values=()).schedule(machine)
        except Refusal:
            return {}
        refused = capabilities.refused_values(question.problem(), usual, axis, self._ranks(question, machine))
        return {value: refused.get(value) for value in axis.values}

    def fitting(self, question: FormQuestion, machine: Machine) -> Schedule | None:
        """A schedule that the ranks can run, if they refuse the legal default one; otherwise None."""
        if not self.measures:
            return None
        try:
            usable = capabilities.fitting(question.problem(), question.scheme, self._ranks(question, machine))
        except Refusal:
            return None
        return None if usable == replace(question, values=()).schedule(machine) else usable

    def _ranks(self, question: FormQuestion, machine: Machine) -> capabilities.MeasuringRanks:
        return capabilities.MeasuringRanks(machine, question.link())

    def _ranks_refusal(self, trial: Trial) -> str | None:
        if not self.measures:
            return None
        shares = share_memory([trial])
        known = self.workers
        unseated = None if known is None else known.refusal(trial.world, trial.backend, shares, trial.across)
        if unseated is None and known is not None:
            unseated = sharing_mismatch(trial.fabric, trial.backend, known.ranks_on_gpu(trial.world, trial.backend))
        return unseated or backends.refusal(trial, shares)


def refused_choices(messages: Mapping[Choice, str | None]) -> dict[Choice, str]:
    """The refused choices with their reasons; empty if all are refused, since then the reason lies elsewhere."""
    refused = {choice: message for choice, message in messages.items() if message is not None}
    return refused if len(refused) < len(messages) else {}


# The form: its controls, its question, and what follows from a change.

WAITS = (("30 s", 30.0), ("2 min", 120.0), ("10 min", WAIT_S), ("1 hour", 3600.0), ("12 hours", 43200.0))
"""Choices of how long a run may wait for ranks, in seconds."""
RATIOS = (0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
EMULATED = "emulated"
TWO_HOSTS = "emulated:hosts=2"
RATIO = "wire_to_compute"
SHARE = "Share this GPU"
EVERYTHING = "exhaustive"
SEARCHES = (("all", EVERYTHING), ("random", "random"), ("best estimates", "estimate_first"), ("Optuna", "optuna"))
"""Titles and kinds of `Search`."""
BUDGET_S = 60.0
"""The seconds of a search that has to end."""


@dataclass(frozen=True, slots=True)
class FormState:
    """The complete state of the form, to restore it later."""

    question: FormQuestion
    machine: str
    preset: str

    def to_json(self) -> dict[str, Any]:
        return {"question": self.question.to_json(), "machine": self.machine, "preset": self.preset}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FormState:
        """The inverse of `to_json`; ValueError, KeyError or TypeError of anything else."""
        return cls(FormQuestion.from_json(data["question"]), str(data["machine"]), str(data["preset"]))


class QuestionForm(QuietControls):
    """The controls of one question: `question` is its state; listeners of `on_change` are called after every change."""

    def __init__(self, default_preset: str, machine: str) -> None:
        self._listeners: list[Callable[[], Any]] = []
        self._values: dict[str, dict[str, Value]] = {}
        self._swept: set[str] = set()
        self.availability = Availability()
        """Which questions can be answered; the explorer updates it with `set_availability`."""
        self.refused: dict[str, dict[Any, str]] = {}
        """By the class name of a control: its refused choices, each with its reason."""
        self._last_judged: object = None
        self.axes = AxisRows(self._set_axis, self._set_sweep)
        self.problem = ProblemForm(default_preset, machine_named(machine))
        self._build(machine)
        links = (self.ratio, self.fabric, self.share_gpu)
        ticks = (self.sweep_schemes, self.fresh)
        self.search.observe(self._search_changed, "value")
        for control in (self.scheme, *links, self.protocol, *ticks, self.search, self.budget):
            control.observe(self._changed, "value")
        self.machine.observe(self._machine_changed, "value")
        self.problem.on_change(self._problem_changed)
        self._refresh()

    # Its look.

    def _build(self, machine: str) -> None:
        self.scheme = one_of(list(SCHEMES), "fused", "wb-scheme", [scheme.idea for scheme in SCHEMES.values()])
        self.sweep_schemes = sweep_tick("wb-sweep-schemes", "compare all schemes")
        self.ratio = number_line("Wire : compute", RATIOS, 1.0, "wb-ratio")
        self.ratio.tooltip = (
            "How long the wire takes for the bytes that must cross it, as a multiple of the computation"
        )
        self.drawn_ratio = html("wb-drawn-ratio")
        self.share_gpu = tick(SHARE, "wb-share-gpu")
        self.share_gpu.tooltip = f"All ranks on one GPU, where there are fewer GPUs than ranks. {TIMES_ARE_NOT}"
        self.sizes, self.refusal = html("wb-sizes-shown"), html("wb-refusal")
        self.machine = dropdown("Machine", _machines(), "wb-machine", value=machine)
        self.fabric = dropdown("Link", _links(machine_named(machine)), "wb-fabric")
        self.protocol = dropdown("Protocol", [(_protocol_label(p), p) for p in PROTOCOLS], "wb-protocol", "quick")
        self.fresh = tick("Measure again what is known", "wb-fresh")
        self.wait = dropdown("Wait for ranks", WAITS, "wb-wait", WAIT_S)
        self.wait.tooltip = "Give up when no ranks are granted within this time"
        self.unavailable, self.elsewhere = Unavailable(), html("wb-elsewhere")
        self.search = dropdown("Search", _searches(), "wb-search", EVERYTHING)
        self.search.layout, self.search.style = ipywidgets.Layout(**FILLING), {"description_width": "46px"}
        self.search.tooltip = "Which of the swept schedules are run, and in what order"
        self.budget = marked(
            ipywidgets.BoundedFloatText(
                value=0, min=0, max=86400, description="for (s)", style={"description_width": "44px"},
                tooltip="Seconds after which no further block begins; 0: no limit",
                layout=ipywidgets.Layout(width="104px", flex="0 0 auto", margin="1px 0 1px 6px"),
            ),
            "wb-budget",
        )  # fmt: skip
        question = [self.problem.view, self.machine, self.ratio, self.drawn_ratio, self.share_gpu, self.sizes]
        searching = marked(side_by_side(self.search, self.budget), "wb-searching")
        self.question_group = group("Question", "wb-group-question", question)
        self.schedule_group = group("Schedule", "wb-group-schedule", [self.scheme, self.axes.basic, self.unavailable])
        self.sweep_group = group("Sweep", "wb-group-sweep", [searching], [self.sweep_schemes])
        chosen = [self.problem.world, self.problem.dtype, self.fabric, self.protocol]
        advanced = [*map(choice_or_label, chosen), self.axes.advanced, self.wait, self.fresh, self.elsewhere]
        inside = marked(ipywidgets.VBox(advanced, layout=wide()), "wb-advanced")
        self.more = fold("Advanced", "wb-more", inside)
        self.advanced = ipywidgets.VBox([self.more, inside], layout=wide())

    # Its question.

    @property
    def machine_value(self) -> Machine:
        return machine_named(self.machine.value)

    @property
    def question(self) -> FormQuestion:
        """The question in the form, which may be illegal."""
        with self._lock:
            return FormQuestion(
                operator=self.problem.operator.value,
                shape=self.problem.shape,
                dtype=self.problem.dtype.value,
                world=self.problem.world.value,
                scheme=self.scheme.value,
                values=tuple((scheme, tuple(values.items())) for scheme, values in self._values.items()),
                fabric=self._fabric_text(),
                protocol=self.protocol.value,
                swept=tuple(sorted(self._swept | ({SCHEME} if self.sweep_schemes.value else set()))),
                fresh=self.fresh.value,
                compared=tuple(name for name in COMPARED if name not in self.refused.get("wb-scheme", {})),
                search=self._search(),
            )

    def _search(self) -> Search:
        """The search; one that needs a budget and has none keeps the usual one."""
        budget_s = float(self.budget.value) or None
        if budget_s is None and self.search.value != EVERYTHING:
            budget_s = BUDGET_S
        return Search(kind=self.search.value, budget_s=budget_s)

    @property
    def _machine_names(self) -> list[str]:
        """Names of the offered machines."""
        return [name for _, name in self.machine.options]

    def _fabric_text(self) -> str:
        if self.share_gpu.value:
            return SHARED_GPU
        text = str(self.fabric.value)
        return f"{text}{',' if ':' in text else ':'}{RATIO}={self.ratio.value:g}" if _takes_ratio(text) else text

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    # Setting its content.

    def load(self, scheme: str, values: Mapping[str, Value]) -> None:
        """Sets the form to a schedule, as a click on the landscape does.

        Only values that differ from the defaults count as set; the others follow the defaults of a later problem.
        """
        with self._silently():
            plain = _complete(replace(self.question, scheme=scheme, values=()), self.machine_value) or {}
            self._values[scheme] = {name: value for name, value in values.items() if plain.get(name) != value}
            if _complete(replace(self.question, scheme=scheme), self.machine_value) != dict(values):
                self._values[scheme] = dict(values)
            self._swept.clear()
            self.sweep_schemes.value = False
            self.scheme.value = scheme
        self._changed()

    def load_row(self, row: Row, *, protocol: bool = True) -> None:
        """Sets the form to problem, machine, link and schedule of *row*, as restoring a run does."""
        with self._silently():
            if row["machine"] in self._machine_names:
                self.machine.value = row["machine"]
            self.problem.load(row["operator"], row["shape"], row["world"], row["dtype"])
            self._load_link(str(row["fabric"]))
            if protocol and row["protocol"] in PROTOCOLS:
                self.protocol.value = row["protocol"]
        self.load(row["scheme"], row["axes"])

    @property
    def wait_s(self) -> float:
        """How long a run may wait for ranks, in seconds."""
        return float(self.wait.value)

    def wait_at_most(self, seconds: float) -> None:
        """Sets how long a run may wait for ranks; ValueError if that is less than a second."""
        if not seconds >= 1:
            raise ValueError(f"wait_s = {seconds:g} is too short: {seconds:g} < 1. Accepted: 1 second or more.")
        if seconds not in [value for _, value in self.wait.options]:
            self.wait.options = (*self.wait.options, (f"{seconds:g} s", float(seconds)))
        self.wait.value = float(seconds)

    def choose_machine(self, name: str) -> None:
        """Chooses the machine *name*, which is added to the list if it is new."""
        if name not in self._machine_names:
            self.machine.options = (*self.machine.options, (machine_named(name).title, name))
        self.machine.value = name

    @property
    def state(self) -> FormState:
        """The complete state of the form."""
        return FormState(self.question, str(self.machine.value), str(self.problem.preset.value))

    def restore(self, state: FormState) -> None:
        """Sets the form to an earlier *state*."""
        question = state.question
        with self._silently():
            self.machine.value = state.machine
            self.problem.load(
                question.operator, dict(question.shape), question.world, question.dtype, preset=state.preset
            )
            self._load_link(question.fabric)
            self.scheme.value, self.protocol.value, self.fresh.value = (
                question.scheme,
                question.protocol,
                question.fresh,
            )
            self._values = {scheme: dict(values) for scheme, values in question.values}
            self._swept = set(question.swept) - {SCHEME}
            self.sweep_schemes.value = SCHEME in question.swept
            if question.search.kind in [kind for _, kind in self.search.options]:
                self.search.value = question.search.kind
            self.budget.value = question.search.budget_s or 0.0
        self._changed()

    def _load_link(self, text: str) -> None:
        """Chooses the link *text*, which is added to the list if it is missing; ranks that share a GPU have a tick."""
        fabric = parse(text)
        self.share_gpu.value = fabric.shares_gpu
        if fabric.shares_gpu:
            return
        if fabric.wire_to_compute is not None:
            if fabric.wire_to_compute not in self.ratio.options:
                self.ratio.options = sorted({*self.ratio.options, fabric.wire_to_compute})
            self.ratio.value, text = fabric.wire_to_compute, _without_ratio(fabric)
        if text not in [value for _, value in self.fabric.options]:
            self.fabric.options = (*_links(self.machine_value), (fabric_label(text), text))
        self.fabric.value = text

    # Changes.

    def _search_changed(self, change: Any) -> None:
        """Only a search of everything may go on without a limit."""
        if not self._quiet and change["new"] != EVERYTHING and not self.budget.value:
            with self._silently():
                self.budget.value = BUDGET_S

    def _problem_changed(self, operator_changed: bool) -> None:
        with self._lock:
            if operator_changed:
                self._values.clear()
                self._swept.clear()
            for values in self._values.values():
                values.pop("tile", None)  # a tile was chosen for the earlier sizes
        self._changed()

    def _machine_changed(self, _: Any) -> None:
        """Offers the links of another machine, and the problems that suit it."""
        machine = self.machine_value
        with self._silently():
            self.fabric.options = _links(machine)
            self.share_gpu.value = self.share_gpu.value and machine.backend == "triton"
            self._values.clear()
            self.problem.move_to(machine)
        self._changed()

    def _changed(self, _: Any = None) -> None:
        if self._quiet:
            return
        self._refresh()
        for listener in self._listeners:
            listener()

    def set_availability(self, availability: Availability) -> None:
        """Sets which questions can be answered, after a change of source or cluster. Calls no listeners."""
        if availability != self.availability:
            self.availability = availability
            self._refresh()

    def _refresh(self) -> None:
        """Offers legal choices, greys out refused ones, and shows why the current question is refused, if it is."""
        with self._silently():
            self.ratio.layout.display = SHOWN if _takes_ratio(str(self.fabric.value)) else HIDDEN
            machine = self.machine_value
            self.problem.seat(self.availability.seats(machine, share_gpu=self.share_gpu.value))
            offers = self.share_gpu.value or self.availability.offers_sharing(machine, self.problem.world.value)
            self.share_gpu.layout.display = SHOWN if offers else HIDDEN
            try:
                self._offer_legal(machine)
            except Refusal as refusal:  # while the kernel's thread changes it, a question may fit no operator
                self.refusal.value = refusal_html(str(refusal))

    def _offer_legal(self, machine: Machine) -> None:
        """Offers what is legal for the question in the form; Refusal if the question itself is not."""
        question = self.question
        self.sizes.value = sizes_html(question.problem())
        known = question.axes(machine)
        self._find_refused_choices(known)
        values = self._values.setdefault(self.scheme.value, {})
        for name in [name for name, value in values.items() if not _accepts(known, name, value)]:
            del values[name]
        self._fit(values)
        complete = _complete(self.question, machine) or values
        ignored = self.question.ignored_axes(self.scheme.value, machine)
        shown = [axis for axis in self._offered(known) if axis.name not in ignored and _has_choice(axis, complete)]
        self.axes.offer(self.scheme.value, shown, complete, self._swept)
        self._show_unavailable()
        message = self.availability.refusal(self.question, machine)
        self.refusal.value = refusal_html(message) if message else ""

    def _fit(self, values: dict[str, Value]) -> None:
        """Takes the schedule of a scheme that the ranks can run, if they refuse its default."""
        question, machine = self.question, self.machine_value
        if not values and self.availability.refusal(question, machine) is not None:
            fitting = self.availability.fitting(question, machine)
            plain = _complete(question, machine) or {}
            if fitting is not None:
                values.update({name: value for name, value in fitting.axes if plain.get(name) != value})

    def _offered(self, known: Sequence[Axis]) -> list[Axis]:
        """The *known* axes; refused values of those on a slider are omitted, since a slider cannot grey them out."""
        offered = []
        for axis in known:
            refused = self.refused.get(f"wb-axis-{axis.name}", {})
            values = tuple(value for value in axis.values if value not in refused)
            offered.append(replace(axis, values=values) if is_number_line(axis) else axis)
        return offered

    def _find_refused_choices(self, known: Sequence[Axis]) -> None:
        """Finds the refused choices of all controls: once for each problem, not whenever a slider moves."""
        machine, availability = self.machine_value, self.availability
        link = SHARED_GPU if self.share_gpu.value else str(self.fabric.value)
        question = replace(self.question, values=(), swept=(), fresh=False, fabric=link, compared=())
        if (question, machine, availability) == self._last_judged:
            return
        self._last_judged = (question, machine, availability)
        choices: dict[str, dict[Any, str | None]] = {
            "wb-scheme": {name: availability.scheme_refusal(question, name, machine) for name in SCHEMES},
            "wb-dtype": {name: availability.refusal(replace(question, dtype=name), machine) for name in DTYPE_BYTES},
            "wb-world": {world: self._world_refusal(question, world) for world in self.problem.world.options},
            "wb-machine": {
                each.name: availability.machine_refusal(each)
                for each in filter(None, map(machines.known, self._machine_names))
            },
            "wb-fabric": {text: availability.link_refusal(question, text, machine) for _, text in self.fabric.options},
        }
        choices |= {f"wb-axis-{axis.name}": availability.value_refusals(question, axis, machine) for axis in known}
        self.refused = {mark: refused for mark, messages in choices.items() if (refused := refused_choices(messages))}

    def _world_refusal(self, question: FormQuestion, world: int) -> str | None:
        try:
            shape = self.problem.shape_for(world)
        except Refusal as refusal:
            return str(refusal)
        return self.availability.refusal(replace(question, world=world, shape=shape), self.machine_value)

    def _show_unavailable(self) -> None:
        controls = {
            "wb-scheme": self.scheme,
            "wb-dtype": self.problem.dtype,
            "wb-world": self.problem.world,
            "wb-machine": self.machine,
            "wb-fabric": self.fabric,
            **{f"wb-axis-{name}": made.control for name, made in self.axes.rows.items()},
        }
        self.unavailable.show(self.refused, controls)
        self.elsewhere.value = unavailable_html(self.unavailable.by_reason)
        swept = ", ".join(self.question.compared)
        self.sweep_schemes.tooltip = f"Try every scheme, side by side: {swept}"

    def _set_axis(self, name: str, value: Value) -> None:
        with self._lock:
            self._values.setdefault(self.scheme.value, {})[name] = value
        self._changed()

    def _set_sweep(self, name: str, wanted: bool) -> None:
        with self._lock:
            (self._swept.add if wanted else self._swept.discard)(name)
        self._changed()


def _searches() -> list[tuple[str, str]]:
    """The searches that can be made here: Optuna is an extra of the installation."""
    return [(title, kind) for title, kind in SEARCHES if kind != "optuna" or find_spec("optuna") is not None]


def _complete(question: FormQuestion, machine: Machine) -> dict[str, Value] | None:
    """All axes of the schedule that Run would take, or None: unset ones may follow from the others."""
    try:
        return axis_rules.all_axes(question.problem(), question.schedule(machine), machine.backend)
    except Refusal:
        return None


def _accepts(known: tuple[Axis, ...], name: str, value: Value) -> bool:
    return any(axis.name == name and axis.refusal(value) is None for axis in known)


def _machines() -> list[tuple[str, str]]:
    """Titles and names of all readable machines."""
    return [(each.title, each.name) for each in machines.readable()]


def _links(machine: Machine) -> tuple[tuple[str, str], ...]:
    """Labels and texts of all links, those usual for the machine's ranks first."""
    usual = BACKENDS[machine.backend]
    kinds = sorted(KINDS, key=lambda kind: usual.index(kind) if kind in usual else len(usual))
    links = [(LINKS[kind], kind) for kind in kinds if kind != SHARED_GPU]  # it has a tick of its own
    if EMULATED in usual:
        links.insert(1, (fabric_label(TWO_HOSTS), TWO_HOSTS))
    return tuple(links)


def _takes_ratio(text: str) -> bool:
    """Whether the form's ratio sets the bandwidth of a link."""
    return text.startswith(EMULATED) and RATIO not in text and "bandwidth_bytes_per_second" not in text


def _without_ratio(fabric: Fabric) -> str:
    """The form's text for *fabric* without its ratio."""
    if fabric.hosts == 1:
        return EMULATED
    two = replace(parse(TWO_HOSTS), wire_to_compute=fabric.wire_to_compute)
    return TWO_HOSTS if fabric.as_requested == two else str(replace(fabric.as_requested, wire_to_compute=None))


def _has_choice(axis: Axis, values: Mapping[str, Value]) -> bool:
    """Whether *axis* has another value than the one that is taken, so that it is worth a row of the form."""
    return axis.open or bool({*axis.values} - {values.get(axis.name, axis.default)})


def _protocol_label(name: str) -> str:
    known = PROTOCOLS[name]
    each = ", one call per graph (GPUs)" if known.calls_per_graph == 1 else ""
    each += f", each after {known.load_seconds:g} s of load (GPUs)" if known.is_steady else ""
    return f"{name}: {known.repeats} samples after {known.warmups} warm-ups{each}"
