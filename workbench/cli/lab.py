"""Commands about the place of runs: lab, cluster, doctor."""

from __future__ import annotations

import os
import re
import signal
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.files import Failed
from workbench import resources
from workbench.cli import exit_status, missing, options
from workbench.cli.output import TableColumn, say, show_rows, show_table, show_text
from workbench.cli.sessions import is_elsewhere

if TYPE_CHECKING:
    from contextlib import ExitStack

    from cluster.scheduler_file import Record
    from workbench.lab import Server

cluster = typer.Typer(help="A cluster of ranks that stays warm until you end it.", no_args_is_help=True,
                      rich_markup_mode=None)  # fmt: skip
MOST_COUNTED = 50
"""The most runs of a store that are counted."""
Ranks = Annotated[int | None, typer.Option(min=1, help="Default: one per GPU, or per core, then 4 to 8.")]


CLUSTER_WAITS_SECONDS = 10.0
"""The longest wait of the cluster for the page."""


def lab(
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address instead.")] = False,
    ranks: Ranks = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: the first that is free.")] = None,
    no_calibration: Annotated[bool, typer.Option("--no-calibration", help="Keep the machine file as it is.")] = False,
    address: options.Cluster = None,
) -> int:
    """Open JupyterLab on the explorer notebook, with the local cluster or one at an address. Ctrl-C ends it."""
    from contextlib import ExitStack, suppress

    from workbench.lab import jupyter

    for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal must not leave JupyterLab behind
        signal.signal(number, signal.default_int_handler)
    if ranks is not None:  # refused before a server starts
        from cluster.launch.local import Local

        if (message := Local(num_ranks=ranks).refusal()) is not None:
            raise ValueError(message)
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        server = stack.enter_context(jupyter(port))
        from workbench.lab import opened  # all of this takes seconds, and does so while the server starts

        page = stack.enter_context(opened(server, lambda url: show_address(url, server, no_browser)))
        from cluster import launch
        from cluster.client import Cluster
        from workbench.experiment.calibration import in_background, is_calibrated_here

        cluster = stack.enter_context(launch.borrow(address)) if address is not None else launch.running()
        page.check()
        if cluster is None:
            # ranks take several times the processor time of the page to start, and nobody needs them before it
            page.wait_shown(CLUSTER_WAITS_SECONDS)
            cluster = _started_or_anothers(stack, ranks)
        say(f"Cluster: {cluster.num_ranks} ranks at {cluster.address}. Ctrl-C ends the lab.")
        if not no_calibration and (is_elsewhere(address) or not is_calibrated_here()):
            stack.enter_context(in_background(lambda: Cluster.connect(address), say, page.wait_shown))
        for message in resources.messages():  # now, and not when the lab ends
            say(message)
        resources.begin()
        code = server.process.wait()
        say(f"JupyterLab ended with exit code {code}.")
        return exit_status.FAILED if code else exit_status.DONE
    return exit_status.DONE  # Ctrl-C is how a lab ends


def _started_or_anothers(stack: ExitStack, ranks: int | None) -> Record:
    """A local cluster that ends with *stack*, or the one that another lab published while this one started."""
    from cluster import launch

    try:
        return stack.enter_context(launch.local(ranks, share_gpu=launch.shares_by_default(ranks)))
    except ValueError:
        if (other := launch.running()) is None:
            raise
        say("Another lab was quicker: this one uses its cluster, which ends with that lab.")
        return other


def show_address(url: str, server: Server, no_browser: bool) -> None:
    """Prints the address, for browsers on other hosts, and opens it if there is a screen."""
    print(url, flush=True)
    # where there is no screen Python would open a browser of letters, in this terminal
    blind = sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not no_browser and not blind:
        webbrowser.open(server.lead(url))


