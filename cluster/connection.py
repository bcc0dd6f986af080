"""A Dask client of a scheduler that is one, and that speaks as this process does; anything else is one sentence."""

from __future__ import annotations

import asyncio
import asyncio.log
import logging
import queue
import socket
import ssl
import sys
import threading
import time
import traceback
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import platformdirs
from distributed import Client, Security
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect

from cluster import agreement, certificate
from cluster.scheduler_file import KNOCK_S, SchedulerTarget, knock, target_in
from kernels.files import Failed

# Is it a Dask scheduler that answers at an address? Asked aside, so that whatever else answers can hang nobody.

_TAKEN = "taken"
"""Said once somebody took the connection."""

Said = queue.SimpleQueue[Any]


def stranger_at(target: SchedulerTarget, within_s: float) -> str | None:
    """What is the matter at *target*, as the end of a sentence; None when a Dask scheduler answered in time.

    Dask's own client waits long for a port that says nothing, and takes the first bytes of any other protocol for the
    length of a message.
    """
    said: Said = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(target, within_s, said), name="workbench-greeting", daemon=True).start()
    give_up_at = time.monotonic() + within_s
    taken = False
    while True:
        try:
            word = said.get(timeout=max(0.0, give_up_at - time.monotonic()))
        except queue.Empty:
            word = TimeoutError()
        if word == _TAKEN:
            taken = True
        else:
            return _verdict(word, taken, within_s)


def speaks_tls(address: str, within_s: float) -> bool:
    """Whether who listens at *address* begins with a certificate, whatever certificate that is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(get_address_host_port(address), timeout=within_s) as connection:
            context.wrap_socket(connection).close()
    except (OSError, ValueError, OverflowError):  # nobody, or nothing that could be an address
        return False
    return True


def _ask(target: SchedulerTarget, within_s: float, said: Said) -> None:
    """In a thread of its own, which may be left behind."""
    try:
        knock(target, within_s)
        said.put(_TAKEN)
        said.put(asyncio.run(asyncio.wait_for(_identity(target, within_s), within_s)))
    except ssl.SSLCertVerificationError as error:
        said.put(_TAKEN)
        said.put(error)
    except ssl.SSLError as error:  # somebody who does not encrypt
        said.put(_TAKEN)
        said.put(error)
    except Exception as error:  # of whatever kind: these are the bytes of a stranger
        said.put(error)


async def _identity(target: SchedulerTarget, within_s: float) -> Any:
    settings = Security() if target.certificate is None else target.certificate.security()
    comm = await connect(target.address, timeout=within_s, **settings.get_connection_args("client"))
    try:
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()
    finally:
        comm.abort()


def _verdict(word: Any, taken: bool, within_s: float) -> str | None:
    if isinstance(word, dict) and word.get("type") == "Scheduler":
        return None
    if isinstance(word, ssl.SSLCertVerificationError):
        if certificate.is_of_the_time(word):
            return f"the certificate that it shows {certificate.refused(word)}"
        return "it shows another certificate than the one that was named"
    if not taken:
        why = "" if isinstance(word, TimeoutError) or not str(word) else f" ({_first_line(word)})"
        return f"nobody answered there within {within_s:.0f} s{why}"
    if isinstance(word, TimeoutError):
        return f"something takes connections there, but did not answer as a Dask scheduler within {within_s:.0f} s"
    what = f"a Dask {str(word['type']).lower()}" if isinstance(word, dict) and "type" in word else _first_line(word)
    return f"something answers there that is not a Dask scheduler ({what})"


def _first_line(word: Any) -> str:
    return str(word).partition("\n")[0] or type(word).__name__


# What Dask and its libraries say of a connection that ended goes into a file: people read our sentence about it.

MOST_BYTES = 500_000
"""Of the file; one older file of this size is kept beside it."""
LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "bokeh")
"""To which Dask gives a handler that writes on standard error, when it is imported."""
PACKAGES = ("distributed", "tornado")
"""Whose forgotten tasks asyncio tells of."""


def path() -> Path:
    """The file, for who looks for more than our sentence."""
    return platformdirs.user_state_path("overlap-workbench") / "dask.log"


@cache
def into_file() -> None:
    """From now on, in this process; handlers that somebody has added for himself stay."""
    handler = _handler()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for dasks in [each for each in logger.handlers if _is_on_stderr(each)]:
            logger.removeHandler(dasks)
            logger.addHandler(handler)
    asyncio.log.logger.addFilter(lambda record: not _diverted(record, handler))


def _is_on_stderr(handler: logging.Handler) -> bool:
    return type(handler) is logging.StreamHandler and handler.stream in (sys.stderr, sys.__stderr__)


def _diverted(record: logging.LogRecord, handler: logging.Handler) -> bool:
    """Whether *record* of asyncio's is about a task of Dask's, which is then written into the file."""
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
    """What cannot be written, as on a full disk, is lost: nobody waits for it."""

    def handleError(self, record: logging.LogRecord) -> None:
        return


def _handler() -> logging.Handler:
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = _QuietHandler(file, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=True)
    except OSError:
        return logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    return handler


# A Dask client of a scheduler that is one, and that speaks as this process does; anything else is one sentence.

ANSWER_S = 5.0
"""The scheduler answers a question within this time or counts as gone."""
_ACCEPTED = (
    "Accepted: the address of a running Dask scheduler, such as tcp://127.0.0.1:8786, or its scheduler file; "
    "`workbench lab` starts one."
)
_CERTIFIED = (
    "Accepted: the file that `workbench cluster up` named when it started the cluster, instead of the address. A "
    "cluster that is started anew has a new one."
)


def open_client(address: str | Path | SchedulerTarget | None = None) -> Client:
    """A plain Dask client, by scheduler address or scheduler file, by default the lab's; ValueError if none answers."""
    into_file()
    target = target_in(address)
    security = _security(target)
    trouble = stranger_at(target, ANSWER_S)
    if trouble is None:
        try:
            client = Client(target.address, timeout=ANSWER_S, set_as_default=False, name="workbench", security=security)
        except Exception as error:  # it was there a moment ago
            trouble = f"it did not take a client ({first_line(error) or type(error).__name__})"
        else:
            return _agreeing(client, target.address)
    if not target.encrypted and speaks_tls(target.address, KNOCK_S):
        trouble = "it only answers who has its certificate"
    certified = target.certificate is not None or "certificate" in trouble
    raise Failed(
        f"The scheduler {target.address} cannot be reached: {trouble}. {_CERTIFIED if certified else _ACCEPTED}"
    )


