"""What a workshop adds to the scheduler: the exchange of links, the class board, its page, and shared answers.

Two places listen. The exchange of links is open to the network, speaks TLS with the cluster's certificate, and knows
one thing: which tokens let somebody in. The lecturer's page is on the scheduler's own HTTP server, on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import secrets
import ssl
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Scheduler, SchedulerPlugin
from tornado import web
from tornado.httpserver import HTTPServer

from cluster import broker
from cluster.certificate import security
from cluster.connection import holder_text
from cluster.shared import SharedAnswers
from cluster.workshop.board import TEXT_MOST, Board, Questions
from cluster.workshop.links import PATH, software, token_digest, version_mismatch
from kernels.trial import Trial

NAME = "workbench-workshop"
PAGE = "/workshop"
BODY_BYTES = 10_000
"""The longest request of a page or a link."""
IDLE_S = 20.0
"""A connection that says nothing is closed after this time, s."""
_INSTRUCTIONS = (
    "<!doctype html><meta charset=utf-8><title>Overlap Workbench</title><p>This link is for a terminal: install the "
    "workbench, then <code>workbench join 'LINK'</code>. Keep it to yourself: it is a key.</p>\n"
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": _POLICY}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the lecturer's side sends to the scheduler; tokens are there as digests only."""

    seats: Mapping[str, int] = field(repr=False)
    """Number of each link, by the digest of its token."""
    ends_at: float
    """Unix time after which links let nobody in."""
    page_digest: str = field(repr=False)
    """Digest of the key of the lecturer's page."""
    files: Mapping[str, tuple[str, bytes]] = field(repr=False)
    """The page: type and content by path."""
    host: str
    """Where the exchange of links listens."""
    port: int
    """0: any port."""
    pem: str | None = field(repr=False)
    """The cluster's certificate and key; None where it has none."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """By lesson the workbench's check of an answer of recorded schedules, as `module:function`: it returns the number
    and the seconds of the best one, and raises ValueError where the answer is wrong."""
    questions: Questions = field(default_factory=dict)
    """Kinds of the questions of the lessons."""


class Classroom(SchedulerPlugin):
    """Scheduler plugin of an open workshop; a scheduler has one at most."""

    name = NAME

    def __init__(self, opening: Opening) -> None:
        self.opening = opening

    async def start(self, scheduler: Scheduler) -> None:
        """Listen, and answer the board's questions; an OSError is kept for `facts`."""
        if NAME in scheduler.plugins:
            return
        self.scheduler = scheduler
        self.board = Board(questions=self.opening.questions)
        self.came: dict[int, float] = {}
        """When each link was used last, by its number."""
        self.people: dict[int, str] = {}
        """The alias that came last by each link, where one did."""
        self.trouble = ""
        scheduler.add_plugin(self, name=NAME)
        scheduler.handlers |= {f"workbench_workshop_{name}": getattr(self, name) for name in _HANDLERS}
        self._share(SharedAnswers())
        self.page = web.Application(
            [(PAGE, _File), (rf"{PAGE}/state", _State), (rf"{PAGE}/reveal", _Reveal), (rf"{PAGE}/[\w.]+", _File)],
            room=self,
        )
        scheduler.http_application.add_application(self.page)
        entry = web.Application([(PATH, _Join)], room=self, log_function=lambda handler: None)
        limits: dict[str, Any] = {"max_body_size": BODY_BYTES, "idle_connection_timeout": IDLE_S}
        self.server = HTTPServer(entry, ssl_options=self._tls(), **limits)
        try:
            self.server.listen(self.opening.port, address=self.opening.host)
        except OSError as error:
            self.trouble = f"{self.opening.host} port {self.opening.port}: {error.strerror or error}"

    def _tls(self) -> ssl.SSLContext | None:
        """The cluster's certificate, shown to whoever comes: those who hold a link have none yet."""
        if self.opening.pem is None:
            return None
        context: ssl.SSLContext = security(self.opening.pem).get_listen_args("scheduler")["ssl_context"]
        context.verify_mode = ssl.CERT_NONE
        return context

    def _share(self, answers: SharedAnswers | None) -> None:
        of_gangs = self.scheduler.plugins.get(broker.NAME)
        if isinstance(of_gangs, broker.Broker):
            of_gangs.shared = answers

    @property
    def answers(self) -> SharedAnswers:
        """What gangs have measured for all."""
        of_gangs = self.scheduler.plugins.get(broker.NAME)
        shared = of_gangs.shared if isinstance(of_gangs, broker.Broker) else None
        return shared or SharedAnswers()

    async def close(self) -> None:
        """Stop listening, and forget all that was said."""
        self.server.stop()
        with contextlib.suppress(ValueError):
            self.scheduler.http_application.applications.remove(self.page)
        for name in _HANDLERS:
            self.scheduler.handlers.pop(f"workbench_workshop_{name}", None)
        self._share(None)
        await self.server.close_all_connections()

    # questions of clients; a refusal is an answer, so that no log has it with the question

    def facts(self) -> dict[str, Any]:
        """Where it listens, for the lecturer's side; `trouble` where it does not."""
        ports = [each.getsockname()[1] for each in self.server._sockets.values()]
        return {"trouble": self.trouble, "port": ports[0] if ports else None, "board": self.board.name,
                "page_port": self.scheduler.services["dashboard"].port, "ends_at": self.opening.ends_at}  # fmt: skip

    async def finish(self) -> None:
        """End the workshop; the cluster stays."""
        with contextlib.suppress(ValueError):
            self.scheduler.remove_plugin(NAME)
        await self.close()

    def submit(self, owner: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Take a guess."""
        return self._tried(lambda: self.board.submit(owner, entry))

    def enter(self, owner: str, alias: str, lesson: str, trial: Mapping[str, Any]) -> dict[str, Any]:
        """Take a schedule, if ranks of this cluster measured it and found it right."""

        def take() -> None:
            wanted = Trial.from_json(trial)
            measured = self.answers.verified(wanted)
            if measured is None:
                raise ValueError(
                    f"{wanted.schedule} is not on the board: 0 measurements of it by ranks of this cluster were right. "
                    "Accepted: a whole schedule that was measured here since the workshop began."
                )
            self.board.enter(owner, alias, lesson, measured, time.time())

        return self._tried(take)

    async def answer(self, owner: str, alias: str, lesson: str, answer: Any) -> dict[str, Any]:
        """Take the best schedule of an *answer*, as the workbench's own check finds it; a thread reads recordings."""
        try:
            best = await asyncio.to_thread(_checked, _check_of(lesson, self.opening.checks), answer)
        except ValueError as error:
            return {"board": self.board.name, "trouble": str(error)}
        return self._tried(lambda: self.board.enter_recorded(owner, alias, lesson, best, time.time()))

    def claim(self, owner: str, alias: str, link: int | None = None) -> dict[str, Any]:
        """Give an alias to its first owner, who came by the link of that number."""

        def take() -> None:
            granted = self.board.claim(owner, alias)
            if link is not None and link in self.opening.seats.values():
                self.people[link] = granted

        return self._tried(take)

    def guesses(self) -> dict[str, Any]:
        """All guesses, and the board's name."""
        return {"board": self.board.name, "entries": self.board.guesses()}

    def best(self) -> dict[str, Any]:
        """The best schedules so far."""
        return {"board": self.board.name, "entries": self.board.best()}

    def _tried(self, act: Any) -> dict[str, Any]:
        try:
            act()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return {"board": self.board.name, "trouble": str(error)}
        return {"board": self.board.name}

    # pages

    def state(self) -> dict[str, Any]:
        """Everything that the lecturer's page shows."""
        of_gangs = self.scheduler.plugins.get(broker.NAME)
        gangs = of_gangs.describe() if isinstance(of_gangs, broker.Broker) else dict.fromkeys(_OF_GANGS, ())
        answers = self.answers
        return {
            "now": time.time(), "ends_at": self.opening.ends_at, "links": len(self.opening.seats),
            "joined": len(self.came), "guesses": self.board.guesses(), "best": self.board.best(),
            "ranks": len(gangs["workers"]), "measuring": len(gangs["grants"]), "waiting": len(gangs["requests"]),
            "holders": [{"who": holder_text(client, self.people), "ranks": len(places)}
                        for client, _, places in gangs["grants"]],
            "measured": answers.num_measured, "shared": answers.num_shared,
        }  # fmt: skip

    def admit(self, token: Any, theirs: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer for somebody with *token* and the versions *theirs*."""
        seat = self.opening.seats.get(token_digest(token)) if isinstance(token, str) else None
        if seat is None:
            return 403, {"trouble": "nobody knows its key, since the workshop was ended and opened anew"}
        if time.time() >= self.opening.ends_at:
            until = time.strftime("%H:%M on %Y-%m-%d", time.localtime(self.opening.ends_at))
            return 410, {"trouble": f"it expired at {until} (time of the cluster)"}
        if not isinstance(theirs, dict) or version_mismatch(theirs) is not None:
            return 200, {"software": software()}
        self.came[seat] = time.time()
        return 200, {"address": self.scheduler.address, "certificate": self.opening.pem, "seat": seat,
                     "ends_at": self.opening.ends_at, "software": software()}  # fmt: skip


_OF_GANGS = ("workers", "grants", "requests")
_HANDLERS = ("facts", "finish", "claim", "submit", "enter", "answer", "guesses", "best")


def _check_of(lesson: Any, checks: Mapping[str, str]) -> str:
    """The check of *lesson*'s answers; ValueError where the workbench has none."""
    if (name := str(lesson)) in checks:
        return checks[name]
    raise ValueError(
        f"The board takes no answers of lesson {name[:TEXT_MOST]!r}: it can check those of {len(checks)} lessons. "
        f"Accepted: answers of lesson {', '.join(checks) or 'none'}."
    )


def _checked(check: str, answer: Any) -> tuple[int, float]:
    """Number and seconds of the best schedule of *answer*; ValueError where it is wrong, or nobody can check it."""
    module, _, name = check.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The cluster cannot check this answer: its workbench has no {check or 'check'}. Accepted: a schedule that "
            "ranks of the cluster measured."
        ) from error
    number, seconds = function(list(answer) if isinstance(answer, tuple) else answer)  # Dask makes tuples of lists
    return int(number), float(seconds)


class _Handler(web.RequestHandler):
    """A request of a page; it may not be kept, framed or sent elsewhere."""

    @property
    def room(self) -> Classroom:
        return self.application.settings["room"]

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish(f"{status_code}\n")

    def body(self) -> dict[str, Any]:
        """The request's JSON; empty where it has none."""
        try:
            content = json.loads(self.request.body)
        except ValueError:
            content = None
        return content if isinstance(content, dict) else {}

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        raise NotImplementedError


class _Join(_Handler):
    def get(self) -> None:
        self.finish(_INSTRUCTIONS)

    def post(self) -> None:
        body = self.body()
        status, answer = self.room.admit(body.get("token"), body.get("software"))
        self.set_status(status)
        self.finish(answer)


class _File(_Handler):
    """The page itself, which is no secret."""

    def get(self) -> None:
        kind, content = self.room.opening.files.get(self.request.path, (None, b""))
        if kind is None:
            raise web.HTTPError(404)
        self.set_header("Content-Type", kind)
        self.finish(content)


class _ForLecturer(_Handler):
    """What needs the page's key, which the browser sends in a header."""

    def prepare(self) -> None:
        key = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(token_digest(key), self.room.opening.page_digest):
            raise web.HTTPError(403)


class _State(_ForLecturer):
    def get(self) -> None:
        self.finish(self.room.state())


class _Reveal(_ForLecturer):
    def post(self) -> None:
        body = self.body()
        self.room.board.reveal(body.get("lesson"), str(body.get("question")), bool(body.get("shown", True)))
        self.finish({})
