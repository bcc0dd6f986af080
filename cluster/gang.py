"""For whom a request waits, in words: who is before it, who holds the workers, which of them are starting or away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.gang_messages import (
    ClientGone,
    Command,
    DoomMessage,
    EndMessage,
    Event,
    GrantMessage,
    Heartbeat,
    Hello,
    Kill,
    RankFailed,
    RankGone,
    RankReady,
    RankSeat,
    RefusalMessage,
    ReleaseMessage,
    RequestMessage,
    Tick,
    WorkerAnswers,
    WorkerJoined,
    WorkerLeft,
    WorkerSees,
    WorkerSilent,
)
from cluster.gang_messages import (
    GpuMessage as GangMessagesDealt,
)
from cluster.hosts import Gpu
from cluster.seating import Workers, may, natural, room, turns

# Which worker has which GPU: one each at most, by UUID, dealt before its rank process starts, kept until it leaves.

Dealt = tuple[str, Gpu | None]
"""A worker, and the GPU that it has; None: its ranks are CPU ranks."""


class GpuDealer:
    """All GPUs of one cluster. A GPU is known by its UUID, so that hosts, containers and pods need no names here."""

    def __init__(self) -> None:
        self._has: dict[str, Gpu | None] = {}
        self._undecided: dict[str, Sequence[Gpu]] = {}

    def sees(self, worker: str, gpus: Sequence[Gpu]) -> list[Dealt]:
        """What *worker* gets of *gpus*, if that is decided at once: it asks again, or it has no choice.

        A worker that may have any of several waits for the next `decide`: others that come meanwhile may depend on one.
        """
        if worker not in self._has and len(gpus) > 1:
            self._undecided[worker] = gpus
            return []
        return [self._deal(worker, gpus)]

    def decide(self) -> list[Dealt]:
        """What those get that had a choice: who has the fewest to choose from goes first, then who came first."""
        waiting, self._undecided = self._undecided, {}
        return [self._deal(worker, waiting[worker]) for worker in sorted(waiting, key=lambda name: len(waiting[name]))]

    def back(self, worker: str) -> None:
        """*worker* has left: its GPU is for the next one that asks."""
        self._has.pop(worker, None)
        self._undecided.pop(worker, None)

    def _deal(self, worker: str, gpus: Iterable[Gpu]) -> Dealt:
        if worker not in self._has:
            taken = {gpu.uuid for gpu in self._has.values() if gpu is not None}
            # in the worker's own order: dask-cuda turns the list of each worker so that its own GPU comes first
            self._has[worker] = next((gpu for gpu in gpus if gpu.uuid and gpu.uuid not in taken), None)
        return worker, self._has[worker]


# What the gang knows of each worker, client, grant and session, and on whom it can count: plain values.

MOST_DEATHS = 3
"""After so many starts of its rank process that failed in a row nobody counts on a worker, until one succeeds."""
GIVE_UP_S = 14.0
"""So long after its last answer requests count on a worker; it is away sooner (pulse.py)."""
HELD_FACTOR, HELD_LEAST_S = 4.0, 10.0
"""A silent client loses a grant that it has held for so many times what it expected to, and for so long at least."""


@dataclass(slots=True)
class Member:
    """A worker: there, silent, or gone a moment ago."""

    address: str
    name: str
    host: str
    gpu: Gpu | None = None
    incarnation: str | None = None
    hello: Hello = field(default_factory=Hello)
    backend: str = ""
    """Nothing until its rank process said hello once."""
    session: str = ""
    busy: bool = False
    deaths: int = 0
    """Starts of its rank process that failed, in a row."""
    last_death: str = ""
    silent_s: float = 0.0
    """How long it has not answered, once that is too long."""
    left_at: float = 0.0
    """When it left; of one that is there, nothing."""
    lost: bool = False
    """It left, and did not come back in time."""

    @property
    def ready(self) -> bool:
        """Whether a rank process waits there, or is busy."""
        return self.incarnation is not None and not self.silent_s

    @property
    def free(self) -> bool:
        return self.ready and not self.busy

    @property
    def trouble(self) -> str:
        """Why nobody counts on it for now, or nothing: what is only starting will come."""
        if self.lost:
            return "it left the cluster and did not come back"
        if self.silent_s > GIVE_UP_S:
            return f"it has not answered for more than {GIVE_UP_S:.0f} s"
        if self.deaths >= MOST_DEATHS:
            return f"{self.deaths} starts of its rank process failed in a row, the last one: {self.last_death}"
        return ""


@dataclass(slots=True)
class ClientState:
    """A client that asked once."""

    seen: float
    seconds: float
    """Granted seconds of the grants that ended, never below what newcomers start with."""
    sessions: dict[int, str] = field(default_factory=dict)
    """The session last granted, by world."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Who holds which workers; by client and stream."""

    since: float
    places: tuple[RankSeat, ...]
    expected_s: float | None

    def is_overdue(self, at: float) -> bool:
        """Whether its expected time has passed several times over."""
        return self.expected_s is not None and at - self.since > max(HELD_LEAST_S, HELD_FACTOR * self.expected_s)


