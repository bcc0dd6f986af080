"""Commands of a workshop: the lecturer's `workshop up` and `down`, and each student's `join`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli import lab, options
from workbench.cli.output import say, show_rows

if TYPE_CHECKING:
    from cluster.workshop.hosting import Workshop

workshop = typer.Typer(help="One cluster for a class: links, a class board, answers that all share.",
                       no_args_is_help=True, rich_markup_mode=None)  # fmt: skip
MAY = (
    "Each link is a key: whoever joins may run any program on the cluster's hosts, as you. Give each student one, by a "
    "way that only they read. No log and no report has a link; this command prints them again."
)
"""What a link allows, as `up` says it; docs/security.md says it, too."""


@workshop.command()
def up(
    students: Annotated[int, typer.Option(help="The number of links.")] = 30,
    ranks: lab.Ranks = None,
    hours: Annotated[float, typer.Option(help="How long links let people in.")] = 8.0,
    host: Annotated[
        str | None, typer.Option(help="How laptops reach this host. Default: its address in its network.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the links; the cluster has the next one.")] = 8788,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Open a workshop on your running cluster, or on a new one, and print one link per student and the class board."""
    from cluster.workshop import hosting
    from workbench.reports.class_page import class_page
    from workbench.resources import runs_directory

    plan = hosting.Plan(students=students, hours=hours, ranks=ranks, host=host, port=port, cluster=cluster)
    opened, is_new = hosting.open_workshop(plan, class_page, runs_directory() / "clusters")
    if json:
        show_rows(
            [{"student": number, "link": link} for number, link in enumerate(opened.links, start=1)],
            {"address": opened.address, "ranks": opened.num_ranks, "page": opened.page, "ends_at": opened.ends_at,
             "new": is_new, "cluster_ends_with_it": opened.started_cluster},
        )  # fmt: skip
        return
    _show(opened, is_new)


def _show(opened: Workshop, is_new: bool) -> None:
    """Prints the links on stdout, so that a pipe has nothing else, and all that is said about them on stderr."""
    if not is_new:
        say("The workshop is open, with the links that it had: options of this command were not used.")
    width = len(str(len(opened.links)))
    for number, link in enumerate(opened.links, start=1):
        print(f"{number:{width}}  {link}")
    sys.stdout.flush()
    say(MAY)
    say(f"They let people in until {_until(opened.ends_at)}; who has joined stays until `workbench workshop down`.")
    say(f"Each student installs this version and says: workbench join 'LINK'. {_reach(opened)}")
    say(f"Class board, on the cluster's host: {opened.page}")
    if not opened.is_here:
        host = opened.address.partition("://")[2].rpartition(":")[0]
        say(f"From here: ssh -L {opened.page_port}:127.0.0.1:{opened.page_port} {host}, then open that address.")
    ends = "ends it with its cluster" if opened.started_cluster else "ends it; the cluster stays"
    ranks = "1 rank" if opened.num_ranks == 1 else f"{opened.num_ranks} ranks"
    say(f"{ranks} at {opened.address}. `workbench workshop down` {ends}.")


def _reach(opened: Workshop) -> str:
    """Who can reach the workshop, and what a firewall must let pass."""
    port = opened.address.rpartition(":")[2]
    if opened.certificate is None:
        return "Nothing is encrypted, so only users of the cluster's own host and network should be there."
    return f"A firewall must let them to TCP ports {opened.port} and {port} of this address."


def _until(ends_at: float) -> str:
    """A time of today, or with its date; and how long that is from now."""
    moment, now = time.localtime(ends_at), time.localtime()
    form = "%H:%M" if moment[:3] == now[:3] else "%H:%M on %Y-%m-%d"
    hours = max(0.0, ends_at - time.time()) / 3600
    return f"{time.strftime(form, moment)} ({hours:.1f} h from now)"


@workshop.command()
def down(json: options.Json = False) -> None:
    """End the workshop that `up` opened: links, board and keys are gone, and the cluster that it started."""
    from cluster.workshop import hosting

    closed = hosting.close_workshop()
    if json:
        show_rows([{"address": closed.address, "cluster_ended": closed.started_cluster}], {"count": 1})
        return
    cluster = "with its cluster" if closed.started_cluster else f"; the cluster at {closed.address} stays"
    say(f"The workshop has ended{' ' if closed.started_cluster else ''}{cluster}. Its {len(closed.tokens)} links open "
        "nothing any more.")  # fmt: skip


def join(
    link: Annotated[str | None, typer.Argument(help="The link, in quotes. Without it the command asks.")] = None,
    no_lab: Annotated[
        bool, typer.Option("--no-lab", help="Print the next commands instead of opening the lab.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the lab's address instead.")] = False,
) -> int:
    """Join a workshop by its link, which is a key, and open the lab on its cluster."""
    from cluster.workshop import client
    from cluster.workshop.links import Link

    text = link if link is not None else input("Link: ") if sys.stdin.isatty() else sys.stdin.readline()
    admitted, file = client.join(Link.parse(text))
    say(f"You are in, with link {admitted.seat}: the cluster is at {admitted.target.address}. Its key is in {file}, "
        "which only you can read.")  # fmt: skip
    again = f"`workbench lab --cluster {file}`"
    if no_lab:
        print(f"workbench lab --cluster {file}")
        print(f"workbench run gemm_all_to_all --preset laptop_ladder --cluster {file}")
        return 0
    say(f"The lab opens. To open it again: {again}.")
    return lab.lab(no_browser=no_browser, ranks=None, port=None, no_calibration=True, address=str(file))