def _security(target: SchedulerTarget) -> Security | None:
    """What Dask's client is given; ValueError or Failed where *target* wants a certificate and has none that is good.

    A cluster of somebody else's may have its certificates in Dask's own configuration.
    """
    if target.certificate is not None:
        if (trouble := target.certificate.trouble()) is not None:
            raise Failed(f"The scheduler {target.address} cannot be reached: its certificate {trouble}. {_CERTIFIED}")
        return target.certificate.security()
    if target.encrypted and not Security().get_tls_config_for_role("client")["cert"]:
        raise ValueError(
            f"The scheduler {target.address} cannot be reached: it only answers who has its certificate, and none "
            f"was named. {_CERTIFIED}"
        )
    return None


def _agreeing(client: Client, target: str) -> Client:
    """*client*, if both sides can read what they send each other; nothing else was asked of the cluster before."""
    try:
        sentence = agreement.stranger(target, *agreement.asked(client, ANSWER_S))
    except OSError as error:
        client.close(timeout=ANSWER_S)
        raise Failed(f"The scheduler {target} took a client, then fell silent ({first_line(error)}).") from error
    if sentence is not None:
        client.close(timeout=ANSWER_S)
        raise ValueError(sentence)
    return client


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address; Failed where it went away meanwhile."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (KeyError, OSError) as error:  # Dask answers with an empty dictionary once the connection is lost
        raise Failed("The scheduler took a client, then fell silent. Accepted: the command again.") from error


def first_line(error: BaseException | None) -> str:
    """What is worth telling of an error of Dask's."""
    return str(error).partition("\n")[0]
