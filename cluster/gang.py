"""Decides which client holds which workers, all ranks or none: a pure state machine without Dask, clock or socket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cluster.gang_messages import (
    ClientGone,
    Command,
    DoomMessage,
    EndMessage,
    Event,
    GpuMessage,
    GrantMessage,
    Handshake,
    Heartbeat,
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
from cluster.hosts import Gpu
from cluster.seating import Workers, by_host, can_serve, candidates, host_turns, natural_order

# GPUs: each worker gets one at most, by UUID, before its rank process starts, and keeps it until it leaves. A GPU goes
# to one worker, or to as many as all of them say that they may be on it.

GpuAssignment = tuple[str, Gpu | None]
"""A worker and its GPU; None: its ranks are CPU ranks."""


class GpuDealer:
    """Deals the GPUs of one cluster. UUIDs identify them, so that hosts, containers and pods need no names here."""

    def __init__(self) -> None:
        self._has: dict[str, Gpu | None] = {}
        self._undecided: dict[str, Sequence[Gpu]] = {}
        self._sharing: dict[str, int] = {}
        """How many workers may be on a worker's GPU, itself included."""

    def sees(self, worker: str, gpus: Sequence[Gpu], ranks_on_gpu: int = 1) -> list[GpuAssignment]:
        """GPU of *worker*, if that is decided at once: it asks again, or *gpus* leave no choice.

        A worker with several choices waits for the next `decide`: others that come meanwhile may depend on one of them.
        """
        self._sharing[worker] = ranks_on_gpu
        if worker not in self._has and len(gpus) > 1:
            self._undecided[worker] = gpus
            return []
        return [self._deal(worker, gpus)]

    def decide(self) -> list[GpuAssignment]:
        """GPUs of the workers that had a choice: those with the fewest choices first, then in order of arrival."""
        waiting, self._undecided = self._undecided, {}
        return [self._deal(worker, waiting[worker]) for worker in sorted(waiting, key=lambda name: len(waiting[name]))]

    def free(self, worker: str) -> None:
        """Free the GPU of *worker*, which has left, for the next one that asks."""
        self._has.pop(worker, None)
        self._undecided.pop(worker, None)
        self._sharing.pop(worker, None)

    def _deal(self, worker: str, gpus: Iterable[Gpu]) -> GpuAssignment:
        if worker not in self._has:
            # in the worker's own order: dask-cuda turns the list of each worker so that its own GPU comes first
            self._has[worker] = next((gpu for gpu in gpus if gpu.uuid and self._has_room(gpu, worker)), None)
        return worker, self._has[worker]

    def _has_room(self, gpu: Gpu, worker: str) -> bool:
        """Whether *worker* may be on *gpu*, too: as far as each of the workers there is ready to share it."""
        there = [name for name, has in self._has.items() if has is not None and has.uuid == gpu.uuid]
        return all(len(there) < self._sharing[name] for name in (*there, worker))


# State of each worker, client, grant and session: plain values.

MOST_DEATHS = 3
"""Failed starts of its rank process, in a row, after which a worker does not count until one succeeds."""
GIVE_UP_S = 14.0
"""Silence after which requests no longer count on a worker; it is away sooner (`cluster.broker.AWAY_S`)."""
HELD_FACTOR, HELD_LEAST_S = 4.0, 10.0
"""A silent client loses a grant held for this multiple of its expected time, and for this time at least."""


@dataclass(slots=True)
class Member:
    """A worker that is present, silent, or left a moment ago."""

    address: str
    name: str
    host: str
    gpu: Gpu | None = None
    incarnation: str | None = None
    handshake: Handshake = field(default_factory=Handshake)
    backend: str = ""
    """Empty until its rank process has sent its handshake."""
    session: str = ""
    busy: bool = False
    deaths: int = 0
    """Failed starts of its rank process, in a row."""
    last_death: str = ""
    silent_s: float = 0.0
    """Seconds since its last answer, once that is too long; else 0."""
    left_at: float = 0.0
    """When it left; 0 for a present worker."""
    lost: bool = False
    """Whether it left and did not come back in time."""

    @property
    def ready(self) -> bool:
        """Whether it answers and has a rank process, waiting or busy."""
        return self.incarnation is not None and not self.silent_s

    @property
    def free(self) -> bool:
        return self.ready and not self.busy

    @property
    def trouble(self) -> str:
        """Why it does not count for now, or nothing; a worker that is only starting counts."""
        if self.lost:
            return "it left the cluster and did not come back"
        if self.silent_s > GIVE_UP_S:
            return f"it has not answered for more than {GIVE_UP_S:.0f} s"
        if self.deaths >= MOST_DEATHS:
            return f"{self.deaths} starts of its rank process failed in a row, the last one: {self.last_death}"
        return ""