@cluster.command()
def up(
    kind: Annotated[str, typer.Option(help="local, ssh, slurm or kubernetes.")] = "local",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One field of the kind, as num_ranks=4 or hosts=a,b.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Start a cluster, which notebooks and commands then use by default."""
    from dataclasses import asdict

    from cluster import launch
    from workbench.experiment.fields import pairs
    from workbench.resources import runs_directory

    fields = _fields(kind, dict(pairs(settings or (), "--set", "num_ranks=4")))
    record = launch.up(kind, runs_directory() / "clusters", **fields)
    if json:
        show_rows([asdict(record)], {"count": 1})
        return
    say(f"Cluster of kind {record.kind}: {record.num_ranks} ranks at {record.address}. "
        "`workbench cluster down` ends it.")  # fmt: skip
    if record.for_clients is not None:
        say(f"Others need {record.for_clients} to use it: give it to them as you would give a password, and they run "
            "`workbench lab --cluster FILE`. Your own notebooks and commands use it by default.")  # fmt: skip


def _fields(kind: str, texts: dict[str, str]) -> dict[str, Any]:
    """The *texts* as values of the fields of a cluster's kind."""
    from inspect import signature

    from cluster.launch.kinds import KINDS

    known = signature(KINDS[kind]).parameters if kind in KINDS else {}
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        annotation = str(known[name].annotation) if name in known else "str"
        if annotation.startswith("Sequence"):
            fields[name] = text.split(",")
        elif annotation == "bool":
            if text not in ("yes", "no"):
                raise ValueError(f"--set {name}={text:.40} does not fit. Accepted: yes or no, such as {name}=yes.")
            fields[name] = text == "yes"
        elif annotation == "int":
            if re.fullmatch("[0-9]{1,9}", text) is None:
                raise ValueError(f"--set {name}={text:.40} does not fit. Accepted: a whole number, such as {name}=4.")
            fields[name] = int(text)
        else:
            fields[name] = text
    return fields


@cluster.command()
def status(address: options.Cluster = None, json: options.Json = False) -> None:
    """List the workers of the cluster, and what each one does now."""
    from cluster import launch

    rows = launch.status(address)
    if json:
        show_rows(rows, {"count": len(rows)})
        return
    kinds = {"name": "name", "cores": "number", "state": "name", "host": "name", "gpu": "words", "holder": "words",
             "trouble": "words"}  # fmt: skip
    show_table(
        [TableColumn(key, [row.get(key) for row in rows], kind, inline=f"{key} {{}}") for key, kind in kinds.items()]
    )


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
    fetch_nccl: Annotated[
        bool, typer.Option("--fetch-nccl", help="Download the NCCL that kernels link to put between hosts, 300 MB.")
    ] = False,
) -> int:
    """Show what this host and the ranks' hosts have, and what is missing."""
    from contextlib import ExitStack

    from cluster import hosts, launch
    from cluster.connection import open_client
    from kernels.backends.triton.gin import wheel

    if fetch_nccl:
        fetched = wheel.fetch()
        say(f"NCCL {wheel.VERSION} is in {fetched.folder}. Its license: {fetched.license()}.")
    cluster_text, status = "none is running: `workbench lab` or `workbench cluster up` starts one", exit_status.DONE
    with ExitStack() as stack:
        client = None
        if address is not None or launch.running() is not None:
            try:
                client, cluster_text = stack.enter_context(open_client(address)), "found"
            except Failed as error:  # this host is still shown
                cluster_text, status = str(error), exit_status.FAILED
        rows = hosts.doctor_rows(client)
    facts = {"cluster": cluster_text, "store": _store(store), "pdf": _browser()}
    if json:
        show_rows(rows, facts)
        return status
    _show_places(rows)
    print()
    show_table([TableColumn("", list(facts), "name"), TableColumn("", list(facts.values()))])
    return status


def _show_places(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints facts that are the same on all hosts once, then those that differ."""
    first, *workers = rows
    places = [first, *sorted(workers, key=lambda row: str(row["place"]))]
    texts = [{key: _text(key, value) for key, value in row.items() if key != "place"} for row in places]
    keys = list(dict.fromkeys(key for text in texts for key in text))
    alike = [key for key in keys if len({text.get(key) for text in texts}) == 1]
    names = [str(row["place"]) for row in places]
    show_text(f"{', '.join(names)}:")
    show_table(
        [TableColumn("", [_title(key) for key in alike], "name"), TableColumn("", [texts[0].get(key) for key in alike])]
    )
    if apart := [key for key in keys if key not in alike]:
        print()
        show_table([TableColumn("", names, "name"),
                    *(TableColumn(_title(key), [text.get(key) for text in texts], inline=f"{_title(key)} {{}}")
                      for key in apart)])  # fmt: skip


def _title(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _text(key: str, value: Any) -> str | None:
    from kernels.units import bytes_text

    if key.endswith("_bytes") and isinstance(value, int | float):
        return bytes_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _store(path: Path | None) -> str:
    from workbench.results.store import Store, store_path

    if not store_path(path).exists():
        return f"{store_path(path)} is not there yet: `workbench run` begins it"
    try:
        with Store(path) as opened:
            count = len(opened.runs(MOST_COUNTED))
            some = f"{count} or more" if count == MOST_COUNTED else count
            return f"{opened.path}, {some} {'run' if count == 1 else 'runs'}"
    except ValueError as error:
        return str(error)


def _browser() -> str:
    try:
        from workbench.reports.render import browser

        return str(browser())
    except ImportError as error:  # what is missing here is what people ask the doctor
        return missing.message(error) or str(error)
    except ValueError as error:
        return str(error)
