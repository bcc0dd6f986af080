"""One person's side of a workshop: joins by a link, and speaks with the class board in the scheduler.

from cluster.workshop.client import ClassBoard
board = ClassBoard.connect()
board.submit({"lesson": 1, "question": "total_time", "alias": "blue heron", "guess": 3.0, "unit": "ms"})
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import platformdirs
from distributed import Client

from cluster import scheduler_file
from cluster.connection import ANSWER_S, first_line, open_client
from cluster.scheduler_file import SchedulerTarget, target_in, write_target
from cluster.workshop.board import FIELDS, Entry
from cluster.workshop.links import Admission, Link, admission
from kernels import files
from kernels.files import Failed
from kernels.trial import Trial

_NO_BOARD = (
    "The cluster at {address} has no class board: 0 workshops are open there. Accepted: a workshop that the lecturer "
    "opens with `workbench workshop up`, and its link."
)


AGAIN_S = 10.0
"""A notebook that follows a ledger asks this often, s, whether the board is new and needs all guesses again."""
CHECK_S = 30.0
"""The scheduler checks an answer of recorded schedules within this time, s: the first one makes it read them."""


class Ledger(Protocol):
    """What keeps a person's guesses: `workbench.lessons.ledger` has it."""

    def use_alias(self, name: str) -> None:
        """Keep guesses under *name* from now on."""

    def on_new(self, callback: Callable[[Mapping[str, Any]], None]) -> Callable[[], None]:
        """Call *callback* with each new guess; returns a function that ends it."""


def joined_file() -> Path:
    """The scheduler file of the workshop that this user joined last; it holds the cluster's key."""
    return platformdirs.user_state_path("overlap-workbench") / f"workshop-joined-{socket.gethostname()}.json"


def owner_file() -> Path:
    """The text by which the board knows this user again, so that nobody else can take their alias."""
    return platformdirs.user_state_path("overlap-workbench") / "board-owner"


def join(link: Link) -> tuple[Admission, Path]:
    """Exchange *link*, look whether its cluster can be reached, and write its scheduler file, which only you can read.

    ValueError with one sentence where the link is of no use, or the cluster cannot be reached from here.
    """
    admitted = admission(link)
    try:
        open_client(admitted.target).close(timeout=ANSWER_S)
    except Failed as error:
        host, port = admitted.target.address.partition("://")[2].rsplit(":", 1)
        raise ValueError(
            f"{link} lets you in, but port {port} of {host} cannot be reached from here ({first_line(error)}). "
            f"Accepted: a network or firewall that lets TCP to port {port} pass, as to the port of the link."
        ) from error
    file = joined_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_target(file, admitted.target, workshop={"seat": admitted.seat, "ends_at": admitted.ends_at})
    except OSError as error:
        raise Failed(f"The key of the workshop cannot be kept in {file} ({files.reason(error)}). Accepted: a HOME, or "
                     "XDG_STATE_HOME, whose folders you may write.") from error  # fmt: skip
    return admitted, file