@dataclass(slots=True)
class ClientState:
    """A client that has sent a request."""

    seen: float
    seconds: float
    """Granted seconds of its ended grants, at least what newcomers start with."""
    sessions: dict[int, str] = field(default_factory=dict)
    """Its last granted session, by world."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Workers that a client holds for one stream."""

    since: float
    places: tuple[RankSeat, ...]
    expected_s: float | None
    shared_as: str | None = None
    """What is measured for all who ask it."""

    def is_overdue(self, at: float) -> bool:
        """Whether it has been held for several times its expected time."""
        return self.expected_s is not None and at - self.since > max(HELD_LEAST_S, HELD_FACTOR * self.expected_s)


@dataclass(frozen=True, slots=True)
class BenchSession:
    """Ordered workers whose benches were opened together."""

    workers: tuple[str, ...]
    shares_heap: bool
    across: bool

    def suits(self, request: RequestMessage) -> bool:
        """Whether the benches of this session can serve the request."""
        opened_for = (len(self.workers), self.shares_heap, self.across)
        return opened_for == (request.world, request.shares_heap, request.across)


# The state machine: events in, commands out.

RELEASED_KEPT_S = 60.0
"""How long a release without a request is kept, s. They come by two connections: a request that comes later than its
own release is not granted."""
LEFT_KEPT_S = 600.0
"""How long messages name a worker that left, s."""