@dataclass(frozen=True, slots=True)
class BenchSession:
    """Workers whose benches were opened together."""

    workers: tuple[str, ...]
    shares_heap: bool
    across: bool

    def suits(self, request: RequestMessage) -> bool:
        """Whether benches opened for this session can serve the request."""
        opened_for = (len(self.workers), self.shares_heap, self.across)
        return opened_for == (request.world, request.shares_heap, request.across)


# Which client holds which workers: all ranks or none, as a pure state machine without Dask, clock or socket.

SLICE_S = 2.0
"""Seconds of work that a client should put into one grant."""
RELEASED_KEPT_S = 60.0
"""A request and what takes it back come by two connections: one that comes later than its own end is not granted."""
LEFT_KEPT_S = 600.0
"""So long a worker that left is named where it is missed."""


class Gang:
    """All state of the gangs of one cluster."""

    def __init__(
        self,
        prefix: str,
        *,
        lease_s: float = 60.0,
        quiet_s: float = 10.0,
        return_s: float = 20.0,
        patient_s: float = 60.0,
    ) -> None:
        self.prefix = prefix
        """Makes session names unique among the clusters of a machine."""
        self.lease_s = lease_s
        """A client silent for longer loses its grants."""
        self.quiet_s = quiet_s
        """A client silent for longer loses what is overdue, and is granted nothing before it speaks again."""
        self.return_s = return_s
        """A worker that left may come back for so long; requests that need it wait."""
        self.patient_s = patient_s
        """So long a request waits that could be met were all workers well: then it is refused for now."""
        self.workers: dict[str, Member] = {}
        self.grants: dict[tuple[str, str], Grant] = {}
        self.requests: dict[tuple[str, str], RequestMessage] = {}
        self.unmet_since: dict[tuple[str, str], float] = {}
        """Since when a request could be met only were all workers well."""
        self.clients: dict[str, ClientState] = {}
        self.sessions: dict[str, BenchSession] = {}
        self.away: dict[str, Member] = {}
        """Workers that left, by name."""
        self.released: dict[tuple[str, str], float] = {}
        """When what was not known here was given back."""
        self.dealer = GpuDealer()
        self._floor = 0.0
        self._num_sessions = 0

    def handle(self, *events: Event) -> list[Command]:
        """Take the events in order; say what has to be done."""
        commands: list[Command] = []
        for event in events:
            commands += self._take(event)
            commands += self._pump(event.at)
        return commands

    def _take(self, event: Event) -> list[Command]:
        match event:
            case WorkerJoined():
                self.workers[event.worker] = Member(event.worker, event.name, event.host)
                self.away.pop(event.name, None)
            case WorkerSees():
                if event.worker in self.workers:
                    return self._dealt(self.dealer.sees(event.worker, event.gpus))
            case WorkerLeft():
                return self._worker_left(event)
            case WorkerSilent():
                return self._worker_silent(event)
            case WorkerAnswers():
                if worker := self.workers.get(event.worker):
                    worker.silent_s = 0.0
            case RankReady():
                if worker := self.workers.get(event.worker):
                    self._forget_rank(worker)
                    worker.incarnation, worker.hello, worker.backend = event.incarnation, event.hello, event.backend
                    worker.deaths, worker.last_death = 0, ""
            case RankGone():
                worker = self.workers.get(event.worker)
                if worker and worker.incarnation == event.incarnation:
                    self._forget_rank(worker)
            case RankFailed():
                if worker := self.workers.get(event.worker):
                    self._forget_rank(worker)
                    worker.deaths, worker.last_death = worker.deaths + 1, event.sentence
            case RequestMessage():
                self._requested(event)
            case Heartbeat():
                if client := self.clients.get(event.client):
                    client.seen = event.at
            case ReleaseMessage():
                return self._released(event)
            case DoomMessage():
                grant = self.grants.get((event.client, event.stream))
                return self._kill([place for place in grant.places if place.worker == event.worker]) if grant else []
            case ClientGone():
                commands = self._drop(event.client, event.at)
                self.clients.pop(event.client, None)
                return [command for command in commands if isinstance(command, Kill)]
            case Tick():
                return [*self._dealt(self.dealer.decide()), *self._expire(event.at)]
        return []

    def _dealt(self, dealt: Iterable[tuple[str, Gpu | None]]) -> list[Command]:
        commands: list[Command] = []
        for worker, gpu in dealt:
            self.workers[worker].gpu = gpu
            commands.append(GangMessagesDealt(worker, gpu))
        return commands

    # what happens to requests and grants

    def _requested(self, event: RequestMessage) -> None:
        client = self.clients.setdefault(event.client, ClientState(seen=event.at, seconds=0.0))
        client.seen = event.at
        if (event.client, event.stream) in self.released:
            return
        if event.client not in self._active():
            # an hour ago does not count: only those who want workers at the same time are compared
            client.seconds = max(client.seconds, self._floor)
        self.requests[event.client, event.stream] = event

    def _released(self, event: ReleaseMessage) -> list[Command]:
        if client := self.clients.get(event.client):
            client.seen = event.at
        key = (event.client, event.stream)
        if key not in self.grants and self.requests.pop(key, None) is None:
            self.released[key] = event.at
        return self._end(key, event.at, kill=event.spoiled, idle=event.idle)

    def _end(self, key: tuple[str, str], at: float, *, kill: bool, idle: tuple[str, ...] = ()) -> list[Command]:
        """Free the workers of a grant, if there is one; those that are *idle* need no kill."""
        grant = self.grants.pop(key, None)
        if grant is None:
            return []
        self.clients[key[0]].seconds += at - grant.since
        for place in grant.places:
            if worker := self.workers.get(place.worker):
                worker.busy = False
        return self._kill([place for place in grant.places if place.worker not in idle]) if kill else []

    def _kill(self, places: Iterable[RankSeat]) -> list[Command]:
        """End the rank processes of *places*, as far as they are still the same."""
        kills: list[Command] = []
        for place in places:
            worker = self.workers.get(place.worker)
            if worker and worker.incarnation == place.incarnation:
                self._forget_rank(worker)
                kills.append(Kill(place.worker, place.incarnation))
        return kills

    def _drop(self, client: str, at: float, sentence: str = "") -> list[Command]:
        """Take away all that a client waits for and holds."""
        keys = [key for key in (*self.requests, *self.grants) if key[0] == client]
        commands: list[Command] = []
        for key in keys:
            self.requests.pop(key, None)
            commands += [EndMessage(*key, worker=None, sentence=sentence), *self._end(key, at, kill=True)]
        return commands

    def _expire(self, at: float) -> list[Command]:
        self.released = {key: when for key, when in self.released.items() if at - when < RELEASED_KEPT_S}
        self.unmet_since = {key: since for key, since in self.unmet_since.items() if key in self.requests}
        self.away = {name: worker for name, worker in self.away.items() if at - worker.left_at < LEFT_KEPT_S}
        for worker in self.away.values():
            worker.lost = at - worker.left_at > self.return_s
        commands: list[Command] = []
        for client in sorted(self._active()):
            silence = at - self.clients[client].seen
            if silence > self.lease_s:
                sentence = (
                    f"The client said nothing for {silence:.0f} s, longer than the {self.lease_s:.0f} s of its "
                    "lease, so others have its workers now. Ask again."
                )
                commands += self._drop(client, at, sentence)
            elif silence > self.quiet_s:
                commands += self._end_overdue(client, at, silence)
        return commands

    def _end_overdue(self, client: str, at: float, silence: float) -> list[Command]:
        commands: list[Command] = []
        for key, grant in list(self.grants.items()):
            if key[0] == client and grant.is_overdue(at):
                sentence = (
                    f"The client said nothing for {silence:.0f} s and held its ranks for {at - grant.since:.0f} s of "
                    f"{grant.expected_s:.0f} s that it expected, so others have its workers now. Ask again."
                )
                commands += [EndMessage(*key, worker=None, sentence=sentence), *self._end(key, at, kill=True)]
        return commands

    def _worker_left(self, event: WorkerLeft) -> list[Command]:
        worker = self.workers.pop(event.worker, None)
        if worker is None:
            return []
        self._forget_rank(worker)
        self.dealer.back(worker.address)
        worker.left_at = event.at
        self.away[worker.name] = worker
        return self._end_all_with(worker, event.at, "left the cluster or died.")

    def _worker_silent(self, event: WorkerSilent) -> list[Command]:
        worker = self.workers.get(event.worker)
        if worker is None:
            return []
        is_new, worker.silent_s = not worker.silent_s, event.silent_s
        how = f"has not answered for {event.silent_s:.0f} s. It is taken back when it answers again."
        return self._end_all_with(worker, event.at, how) if is_new else []

    def _end_all_with(self, worker: Member, at: float, how: str) -> list[Command]:
        """End every grant in which *worker* is."""
        sentence = f"Worker {worker.name} on {worker.host} ({worker.address}) {how}"
        commands: list[Command] = []
        for key, grant in list(self.grants.items()):
            if any(place.worker == worker.address for place in grant.places):
                commands += [EndMessage(*key, worker=worker.address, sentence=sentence), *self._end(key, at, kill=True)]
        return commands

    def _forget_rank(self, worker: Member) -> None:
        self.sessions.pop(worker.session, None)
        worker.incarnation, worker.session = None, ""

    # who goes first, and where

    def _active(self) -> set[str]:
        return {client for client, _ in (*self.requests, *self.grants)}

    def granted_seconds(self, client: str, at: float) -> float:
        """Seconds that this client has held grants, the running ones included."""
        running = sum(at - grant.since for (holder, _), grant in self.grants.items() if holder == client)
        return self.clients[client].seconds + running

    def queue(self, at: float) -> list[RequestMessage]:
        """Who waits, the next one first; a client that says nothing is passed over until it speaks again."""
        used = {client: self.granted_seconds(client, at) for client in self._active()}
        awake = [one for one in self.requests.values() if at - self.clients[one.client].seen <= self.quiet_s]
        # sorting is stable: first come, first served within a client and between equals
        return sorted(awake, key=lambda request: used[request.client])

    def _pump(self, at: float) -> list[Command]:
        """Grant what can be granted, in order; the first request that waits for busy workers ends the round."""
        used = [self.granted_seconds(client, at) for client in self._active()]
        self._floor = max(self._floor, min(used, default=0.0))
        commands: list[Command] = []
        for request in self.queue(at):
            if refused := self._refused(request):
                if not self._may_be_mended(refused, at):
                    del self.requests[request.client, request.stream]
                    commands.append(refused)
                continue
            self.unmet_since.pop((request.client, request.stream), None)
            if chosen := self._choose(request):
                commands.append(self._grant(request, chosen, at))
            elif self._room(request, [worker for worker in self.workers.values() if worker.ready]):
                break
        return commands

    def _may_be_mended(self, refused: RefusalMessage, at: float) -> bool:
        """Whether a request that cannot be met now waits all the same; it holds nobody back."""
        return (
            refused.for_now and at - self.unmet_since.setdefault((refused.client, refused.stream), at) < self.patient_s
        )

    def _grant(self, request: RequestMessage, chosen: tuple[str, ...], at: float) -> GrantMessage:
        key = (request.client, request.stream)
        session = self._session(chosen, request)
        places = []
        for address in chosen:
            worker = self.workers[address]
            assert worker.incarnation is not None
            if worker.session != session:
                self.sessions.pop(worker.session, None)
                worker.session = session
            worker.busy = True
            places.append(RankSeat(address, worker.name, worker.host, worker.incarnation, worker.hello, worker.gpu))
        del self.requests[key]
        self.grants[key] = Grant(at, tuple(places), request.expected_s)
        self.clients[request.client].sessions[request.world] = session
        return GrantMessage(*key, session, tuple(places))

    def _session(self, chosen: tuple[str, ...], request: RequestMessage) -> str:
        """The intact session of just these workers in this order, or a new one."""
        wanted = BenchSession(chosen, request.shares_heap, request.across)
        for name, session in self.sessions.items():
            if session == wanted:
                return name
        self._num_sessions += 1
        name = f"{self.prefix}-{self._num_sessions}"
        self.sessions[name] = wanted
        return name

    def _choose(self, request: RequestMessage) -> tuple[str, ...] | None:
        """Workers for the request: its client's warm session, a warm session nobody else uses, or free ones."""
        warm = self._warm(request)
        if warm is not None:
            return warm
        room = self._room(request, [worker for worker in self.workers.values() if worker.free])
        if not room:
            return None
        # leave other sessions whole and GPUs free if possible; ranks are always in the order of the names
        unwanted = {worker.address for worker in room if worker.backend != request.backend}
        first = turns(room) if request.across else {}
        chosen = sorted(room, key=lambda worker: (
            first.get((worker.host, worker.name), 0), worker.session in self.sessions, worker.address in unwanted,
            natural(worker),
        ))[: request.world]  # fmt: skip
        return tuple(worker.address for worker in sorted(chosen, key=natural))

    def _warm(self, request: RequestMessage) -> tuple[str, ...] | None:
        last_session = self.clients[request.client].sessions.get(request.world)
        others = self._active() - {request.client}
        foreign = {session for client in others for session in self.clients[client].sessions.values()}
        for name, session in sorted(
            self.sessions.items(), key=lambda item: (item[0] != last_session, item[0] in foreign)
        ):
            members = [self.workers[address] for address in session.workers]
            if session.suits(request) and all(worker.free and may(worker, request.backend) for worker in members):
                # somebody else's session is taken only when nothing else is free
                taken = name != last_session and name in foreign
                if not taken or not self._fresh_room(request):
                    return session.workers
        return None

    def _fresh_room(self, request: RequestMessage) -> bool:
        unused = [w for w in self.workers.values() if w.free and w.session not in self.sessions]
        return bool(self._room(request, unused))

    def _room(self, request: RequestMessage, workers: list[Member]) -> list[Member]:
        return room(workers, request.world, request.backend, request.shares_heap, request.across)

    def _refused(self, request: RequestMessage) -> RefusalMessage | None:
        """Why the request cannot be met, or None."""
        workers = Workers(tuple(self.workers.values()), tuple(self.away.values()))
        needs = request.world, request.backend, request.shares_heap, request.across
        if (sentence := workers.refusal(*needs)) is None:
            return None
        return RefusalMessage(request.client, request.stream, sentence, for_now=workers.well().refusal(*needs) is None)


