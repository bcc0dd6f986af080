"""Connects a Dask client to a scheduler of the same Python, Dask and broker protocol; otherwise one clear message."""

from __future__ import annotations

import asyncio
import asyncio.log
import logging
import queue
import re
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

import platformdirs
from distributed import Client, Security
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect

from cluster import agreement, broker, certificate
from cluster.scheduler_file import KNOCK_S, SchedulerTarget, knock, target_in
from kernels.files import Failed

# Does a Dask scheduler answer at an address? A thread asks, so that whatever else answers cannot hang the caller.

_CONNECTED = "taken"
"""Put into the queue once something has accepted the connection."""

Answers = queue.SimpleQueue[Any]


def unreachable_reason(target: SchedulerTarget, within_s: float) -> str | None:
    """Why *target* cannot be reached, as the end of a sentence; None when a Dask scheduler answered in time.

    Dask's own client waits long for a silent port, and takes the first bytes of any other protocol for the length of a
    message.
    """
    answers: Answers = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(target, within_s, answers), name="workbench-greeting", daemon=True).start()
    give_up_at = time.monotonic() + within_s
    connected = False
    while True:
        try:
            answer = answers.get(timeout=max(0.0, give_up_at - time.monotonic()))
        except queue.Empty:
            answer = TimeoutError()
        if answer == _CONNECTED:
            connected = True
        else:
            return _reason(answer, connected, within_s)


def speaks_tls(address: str, within_s: float) -> bool:
    """Whether a TLS server listens at *address*, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(get_address_host_port(address), timeout=within_s) as connection:
            context.wrap_socket(connection).close()
    except (OSError, ValueError, OverflowError):  # nothing listens, or this is no address
        return False
    return True


def _ask(target: SchedulerTarget, within_s: float, answers: Answers) -> None:
    """Put what *target* answers into *answers*. Runs in a thread of its own, which may be left behind."""
    try:
        knock(target, within_s)
        answers.put(_CONNECTED)
        answers.put(asyncio.run(asyncio.wait_for(_identity(target, within_s), within_s)))
    except ssl.SSLCertVerificationError as error:
        answers.put(_CONNECTED)
        answers.put(error)
    except ssl.SSLError as error:  # no TLS there
        answers.put(_CONNECTED)
        answers.put(error)
    except Exception as error:  # of any kind: these may be the bytes of any protocol
        answers.put(error)


async def _identity(target: SchedulerTarget, within_s: float) -> Any:
    settings = Security() if target.certificate is None else target.certificate.security()
    comm = await connect(target.address, timeout=within_s, **settings.get_connection_args("client"))
    try:
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()
    finally:
        comm.abort()


def _reason(answer: Any, connected: bool, within_s: float) -> str | None:
    if isinstance(answer, dict) and answer.get("type") == "Scheduler":
        return None
    if isinstance(answer, ssl.SSLCertVerificationError):
        if certificate.is_about_dates(answer):
            return f"the certificate that it shows {certificate.rejection(answer)}"
        return "it shows another certificate than the one that was named"
    if not connected:
        why = "" if isinstance(answer, TimeoutError) or not str(answer) else f" ({_first_line(answer)})"
        return f"nobody answered there within {within_s:.0f} s{why}"
    if isinstance(answer, TimeoutError):
        return f"something takes connections there, but did not answer as a Dask scheduler within {within_s:.0f} s"
    is_dask = isinstance(answer, dict) and "type" in answer
    what = f"a Dask {str(answer['type']).lower()}" if is_dask else _first_line(answer)
    return f"something answers there that is not a Dask scheduler ({what})"


def _first_line(answer: Any) -> str:
    return str(answer).partition("\n")[0] or type(answer).__name__


# Dask's log about ended connections goes into a file: people read our message about it.

MOST_BYTES = 500_000
"""Size of the log file; one older file of this size is kept next to it."""
LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "bokeh")
"""Loggers to which Dask, when it is imported, gives a handler that writes to standard error."""
PACKAGES = ("distributed", "tornado")
"""Packages whose abandoned tasks asyncio reports."""


def log_path() -> Path:
    """The log file, for more detail than our message has."""
    return platformdirs.user_state_path("overlap-workbench") / "dask.log"


@cache
def log_to_file() -> None:
    """Redirect these logs of this process to the file, once; handlers that the user added stay."""
    handler = _handler()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for of_dask in [each for each in logger.handlers if _is_on_stderr(each)]:
            logger.removeHandler(of_dask)
            logger.addHandler(handler)
    asyncio.log.logger.addFilter(lambda record: not _diverted(record, handler))


def _is_on_stderr(handler: logging.Handler) -> bool:
    return type(handler) is logging.StreamHandler and handler.stream in (sys.stderr, sys.__stderr__)


def _diverted(record: logging.LogRecord, handler: logging.Handler) -> bool:
    """Whether asyncio's *record* is about a task of Dask; it is then written into the file."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    names.append(type(error).__module__)
    if not any(str(name).partition(".")[0] in PACKAGES for name in names):
        return False
    handler.handle(record)
    return True


