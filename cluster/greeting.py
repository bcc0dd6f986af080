"""Is it a Dask scheduler that answers at an address? Asked aside, so that whatever else answers can hang nobody."""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
import time
from typing import Any

from distributed import Security
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect

from cluster import certificate
from cluster.scheduler_file import Target, knock

_TAKEN = "taken"
"""Said once somebody took the connection."""

Said = queue.SimpleQueue[Any]


def stranger_at(target: Target, within_s: float) -> str | None:
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


def _ask(target: Target, within_s: float, said: Said) -> None:
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


async def _identity(target: Target, within_s: float) -> Any:
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
