"""A Dask client of a scheduler that is one, and that speaks as this process does; anything else is one sentence."""

from __future__ import annotations

from pathlib import Path

from distributed import Client

from cluster import agreement
from cluster.greeting import stranger_at
from cluster.scheduler_file import address_in
from kernels.failed import Failed

ANSWER_S = 5.0
"""The scheduler answers a question within this time or counts as gone."""


def open_client(address: str | Path | None = None) -> Client:
    """A plain Dask client, by scheduler address or scheduler file, by default the lab's; ValueError if none answers."""
    target = address_in(address)
    trouble = stranger_at(target, ANSWER_S)
    if trouble is None:
        try:
            client = Client(target, timeout=ANSWER_S, set_as_default=False, name="workbench")
        except Exception as error:  # it was there a moment ago
            trouble = f"it did not take a client ({first_line(error) or type(error).__name__})"
        else:
            return _agreeing(client, target)
    raise Failed(
        f"The scheduler {target} cannot be reached: {trouble}. Accepted: the address of a running Dask scheduler, "
        "such as tcp://127.0.0.1:8786, or its scheduler file; `workbench lab` starts one."
    )


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


def first_line(error: BaseException | None) -> str:
    """What is worth telling of an error of Dask's."""
    return str(error).partition("\n")[0]