class _QuietHandler(RotatingFileHandler):
    """Drops what cannot be written, as on a full disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        return


def _handler() -> logging.Handler:
    file = log_path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = _QuietHandler(file, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=True)
    except OSError:
        return logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    return handler


# The client: connected only where both sides understand each other.

ANSWER_S = 5.0
"""The scheduler answers a question within this time, s, or counts as gone."""
_ACCEPTED = (
    "Accepted: the address of a running Dask scheduler, such as tcp://127.0.0.1:8786, or its scheduler file; "
    "`workbench lab` starts one."
)
_CERTIFIED = (
    "Accepted: the file that `workbench cluster up` named when it started the cluster, instead of the address. A "
    "restarted cluster has a new one."
)


DROPPED_S = 1.0
"""A client that an interrupt has dropped gets this long to say goodbye, s."""


_CLIENT = re.compile(r"\w+-workbench(?:-link-(?P<link>\d+))?-(?P<number>[0-9a-f]{8})-.*")
"""Ids of clients of `open_client`."""


class DroppableClient(Client):
    """Dask's client, which Ctrl-C may drop at any moment: it then ends soon, and without a traceback of Dask's."""

    def __del__(self) -> None:
        with suppress(Exception):  # its scheduler may have ended first, and Ctrl-C may have come while it was made
            self.close(timeout=DROPPED_S)


def open_client(address: str | Path | SchedulerTarget | None = None) -> Client:
    """A plain Dask client, by scheduler address or scheduler file, by default the lab's; ValueError if none answers."""
    log_to_file()
    target = target_in(address)
    security = _security(target)
    trouble = unreachable_reason(target, ANSWER_S)
    if trouble is None:
        try:
            client = DroppableClient(
                target.address, timeout=ANSWER_S, set_as_default=False, name=_name(target), security=security
            )
        except Exception as error:  # it was there a moment ago
            trouble = f"it did not accept a client ({first_line(error) or type(error).__name__})"
        else:
            return _compatible(client, target.address)
    if not target.encrypted and speaks_tls(target.address, KNOCK_S):
        trouble = "it only answers clients that have its certificate"
    certified = target.certificate is not None or "certificate" in trouble
    raise Failed(
        f"The scheduler {target.address} cannot be reached: {trouble}. {_CERTIFIED if certified else _ACCEPTED}"
    )


def _name(target: SchedulerTarget) -> str:
    """What Dask puts in the client's id."""
    return "workbench" if target.link is None else f"workbench-link-{target.link}"


def holder_text(client: str, people: Mapping[int, str] | None = None) -> str:
    """A client in words, by its id: the link of its person, with their alias in *people*, or the start of a number."""
    form = _CLIENT.fullmatch(client)
    if form is None:
        return client
    if form["link"] is None:
        return f"client {form['number']}"
    alias = (people or {}).get(int(form["link"]))
    return f"link {form['link']}" + (f" ({alias})" if alias else "")


def _security(target: SchedulerTarget) -> Security | None:
    """Dask's security settings for *target*; ValueError or Failed where it needs a certificate and has no valid one.

    A cluster that somebody else started may have its certificates in Dask's own configuration.
    """
    if target.certificate is not None:
        if (trouble := target.certificate.trouble()) is not None:
            raise Failed(f"The scheduler {target.address} cannot be reached: its certificate {trouble}. {_CERTIFIED}")
        return target.certificate.security()
    if target.encrypted and not Security().get_tls_config_for_role("client")["cert"]:
        raise ValueError(
            f"The scheduler {target.address} cannot be reached: it only answers clients that have its certificate, "
            f"and none was named. {_CERTIFIED}"
        )
    return None


def _compatible(client: Client, target: str) -> Client:
    """*client*, if both sides understand each other; closed and refused with a ValueError if not.

    Python and Dask are compared before any code is sent, then the broker's protocol before any code of ours.
    """
    try:
        refusal = agreement.incompatible_versions(target, *agreement.cluster_versions(client, ANSWER_S))
        if refusal is None:
            refusal = agreement.protocol_mismatch(target, _protocol(client), broker.PROTOCOL)
    except OSError as error:
        client.close(timeout=ANSWER_S)
        raise Failed(f"The scheduler {target} accepted a client, then fell silent ({first_line(error)}).") from error
    if refusal is not None:
        client.close(timeout=ANSWER_S)
        raise ValueError(refusal)
    return client


def _protocol(client: Client) -> int | None:
    """Protocol of the broker that runs in the scheduler, ours where none runs; None of one that reports none."""
    name, without_broker = broker.NAME, broker.PROTOCOL

    def protocol(
        dask_scheduler: Any,
    ) -> int | None:  # local, so that Dask sends its code: an older scheduler has none of it
        plugin = dask_scheduler.plugins.get(name)
        return without_broker if plugin is None else plugin.describe().get("protocol")

    return cast(int | None, client.sync(client._run_on_scheduler, protocol, callback_timeout=2 * ANSWER_S))


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler knows about each worker, by address; Failed where the scheduler is gone."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (KeyError, OSError) as error:  # Dask answers with an empty dictionary once the connection is lost
        raise Failed("The scheduler accepted a client, then fell silent. Accepted: the command again.") from error


def first_line(error: BaseException | None) -> str:
    """The first line of an error's text: Dask's errors have many."""
    return str(error).partition("\n")[0]
