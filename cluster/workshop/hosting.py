"""The lecturer's side of a workshop: opens it on a cluster that is there or is started, and ends it without a trace.

Its record lies in the state folder for as long as the workshop lasts. It has the links, so that `up` can print them
again, and the cluster's certificate: a workshop whose cluster died is opened again with the same links.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs
from distributed import Client
from distributed.comm.addressing import get_address_host_port
from distributed.protocol.pickle import dumps
from distributed.utils import get_ip

from cluster import launch, scheduler_file
from cluster.certificate import Certificate
from cluster.connection import ANSWER_S, open_client
from cluster.launch.contract import LOOPBACK
from cluster.launch.lifetime import attach, for_clients_in, pem_in
from cluster.scheduler_file import SchedulerTarget, target_in
from cluster.workshop.board import QuestionKind
from cluster.workshop.classroom import NAME, PAGE, Classroom, Opening
from cluster.workshop.links import Link, new_token, print_of, token_digest
from kernels import files
from kernels.files import Failed

PORT = 8788
"""Port of the links of a workshop on a network; its cluster has the next one, so that a firewall can name both."""
CHECKS = {"8": "workbench.lessons.predictions:best_found"}
"""The workbench's checks by lesson; the scheduler looks them up by name, since nothing here imports the workbench."""
QUESTIONS = "workbench.lessons:every_question"
"""The workbench's questions, which the lecturer's side looks up by name when it opens a workshop."""
STUDENTS_MOST, HOURS_MOST = 300, 72.0
Page = Callable[[], Mapping[str, tuple[str, bytes]]]
"""Makes the lecturer's page, which takes seconds: type and content by path."""
_KIND = files.TextKind("record of a workshop", "the record of a workshop", "`workbench workshop up` again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the lecturer wants."""

    students: int = 30
    hours: float = 8.0
    """How long links let people in."""
    ranks: int | None = None
    """Ranks of a cluster that is started for it; None: as many as `workbench cluster up` starts."""
    host: str | None = None
    """The address by which students reach this host; None: that of its network."""
    port: int = PORT
    cluster: str | None = None
    """The address or file of a running cluster; None: this user's, or a new one."""

    def refusal(self) -> str | None:
        """Why there cannot be such a workshop, or None."""
        if not 1 <= self.students <= STUDENTS_MOST:
            return f"{self.students} students do not fit. Accepted: 1 to {STUDENTS_MOST}."
        if not 0 < self.hours <= HOURS_MOST:
            return f"{self.hours:g} hours do not fit. Accepted: more than 0, up to {HOURS_MOST:g}."
        if not 0 <= self.port <= 65534:
            return f"port {self.port} does not fit: it and the next one are used. Accepted: 1 to 65534."
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """An open workshop, as the lecturer's host remembers it."""

    address: str
    """The scheduler's."""
    origin: str
    """Beginning of every link."""
    page_port: int
    ends_at: float
    num_ranks: int
    started_cluster: bool
    """Whether the cluster was started for it, and ends with it."""
    host: str
    port: int
    """Where links are exchanged."""
    tokens: tuple[str, ...] = field(repr=False)
    page_key: str = field(repr=False)
    certificate: str | None = field(repr=False)
    folder: str
    """Where the files of its cluster lie."""

    @property
    def links(self) -> list[str]:
        """The links of all students; each is a key."""
        of = print_of(self._certificate)
        return [Link(self.origin, token, of).text for token in self.tokens]

    @property
    def page(self) -> str:
        """The lecturer's page, on the scheduler's host."""
        return f"http://{LOOPBACK}:{self.page_port}{PAGE}#{self.page_key}"

    @property
    def target(self) -> SchedulerTarget:
        return SchedulerTarget(self.address, self._certificate)

    @property
    def is_here(self) -> bool:
        """Whether the scheduler runs on this host, so that its page opens here."""
        host, _ = get_address_host_port(self.address)
        return host in (LOOPBACK, "localhost", _network_address(), socket.gethostname()) or self.started_cluster

    @property
    def _certificate(self) -> Certificate | None:
        return None if self.certificate is None else Certificate(self.certificate)


def record_file() -> Path:
    """The file with the record, which only this user can read: it holds every key of the workshop."""
    return platformdirs.user_state_path("overlap-workbench") / f"workshop-{socket.gethostname()}.json"


def remembered() -> Workshop | None:
    """The workshop that this user opened on this host and did not end."""
    try:
        facts = files.json_value(record_file(), _KIND)
        return Workshop(**{**facts, "tokens": tuple(facts["tokens"])})
    except (ValueError, KeyError, TypeError, OSError):
        return None


def is_open(workshop: Workshop) -> bool:
    """Whether its cluster answers and the workshop is open there."""
    try:
        with open_client(workshop.target) as client:
            return _facts(client) is not None
    except (ValueError, OSError):
        return False


# Opening one.


def open_workshop(plan: Plan, page: Page, folder: Path) -> tuple[Workshop, bool]:
    """The workshop of *plan*, and whether it is a new one; ValueError with one sentence where there can be none.

    One that is open already is returned as it is, with new links where those have expired. One whose cluster has died
    is opened again with its links, so that those who joined come back. *page*: makes the lecturer's page; *folder*:
    where the files of a new cluster lie.
    """
    if (message := plan.refusal()) is not None:
        raise ValueError(message)
    before = remembered()
    if before is not None:
        if is_open(before):
            has_expired = time.time() >= before.ends_at
            return (_renewed(before, plan, page), True) if has_expired else (before, False)
        if time.time() < before.ends_at and before.started_cluster and plan.cluster is None:
            _refuse_frozen(before)
            return _opened_again(before, page), False
        _end_in_scheduler(before)
        forget(before)
    target, num_ranks, is_new = _cluster(plan, folder)
    try:
        host, _ = get_address_host_port(target.address)
        workshop = Workshop(
            address=target.address,
            origin="",
            page_port=0,
            ends_at=time.time() + 3600 * plan.hours,
            num_ranks=num_ranks,
            started_cluster=is_new,
            host=host,
            port=plan.port,
            tokens=tuple(new_token() for _ in range(plan.students)),
            page_key=new_token(),
            certificate=target.certificate.pem if target.certificate is not None else None,
            folder=str(folder),
        )
        return _installed(workshop, page, plan.host if is_new else None), True
    except BaseException:
        if is_new:
            launch.down()
        raise


def _renewed(before: Workshop, plan: Plan, page: Page) -> Workshop:
    """*before*, whose links have expired, with new links and a new board on the same cluster."""
    with open_client(before.target) as client:
        _finish(client)
    renewed = replace(
        before,
        ends_at=time.time() + 3600 * plan.hours,
        tokens=tuple(new_token() for _ in range(plan.students)),
        page_key=new_token(),
    )
    return _installed(renewed, page, urlhost(before.origin))


def _cluster(plan: Plan, folder: Path) -> tuple[SchedulerTarget, int, bool]:
    """The plan's cluster, its number of ranks, and whether it was started now."""
    if plan.cluster is not None or (record := launch.running()) is None:
        if plan.cluster is None:
            record = _start(plan, folder)
            return target_in(record.address), record.num_ranks, True
        target = target_in(plan.cluster)
        with attach(target) as cluster:
            return target, len(cluster.describe()["workers"]), False
    if not record.detached:
        raise ValueError(
            f"The cluster at {record.address} belongs to a lab (process {record.pid}) and would end with it. Accepted: "
            "end the lab first; `workbench workshop up` then starts a cluster of its own."
        )
    return target_in(record.address), record.num_ranks, False


def _start(plan: Plan, folder: Path, certificate: Path | None = None, port: int | None = None) -> scheduler_file.Record:
    """A cluster on this host that listens where students reach it."""
    host = plan.host or _network_address()
    listens = _listening(host)
    place: dict[str, Any] = {"host": listens, "port": port or (plan.port and plan.port + 1)}
    _refuse_port(listens, plan.port, "The links of a workshop cannot be exchanged")
    _refuse_port(listens, place["port"], "The cluster of a workshop cannot listen")
    ranks = {} if plan.ranks is None else {"num_ranks": plan.ranks}
    return launch.up("local", folder, certificate, **place, **ranks)


def _refuse_port(host: str, port: int, fault: str) -> None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise ValueError(
            f"{fault} at {host} port {port} ({error.strerror or error}). Accepted: --port with another number; it and "
            "the next one must be free."
        ) from error


def _network_address() -> str:
    """This host's address on its network; loopback where it has none."""
    with contextlib.suppress(OSError, ValueError):
        return get_ip()
    return LOOPBACK


def _listening(host: str) -> str:
    """The address at which a scheduler listens that students reach by *host*: all of them for a name of a router."""
    if host in (LOOPBACK, "localhost"):
        return LOOPBACK
    try:
        socket.create_server((host, 0)).close()
    except OSError:  # an address that a router or a cloud translates
        return "0.0.0.0"
    return host


def _installed(workshop: Workshop, page: Page, reached_by: str | None = None) -> Workshop:
    """*workshop*, open in its scheduler, with its places and its record written."""
    with open_client(workshop.target) as client:
        if _facts(client) is not None:
            raise ValueError(
                f"The cluster at {workshop.address} has a workshop already, and takes 1. Accepted: its own lecturer "
                "ends it with `workbench workshop down`; or another cluster."
            )
        opening = Opening(
            seats={token_digest(token): number for number, token in enumerate(workshop.tokens, start=1)},
            ends_at=workshop.ends_at,
            page_digest=token_digest(workshop.page_key),
            files=page(),
            host="0.0.0.0" if reached_by not in (None, workshop.host, "localhost") else workshop.host,
            port=workshop.port,
            pem=workshop.certificate,
            checks=CHECKS,
            questions=_questions(),
        )
        assert client.scheduler is not None
        install = client.scheduler.register_scheduler_plugin
        client.sync(install, plugin=dumps(Classroom(opening)), name=NAME, idempotent=True, callback_timeout=30)
        facts = _facts(client)
        if facts is None or facts["trouble"]:
            _finish(client)
            why = facts["trouble"] if facts else "its scheduler does not answer"
            raise Failed(f"The workshop cannot take links ({why}). Accepted: --port with another number.")
    scheme = "http" if workshop.certificate is None else "https"
    host = reached_by or workshop.host
    opened = replace(
        workshop,
        origin=workshop.origin or f"{scheme}://{f'[{host}]' if ':' in host else host}:{facts['port']}",
        page_port=facts["page_port"],
        port=facts["port"],
    )
    _remember(opened)
    return opened


def _questions() -> dict[tuple[str, str], QuestionKind]:
    """What each question of the lessons takes, by lesson and name."""
    module, _, name = QUESTIONS.partition(":")
    every = getattr(importlib.import_module(module), name)()
    return {(str(lesson), question): QuestionKind(not each.choices, each.unit, tuple(each.choices))
            for (lesson, question), each in every.items()}  # fmt: skip


def _remember(workshop: Workshop) -> None:
    try:
        record_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(record_file(), json.dumps(asdict(workshop), indent=1), mode=0o600)
    except OSError as error:
        raise Failed(
            f"The workshop's record cannot be kept in {record_file()} ({files.reason(error)}). Accepted: a HOME, or "
            "XDG_STATE_HOME, whose folders you may write."
        ) from error


def _opened_again(before: Workshop, page: Page) -> Workshop:
    """*before*, whose cluster has died, with its links, certificate and ports."""
    listens, port = get_address_host_port(before.address)
    plan = Plan(ranks=before.num_ranks, host=listens, port=before.port)
    key = record_file().with_suffix(".pem")
    folder = Path(before.folder)
    try:
        if before.certificate is not None:
            files.write(key, before.certificate, mode=0o600)
        record = _start(plan, folder, key if before.certificate is not None else None, port)
    finally:
        key.unlink(missing_ok=True)
    return _installed(replace(before, address=record.address), page, urlhost(before.origin))


def urlhost(origin: str) -> str:
    """The host in a link."""
    return Link(origin, "").host_and_port()[0]


# Ending it.


def close_workshop() -> Workshop:
    """End the workshop that this user opened on this host, with all that it left; ValueError where there is none."""
    workshop = remembered()
    if workshop is None:
        raise ValueError(
            "There is no workshop to end: you have 0 on this host. Accepted: one that `workbench workshop up` opened "
            "here."
        )
    _end_in_scheduler(workshop)
    if workshop.started_cluster:
        with contextlib.suppress(ValueError):  # it has ended already
            if (record := scheduler_file.read()) is not None and record.address == workshop.address:
                launch.down()
    forget(workshop)
    return workshop


def _end_in_scheduler(workshop: Workshop) -> None:
    """End *workshop* in its scheduler; Failed where a cluster of others is silent, since its links may open it later.

    A cluster that was started for the workshop ends with it, so its silence does not matter.
    """
    try:
        with open_client(workshop.target) as client:
            _finish(client)
    except (ValueError, OSError) as error:
        if workshop.started_cluster or _is_gone(workshop):
            return
        raise Failed(
            f"The workshop is not ended: its cluster at {workshop.address} does not answer, and its "
            f"{len(workshop.tokens)} links may let people in once it does. Accepted: the command again when the "
            f"cluster answers; or, if it has ended for good, {record_file()} deleted."
        ) from error


def _is_gone(workshop: Workshop) -> bool:
    """Whether the host of its scheduler refuses connections: a scheduler that is frozen or busy takes them."""
    try:
        scheduler_file.reach(workshop.target, scheduler_file.KNOCK_S)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _refuse_frozen(workshop: Workshop) -> None:
    """Failed where the cluster that was started for *workshop* runs and does not answer."""
    record = scheduler_file.running()
    if record is not None and record.address == workshop.address:
        raise Failed(
            f"The workshop's cluster at {workshop.address} runs (process {record.pid}) and does not answer. Accepted: "
            "the command again in a while; or first `workbench workshop down`, which ends that cluster and its links."
        )


def forget(workshop: Workshop) -> None:
    """Remove the files of *workshop*, also those of a cluster that was killed.

    By the text in `board-owner` boards of other classes know this user, so that stays.
    """
    left = [record_file()]
    record = scheduler_file.read()
    if workshop.started_cluster and (record is None or not record.alive or record.address == workshop.address):
        left += [pem_in(Path(workshop.folder)), for_clients_in(Path(workshop.folder))]
        left.append(scheduler_file.path().with_suffix(".log"))
        if record is not None and record.address == workshop.address:
            scheduler_file.remove(record)
    for file in left:
        file.unlink(missing_ok=True)


def _facts(client: Client) -> dict[str, Any] | None:
    """Where the workshop of a scheduler listens; None where none is open."""
    facts = _asked(client, "facts")
    return None if facts is None else dict(facts)


def _finish(client: Client) -> None:
    """End the workshop in the scheduler, if there is one."""
    _asked(client, "finish")


def _asked(client: Client, question: str) -> Any:
    """What the workshop of a scheduler answers, None where none is open; Failed where the scheduler falls silent."""

    async def asked() -> Any:
        return await getattr(client.scheduler, f"workbench_workshop_{question}")()

    try:
        if client.sync(client._run_on_scheduler, _has_workshop, callback_timeout=ANSWER_S):
            return client.sync(asked, callback_timeout=ANSWER_S)
    except OSError as error:
        raise Failed(
            f"The scheduler accepted a client, then did not answer within {ANSWER_S:.0f} s. Accepted: the command "
            "again."
        ) from error
    return None


def _has_workshop(dask_scheduler: Any) -> bool:
    return NAME in dask_scheduler.plugins