# For whom a request waits, in words: who is before it, who holds the workers, which of them are starting or away.

_NAMED_MOST = 3


def words(gang: Gang, client: str, stream: str, at: float) -> str:
    """Of a request that is not granted yet; nothing where there is no such request."""
    request = gang.requests.get((client, stream))
    if request is None:
        return ""
    line = gang.queue(at)
    before = line.index(request) if request in line else len(line)
    able = [worker for worker in gang.workers.values() if may(worker, request.backend)]
    missed = (client, stream) in gang.unmet_since
    gone = [each for each in gang.away.values() if may(each, request.backend) and (missed or not each.lost)]
    said = [
        f"{before} {'request is' if before == 1 else 'requests are'} before",
        _held(gang, able),
        *(_starting(worker) for worker in able if worker.incarnation is None and not worker.silent_s),
        *(f"{worker.name} has not answered for {worker.silent_s:.0f} s" for worker in able if worker.silent_s),
        *(f"{worker.name} left {at - worker.left_at:.0f} s ago and may come back" for worker in gone),
    ]
    reasons = [each for each in said if each]
    return "; ".join(reasons[: 2 + _NAMED_MOST]) + ("; ..." if len(reasons) > 2 + _NAMED_MOST else "")


def _held(gang: Gang, able: list[Member]) -> str:
    """How many of the workers that could serve are in use, and by how many."""
    places = {worker.address for worker in able}
    held = {place.worker: client for (client, _), grant in gang.grants.items() for place in grant.places}
    busy = [held[worker] for worker in places & held.keys()]
    if not busy:
        return ""
    clients = len(set(busy))
    return f"{clients} {'client holds' if clients == 1 else 'clients hold'} {len(busy)} of {len(able)} workers"


def _starting(worker: Member) -> str:
    failed = "1 start" if worker.deaths == 1 else f"{worker.deaths} starts"
    return f"{worker.name} is starting" + (f" ({failed} failed)" if worker.deaths else "")