class Gang:
    """All state of the gangs of one cluster."""

    def __init__(
        self,
        prefix: str,
        *,
        lease_s: float = 50.0,
        quiet_s: float = 10.0,
        return_s: float = 20.0,
        patient_s: float = 60.0,
    ) -> None:
        self.prefix = prefix
        """Makes session names unique among the clusters of a machine."""
        self.lease_s = lease_s
        """A client silent for longer loses its grants: a laptop that is closed keeps no rank for a minute."""
        self.quiet_s = quiet_s
        """A client silent for longer loses its overdue grants, and gets none before it speaks again."""
        self.return_s = return_s
        """How long a worker that left may come back, s; requests that need it wait."""
        self.patient_s = patient_s
        """How long a request waits that could be met if all workers were well, s; then it is refused for now."""
        self.workers: dict[str, Member] = {}
        self.grants: dict[tuple[str, str], Grant] = {}
        self.requests: dict[tuple[str, str], RequestMessage] = {}
        self.unmet_since: dict[tuple[str, str], float] = {}
        """Since when a request waits for workers to become well."""
        self.clients: dict[str, ClientState] = {}
        self.sessions: dict[str, BenchSession] = {}
        self.away: dict[str, Member] = {}
        """Workers that left, by name."""
        self.released: dict[tuple[str, str], float] = {}
        """When a release came whose request was unknown."""
        self.dealer = GpuDealer()
        self._floor = 0.0
        self._num_sessions = 0

    def handle(self, *events: Event) -> list[Command]:
        """Take the events in order; returns the commands to carry out."""
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
                    return self._assign(self.dealer.sees(event.worker, event.gpus, event.ranks_on_gpu))
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
                    worker.incarnation, worker.backend = event.incarnation, event.backend
                    worker.handshake = event.handshake
                    worker.deaths, worker.last_death = 0, ""
            case RankGone():
                worker = self.workers.get(event.worker)
                if worker and worker.incarnation == event.incarnation:
                    self._forget_rank(worker)
            case RankFailed():
                if worker := self.workers.get(event.worker):
                    self._forget_rank(worker)
                    worker.deaths, worker.last_death = worker.deaths + 1, event.message
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
                return [*self._assign(self.dealer.decide()), *self._expire(event.at)]
        return []

    def _assign(self, assignments: Iterable[GpuAssignment]) -> list[Command]:
        commands: list[Command] = []
        for worker, gpu in assignments:
            self.workers[worker].gpu = gpu
            commands.append(GpuMessage(worker, gpu))
        return commands

    # requests and grants

    def _requested(self, event: RequestMessage) -> None:
        client = self.clients.setdefault(event.client, ClientState(seen=event.at, seconds=0.0))
        client.seen = event.at
        if (event.client, event.stream) in self.released:
            return
        if event.client not in self._active():
            # what was used an hour ago does not count: only clients that want workers at the same time are compared
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
        """Free the workers of a grant, if there is one; the rank processes of *idle* workers live on."""
        grant = self.grants.pop(key, None)
        if grant is None:
            return []
        self.clients[key[0]].seconds += at - grant.since
        for place in grant.places:
            if worker := self.workers.get(place.worker):
                worker.busy = False
        return self._kill([place for place in grant.places if place.worker not in idle]) if kill else []

    def _kill(self, places: Iterable[RankSeat]) -> list[Command]:
        """Commands that end the rank processes of *places*, where these are still the same."""
        kills: list[Command] = []
        for place in places:
            worker = self.workers.get(place.worker)
            if worker and worker.incarnation == place.incarnation:
                self._forget_rank(worker)
                kills.append(Kill(place.worker, place.incarnation))
        return kills

    def _drop(self, client: str, at: float, message: str = "") -> list[Command]:
        """Take away all requests and grants of a client."""
        keys = [key for key in (*self.requests, *self.grants) if key[0] == client]
        commands: list[Command] = []
        for key in keys:
            self.requests.pop(key, None)
            commands += [EndMessage(*key, worker=None, message=message), *self._end(key, at, kill=True)]
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
                message = (
                    f"The client said nothing for {silence:.0f} s, longer than the {self.lease_s:.0f} s of its "
                    "lease, so others have its workers now. Ask again."
                )
                commands += self._drop(client, at, message)
            elif silence > self.quiet_s:
                commands += self._end_overdue(client, at, silence)
        return commands

    def _end_overdue(self, client: str, at: float, silence: float) -> list[Command]:
        commands: list[Command] = []
        for key, grant in list(self.grants.items()):
            if key[0] == client and grant.is_overdue(at):
                message = (
                    f"The client said nothing for {silence:.0f} s and held its ranks for {at - grant.since:.0f} s of "
                    f"{grant.expected_s:.0f} s that it expected, so others have its workers now. Ask again."
                )
                commands += [EndMessage(*key, worker=None, message=message), *self._end(key, at, kill=True)]
        return commands

    def _worker_left(self, event: WorkerLeft) -> list[Command]:
        worker = self.workers.pop(event.worker, None)
        if worker is None:
            return []
        self._forget_rank(worker)
        self.dealer.free(worker.address)
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
        """End every grant that includes *worker*."""
        message = f"Worker {worker.name} on {worker.host} ({worker.address}) {how}"
        commands: list[Command] = []
        for key, grant in list(self.grants.items()):
            if any(place.worker == worker.address for place in grant.places):
                commands += [EndMessage(*key, worker=worker.address, message=message), *self._end(key, at, kill=True)]
        return commands

    def _forget_rank(self, worker: Member) -> None:
        self.sessions.pop(worker.session, None)
        worker.incarnation, worker.session = None, ""

    # order of clients, and choice of workers

    def _active(self) -> set[str]:
        return {client for client, _ in (*self.requests, *self.grants)}

    def granted_seconds(self, client: str, at: float) -> float:
        """Seconds for which this client has held grants, including the running ones."""
        running = sum(at - grant.since for (holder, _), grant in self.grants.items() if holder == client)
        return self.clients[client].seconds + running

    def queue(self, at: float) -> list[RequestMessage]:
        """Waiting requests, the next one first; silent clients are left out until they speak again."""
        used = {client: self.granted_seconds(client, at) for client in self._active()}
        awake = [each for each in self.requests.values() if at - self.clients[each.client].seen <= self.quiet_s]
        # sorting is stable: first come, first served within a client and between equals
        return sorted(awake, key=lambda request: used[request.client])

    def _pump(self, at: float) -> list[Command]:
        """Grant what can be granted, in order; the first request that waits for busy workers ends the round."""
        used = [self.granted_seconds(client, at) for client in self._active()]
        self._floor = max(self._floor, min(used, default=0.0))
        commands: list[Command] = []
        for request in self.queue(at):
            if self.twin_of(request) is not None:
                continue
            if refusal := self._refusal(request):
                if not self._may_recover(refusal, at):
                    del self.requests[request.client, request.stream]
                    commands.append(refusal)
                continue
            self.unmet_since.pop((request.client, request.stream), None)
            if chosen := self._choose(request):
                commands.append(self._grant(request, chosen, at))
            elif self._candidates(request, [worker for worker in self.workers.values() if worker.ready]):
                break
        return commands

    def twin_of(self, request: RequestMessage) -> tuple[str, str] | None:
        """The grant that measures what *request* asks; its answer is for both."""
        if request.shared_as is None:
            return None
        return next((key for key, grant in self.grants.items() if grant.shared_as == request.shared_as), None)

    def _may_recover(self, refusal: RefusalMessage, at: float) -> bool:
        """Whether a request that cannot be met now keeps waiting; it holds nobody back."""
        return (
            refusal.for_now and at - self.unmet_since.setdefault((refusal.client, refusal.stream), at) < self.patient_s
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
            seat = RankSeat(address, worker.name, worker.host, worker.incarnation, worker.handshake, worker.gpu)
            places.append(seat)
        del self.requests[key]
        self.grants[key] = Grant(at, tuple(places), request.expected_s, request.shared_as)
        self.clients[request.client].sessions[request.world] = session
        return GrantMessage(*key, session, tuple(places))

    def _session(self, chosen: tuple[str, ...], request: RequestMessage) -> str:
        """The intact session of exactly these workers in this order, or a new one."""
        wanted = BenchSession(chosen, request.shares_heap, request.across)
        for name, session in self.sessions.items():
            if session == wanted:
                return name
        self._num_sessions += 1
        name = f"{self.prefix}-{self._num_sessions}"
        self.sessions[name] = wanted
        return name

    def _choose(self, request: RequestMessage) -> tuple[str, ...] | None:
        """Workers for the request: its client's warm session, a warm one that no other client uses, or free workers."""
        warm = self._warm(request)
        if warm is not None:
            return warm
        crowded = self.crowded(request)
        free = self._candidates(
            request, [each for each in self.workers.values() if each.free and each.host not in crowded]
        )
        if not free:
            return None
        # leave other sessions whole and GPUs free if possible; ranks are always in the order of the names
        unwanted = {worker.address for worker in free if worker.backend != request.backend}
        first = host_turns(free) if request.across else {}
        chosen = sorted(free, key=lambda worker: (
            first.get((worker.host, worker.name), 0), worker.session in self.sessions, worker.address in unwanted,
            natural_order(worker),
        ))[: request.world]  # fmt: skip
        return tuple(worker.address for worker in sorted(chosen, key=natural_order))

    def _warm(self, request: RequestMessage) -> tuple[str, ...] | None:
        last_session = self.clients[request.client].sessions.get(request.world)
        others = self._active() - {request.client}
        crowded = self.crowded(request)
        foreign = {session for client in others for session in self.clients[client].sessions.values()}
        for name, session in sorted(
            self.sessions.items(), key=lambda item: (item[0] != last_session, item[0] in foreign)
        ):
            members = [self.workers[address] for address in session.workers]
            if any(worker.host in crowded for worker in members):
                continue
            if session.suits(request) and all(worker.free and can_serve(worker, request.backend) for worker in members):
                # somebody else's session is taken only when nothing else is free
                taken = name != last_session and name in foreign
                if not taken or not self._has_unused(request):
                    return session.workers
        return None

    def crowded(self, request: RequestMessage) -> set[str]:
        """Hosts on which the CPU ranks of *request* would share cores with gangs that time there now.

        A host that nobody uses takes any gang. Where workers do not say which cores they have, none is crowded.
        """
        if request.backend != "cpu":
            return set()
        crowded = set()
        for host, workers in by_host(self.workers.values()).items():
            busy = sum(worker.busy for worker in workers)
            cores = {core for worker in workers for core in worker.handshake.device.get("cores", ())}
            needed = min(request.world, sum(worker.free for worker in workers))
            if busy and cores and busy + needed > len(cores):
                crowded.add(host)
        return crowded

    def _has_unused(self, request: RequestMessage) -> bool:
        """Whether workers without a warm session suffice."""
        unused = [each for each in self.workers.values() if each.free and each.session not in self.sessions]
        return bool(self._candidates(request, unused))

    def _candidates(self, request: RequestMessage, workers: list[Member]) -> list[Member]:
        return candidates(workers, request.world, request.backend, request.shares_heap, request.across)

    def _refusal(self, request: RequestMessage) -> RefusalMessage | None:
        """Why the request cannot be met, or None."""
        workers = Workers(tuple(self.workers.values()), tuple(self.away.values()))
        needs = request.world, request.backend, request.shares_heap, request.across
        if (message := workers.refusal(*needs)) is None:
            return None
        return RefusalMessage(
            request.client, request.stream, message, for_now=workers.recovered().refusal(*needs) is None
        )


# Why a request waits, as text: who is before it, who holds the workers, which of them are starting or away.

_NAMED_MOST = 3


def waiting_reasons(gang: Gang, client: str, stream: str, at: float) -> str:
    """Why a request is not granted yet; empty where there is no such request."""
    request = gang.requests.get((client, stream))
    if request is None:
        return ""
    if gang.twin_of(request) is not None:
        return "another client measures the same now, and its answer is for both"
    queue = gang.queue(at)
    before = queue.index(request) if request in queue else len(queue)
    able = [worker for worker in gang.workers.values() if can_serve(worker, request.backend)]
    is_unmet = (client, stream) in gang.unmet_since
    gone = [each for each in gang.away.values() if can_serve(each, request.backend) and (is_unmet or not each.lost)]
    texts = [
        f"{before} {'request is' if before == 1 else 'requests are'} before",
        _holders_text(gang, able),
        _cores_text(gang, request),
        *(_starting_text(worker) for worker in able if worker.incarnation is None and not worker.silent_s),
        *(f"{worker.name} has not answered for {worker.silent_s:.0f} s" for worker in able if worker.silent_s),
        *(f"{worker.name} left {at - worker.left_at:.0f} s ago and may come back" for worker in gone),
    ]
    reasons = [each for each in texts if each]
    return "; ".join(reasons[: 2 + _NAMED_MOST]) + ("; ..." if len(reasons) > 2 + _NAMED_MOST else "")


def _holders_text(gang: Gang, able: list[Member]) -> str:
    """How many of the *able* workers are in use, and by how many clients."""
    places = {worker.address for worker in able}
    holders = {place.worker: client for (client, _), grant in gang.grants.items() for place in grant.places}
    busy = [holders[worker] for worker in places & holders.keys()]
    if not busy:
        return ""
    clients = len(set(busy))
    return f"{clients} {'client holds' if clients == 1 else 'clients hold'} {len(busy)} of {len(able)} workers"


def _cores_text(gang: Gang, request: RequestMessage) -> str:
    """That free workers would share cores with a gang that times now; empty where none would."""
    crowded = gang.crowded(request)
    holds_back = any(each.free and each.host in crowded for each in gang.workers.values())
    return "a gang times on the same cores as the free workers" if holds_back else ""


def _starting_text(worker: Member) -> str:
    failed = "1 start" if worker.deaths == 1 else f"{worker.deaths} starts"
    return f"{worker.name} is starting" + (f" ({failed} failed)" if worker.deaths else "")
