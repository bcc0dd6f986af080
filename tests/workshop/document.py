"""Writes docs/results/class.md from data/checks/class.json: `python -m tests.workshop.document`.

`python -m tests.workshop ... > FILE` measures one class; the record has a list of such documents. How soon a guess is
on the lecturer's page was measured by hand, with a browser on the same computer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "data" / "checks" / "class.json"
PAGE = ROOT / "docs" / "results" / "class.md"
FIRST_MOST_S, RATIO_MOST, FREED_MOST_S = 15.0, 1.3, 60.0
"""What is promised: the first point of everybody with stub trials, granted seconds, a closed laptop."""

_HEAD = """\
# A class presses Run

How long thirty people wait who press Run at once, how equal their shares of the ranks are, and what is measured
once for all.

`python -m tests.workshop` plays it: a workshop over TLS, students that join by a link, send guesses, and press Run
again and again. Every fourth list is the lesson's and equal for all; the others are each student's own. Stub trials
sleep, so that the cluster's own share of the wait is seen, and are on two hosts of two ranks (loopback), so that
two gangs time at once. Real trials are sequential and fused of a small GEMM with all-to-all on CPU ranks of one
host: its two cores take one gang at a time.

"""
_PROMISE = f"""\
Promised with stub trials: everybody's first point within {FIRST_MOST_S:.0f} s after Run, granted seconds within a
factor of {RATIO_MOST:g} over five minutes, and a closed laptop's ranks free within {FREED_MOST_S:.0f} s. Lists that
are equal are measured once, and no trial is lost. With real trials the first point waits for those before it, and
page and terminal show the place in the queue.
"""


def who(each: dict[str, Any]) -> str:
    """The class of one column."""
    kind = "real trials" if each["real"] else f"stubs of {each['trial_s']:g} s"
    return f"{each['clients']} {'threads' if each['threads'] else 'processes'}, {each['seconds']:.0f} s, {kind}"


def rows(each: dict[str, Any]) -> dict[str, str]:
    """The figures of one class by their names."""
    first, granted, load = each["first_point_s"], each["granted_s"], each["load_average"]
    freed = each["closed_laptop_freed_s"]
    return {
        "first point after Run, median and worst": f"{first['median']:.1f} s, {first['worst']:.1f} s",
        "granted seconds, least and most": f"{granted['least']:.1f} s, {granted['most']:.1f} s",
        "their ratio": f"{granted['ratio']:.2f}",
        "runs, failed trials": f"{each['runs']:,}, {each['failed_trials']}",
        "lists measured, shared": f"{each['lists_measured']:,}, {each['lists_shared']:,}",
        "students who saw their place, longest queue": f"{each['saw_their_place']}, {each['longest_queue_seen']}",
        "ranks of a closed laptop free after": "not tried" if freed is None else f"{freed:.1f} s",
        "made": each["made"].replace("T", " ").removesuffix("+00:00"),
        "cores, load average": f"{each['cores']}, {load[0]:.1f} to {load[1]:.1f}",
    }


def text(record: dict[str, Any]) -> str:
    """The page about the classes in *record*, and how soon its class board shows a guess."""
    classes, page = record["classes"], record["page"]
    columns = [rows(each) for each in classes]
    lines = [f"| | {' | '.join(map(who, classes))} |", f"|---{'|---' * len(classes)}|"]
    lines += [f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]]
    low, high = page["load_average"]
    live = (
        f"The lecturer's page drew a guess {page['median_s']:.1f} s after it was sent, {page['worst_s']:.1f} s at most "
        f"({page['guesses']} guesses, {page['made']}, load average {low} to {high}).\n"
    )
    return _HEAD + "\n".join(lines) + "\n\n" + _PROMISE + "\n" + live


def main() -> None:
    PAGE.write_text(text(json.loads(RECORD.read_text())))


if __name__ == "__main__":
    main()