class ClassBoard:
    """The class board of one workshop, from one person's side; what was sent is sent again to a board that is new."""

    def __init__(self, target: SchedulerTarget) -> None:
        self.target = target
        self._client: Client | None = None
        self._board = ""
        """Name of the board that has all of `_sent`; another one begins without it."""
        self._sent: dict[tuple[str, str], Entry] = {}
        """This person's guesses, by lesson and question."""
        self._owner = _owner()
        self._asking = threading.RLock()
        """Held by whoever asks the board: a person, or the thread that follows their ledger."""
        self._followed: list[Callable[[], None]] = []
        """Each ends one ledger's following."""

    @classmethod
    def connect(cls, scheduler: str | Path | SchedulerTarget | None = None) -> ClassBoard:
        """The board at an address or scheduler file, by default of the lab's cluster; ValueError where none is open."""
        board = cls(target_in(scheduler if scheduler is not None or scheduler_file.path().exists() else joined_file()))
        board._board = board._call("guesses")["board"]
        return board

    def submit(self, entry: Mapping[str, Any]) -> None:
        """Send a guess, a dictionary with the keys of `cluster.workshop.board.FIELDS`, or replace an earlier one.

        ValueError with one sentence where the board refuses it, such as for an alias that is taken. Failed where the
        cluster does not answer: the guess is then sent with the next one.
        """
        full = {name: entry.get(name) for name in FIELDS} | dict(entry)
        full["at"] = full["at"] if full["at"] is not None else time.time()
        key = str(full["lesson"]), str(full["question"])
        before = self._sent.get(key)
        self._sent[key] = full
        try:
            self._send(full)
        except Failed:
            self._board = ""  # which may have missed it: the next success sends all again
            raise
        except ValueError:  # it will never be taken
            if before is None:
                del self._sent[key]
            else:
                self._sent[key] = before
            raise

    def claim(self, alias: str) -> None:
        """Take *alias* for this person; ValueError with a free one like it where somebody else has it."""
        self._call("claim", owner=self._owner, alias=alias, link=self.target.link)

    def follow(self, alias: str, ledger: Ledger) -> Callable[[], None]:
        """Take *alias*, and send each guess that *ledger* keeps from now on; returns a function that ends it.

        A thread sends, so that a cluster that is gone keeps nobody from guessing. Once in `AGAIN_S` it also sends all
        to a board that is new, or missed something. ValueError where the alias is taken.
        """
        self.claim(alias)
        ledger.use_alias(alias)
        guesses: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()

        def send() -> None:
            while True:
                with contextlib.suppress(ValueError):  # kept for the next time, or refused by the board
                    try:
                        entry = guesses.get(timeout=AGAIN_S)
                    except queue.Empty:
                        self._catch_up(alias)
                        continue
                    if entry is None:
                        return
                    self.submit(entry)

        threading.Thread(target=send, name="workbench class board", daemon=True).start()
        end = ledger.on_new(guesses.put)

        def stop() -> None:
            if stop in self._followed:
                self._followed.remove(stop)
                end()
                guesses.put(None)

        self._followed.append(stop)
        return stop

    def answer(self, alias: str, answer: Any, lesson: int | str = 8) -> None:
        """Enter the best of an *answer* of recorded schedules, such as the numbers of lesson 8.

        The scheduler checks it with the workbench's own check; ValueError where that finds it wrong.
        """
        self._call("answer", owner=self._owner, alias=alias, lesson=str(lesson), answer=answer)

    def enter(self, alias: str, trial: Trial, lesson: int | str = 8) -> None:
        """Enter a schedule for the best of the class: the board takes the time that ranks of the cluster measured.

        ValueError where they did not measure *trial* in this workshop, or found its result wrong.
        """
        self._call("enter", owner=self._owner, alias=alias, lesson=str(lesson), trial=trial.to_json())

    def guesses(self) -> list[Entry]:
        """Guesses of all, in their order; `revealed` says whether estimate, measurement and source are shown."""
        return list(self._call("guesses")["entries"])

    def best(self) -> list[Entry]:
        """The best schedules so far, verified, the fastest first.

        Keys: lesson, alias, problem, schedule, time_s, low_s and high_s (s), key and at (Unix time).
        """
        return list(self._call("best")["entries"])

    def close(self) -> None:
        """Disconnect, and follow no ledger any more; the board keeps what was sent."""
        for stop in list(self._followed):
            stop()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close(timeout=ANSWER_S)
            self._client = None

    def __enter__(self) -> ClassBoard:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _send(self, entry: Entry) -> None:
        answer = self._call("submit", owner=self._owner, entry=entry)
        self._send_again(answer["board"], but=entry)

    def _catch_up(self, alias: str) -> None:
        """Send all to the board where it is a new one, or missed something."""
        self._send_again(self._call("claim", owner=self._owner, alias=alias, link=self.target.link)["board"])

    def _send_again(self, board: str, but: Entry | None = None) -> None:
        """Send all guesses *but* one to *board*, unless it has them; Failed where it falls silent meanwhile."""
        if board == self._board:
            return
        for entry in list(self._sent.values()):
            if entry is not but:
                try:
                    self._call("submit", owner=self._owner, entry=entry)
                except Failed:
                    raise  # this board does not have all
                except ValueError:
                    continue  # somebody was quicker with the alias
        self._board = board

    def _call(self, question: str, **facts: Any) -> dict[str, Any]:
        async def asked(scheduler: Any) -> Any:
            return await getattr(scheduler, f"workbench_workshop_{question}")(**facts)

        try:
            with self._asking:
                client = self._connected()
                within_s = CHECK_S if question == "answer" else ANSWER_S
                answer = client.sync(asked, client.scheduler, callback_timeout=within_s)
        except Exception as error:  # a closed connection, and whatever Dask makes of a late answer
            if isinstance(error, ValueError) and not isinstance(error, Failed):
                raise
            self._disconnect()
            raise Failed(
                f"The class board at {self.target.address} does not answer "
                f"({first_line(error) or type(error).__name__}). Your guesses are kept here, and sent with the next "
                "one. Accepted: the same again, in a while."
            ) from error
        if not isinstance(answer, Mapping):  # Dask's answer about an operation that the scheduler does not have
            raise ValueError(_NO_BOARD.format(address=self.target.address))
        if trouble := answer.get("trouble"):
            raise ValueError(trouble)
        return dict(answer)

    def _connected(self) -> Client:
        if self._client is None or self._client.status != "running":
            self._disconnect()
            self._client = open_client(self.target)
        return self._client


def _owner() -> str:
    """This user's text, which is made once; a new one where it cannot be kept."""
    file = owner_file()
    with contextlib.suppress(OSError):
        if (text := file.read_text().strip()) != "":
            return text
    text = secrets.token_hex(16)
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(file, text, mode=0o600)
    return text
