"""A Dask client of a scheduler that is one, and that speaks as this process does; anything else is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distributed import Client, Security

from cluster import agreement, noise
from cluster.greeting import speaks_tls, stranger_at
from cluster.scheduler_file import KNOCK_S, Target, target_in
from kernels.failed import Failed

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


def open_client(address: str | Path | Target | None = None) -> Client:
    """A plain Dask client, by scheduler address or scheduler file, by default the lab's; ValueError if none answers."""
    noise.into_file()
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


def _security(target: Target) -> Security | None:
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
