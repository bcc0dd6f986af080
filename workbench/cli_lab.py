"""Commands about where things run: lab, cluster, doctor."""

from __future__ import annotations

import signal
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench import cli_options as options
from workbench.cli_show import say, show_rows, show_table

cluster = typer.Typer(help="A cluster of ranks that stays warm until it is told to end.", no_args_is_help=True,
                      rich_markup_mode=None)  # fmt: skip
Ranks = Annotated[int | None, typer.Option(min=1, help="Default: one per GPU, or per core, then 4 to 8.")]


def lab(
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address instead.")] = False,
    ranks: Ranks = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: the first that is free.")] = None,
    no_calibration: Annotated[bool, typer.Option("--no-calibration", help="Keep the machine file as it is.")] = False,
    address: options.Cluster = None,
) -> None:
    """JupyterLab on the explorer notebook, with the local cluster or the one at an address. Ctrl-C ends it."""
    from contextlib import ExitStack, suppress

    from cluster import launch
    from cluster.dispatch import Cluster
    from workbench.calibration import in_background, is_calibrated_here
    from workbench.lab import jupyter

    for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal must not leave JupyterLab behind
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        server = stack.enter_context(jupyter(port))  # both take seconds to start, and do so beside each other
        if address is not None:
            found = stack.enter_context(launch.borrow(address))
        else:
            found = launch.running() or stack.enter_context(launch.local(ranks))
        say(f"Cluster: {found.num_ranks} ranks at {found.address}. Ctrl-C ends the lab.")
        url = server.explorer()
        print(url, flush=True)
        if not no_browser:
            webbrowser.open(url)
        if address is None and not no_calibration and not is_calibrated_here():
            # not before the server listens: its start would disturb what is timed, and be disturbed
            stack.enter_context(in_background(Cluster.connect, say))
        say(f"JupyterLab ended with exit code {server.process.wait()}.")


@cluster.command()
def up(
    kind: Annotated[str, typer.Option(help="local, ssh, slurm or kubernetes.")] = "local",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One field of the kind, as num_ranks=4 or hosts=a,b.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Start a cluster that notebooks and commands find by themselves."""
    from dataclasses import asdict

    from cluster import launch
    from workbench.request import pairs

    record = launch.up(kind, **_fields(kind, dict(pairs(settings or (), "--set"))))
    if json:
        show_rows([asdict(record)], {"count": 1})
    else:
        say(f"Cluster of kind {record.kind}: {record.num_ranks} ranks at {record.address}. "
            "`workbench cluster down` ends it.")  # fmt: skip


def _fields(kind: str, texts: dict[str, str]) -> dict[str, Any]:
    """Texts as the kinds of values that the fields of a cluster's kind hold."""
    from inspect import signature

    from cluster.launch import KINDS

    known = signature(KINDS[kind]).parameters if kind in KINDS else {}
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        stated = str(known[name].annotation) if name in known else "str"
        if stated.startswith("Sequence"):
            fields[name] = text.split(",")
        elif stated == "int":
            if not text.isdigit():
                raise ValueError(f"--set {name}={text} was asked for, but {name} is a whole number, such as {name}=4.")
            fields[name] = int(text)
        else:
            fields[name] = text
    return fields


@cluster.command()
def status(address: options.Cluster = None, json: options.Json = False) -> None:
    """Who is in the cluster, and what each worker does now."""
    from cluster import launch

    rows = launch.status(address)
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    columns = ("name", "host", "state", "client", "cores", "trouble")
    show_table("", columns, ([row.get(name) for name in columns] for row in rows), right=("cores",))


@cluster.command()
def down(json: options.Json = False) -> None:
    """End the cluster that `up` started."""
    from dataclasses import asdict

    from cluster import launch

    record = launch.down()
    if json:
        show_rows([asdict(record)], {"count": 1})
    else:
        say(f"The cluster of {record.num_ranks} ranks at {record.address} has ended.")


def doctor(
    address: options.Cluster = None,
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """What this host and the ranks' hosts have, and what is missing."""
    from contextlib import ExitStack

    from cluster import launch, probe
    from cluster.dispatch import open_client

    with ExitStack() as stack:
        asked = address is not None or launch.running() is not None
        client = stack.enter_context(open_client(address)) if asked else None
        rows = probe.rows(client)
    found = {"cluster": "found" if asked else "none is running: `workbench lab` or `workbench cluster up` starts one",
             "store": _store(store), "pdf": _browser()}  # fmt: skip
    if json:
        show_rows(rows, found)
        return
    keys = list(dict.fromkeys(key for row in rows for key in row))
    places = [str(row["place"]) for row in rows]
    show_table(
        "", ("", *places), ([key, *(_text(key, row.get(key)) for row in rows)] for key in keys if key != "place")
    )
    show_table("", ("", "here"), found.items())


def _text(key: str, value: Any) -> Any:
    from kernels.units import bytes_text

    return bytes_text(value) if key.endswith("_bytes") and isinstance(value, int | float) else value


def _store(path: Path | None) -> str:
    from workbench.store import Store

    try:
        with Store(path) as opened:
            return f"{opened.path}, {len(opened.runs())} of the newest runs"
    except ValueError as error:
        return str(error)


def _browser() -> str:
    from workbench.reports.pdf import browser

    try:
        return str(browser())
    except ValueError as error:
        return str(error)
