"""`workbench workshop` and `workbench join`: links on stdout, all that is said about them on stderr."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.scheduler_file import SchedulerTarget
from cluster.workshop import client, hosting
from cluster.workshop.hosting import Plan, Workshop
from cluster.workshop.links import Admission, Link
from workbench import cli
from workbench.cli import lab

TOKENS = ("0123456789abcdef", "fedcba9876543210")
OPEN = Workshop(address="tls://192.0.2.7:8789", origin="https://192.0.2.7:8788", page_port=4711,
                ends_at=time.time() + 3600.0, num_ranks=8, started_cluster=True, host="192.0.2.7", port=8788,
                tokens=TOKENS, page_key="k" * 16, certificate=None, folder="clusters")  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def status(*words: str) -> tuple[int, str, str]:
        code = cli.status(list(words))
        return code, *capsys.readouterr()

    return status


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of workshops that were asked for; none is really opened."""
    plans: list[Plan] = []

    def open_workshop(plan: Plan, files: Any, folder: Path) -> tuple[Workshop, bool]:
        assert files()["/workshop"][1].startswith(b"<!doctype html>")
        plans.append(plan)
        return OPEN, len(plans) == 1

    monkeypatch.setattr(hosting, "open_workshop", open_workshop)
    return plans


@pytest.mark.slow
def test_up_prints_links_alone_and_says_what_they_allow(run: Run, opened: list[Plan]) -> None:
    code, out, err = run("workshop", "up", "--students", "2", "--ranks", "8", "--hours", "1")
    assert code == 0
    assert out.splitlines() == [f"{number}  {link}" for number, link in enumerate(OPEN.links, start=1)]
    said = " ".join(err.split())
    for sentence in ("Each link is a key: whoever joins may run any program on the cluster's hosts, as you.",
                     "They let people in until", "workbench join 'LINK'", "http://127.0.0.1:4711/workshop#kkkk",
                     "`workbench workshop down` ends it with its cluster."):  # fmt: skip
        assert sentence in said
    assert opened == [Plan(students=2, ranks=8, hours=1.0)]


@pytest.mark.slow
def test_up_again_says_that_it_is_open(run: Run, opened: list[Plan]) -> None:
    run("workshop", "up")
    _, _, err = run("workshop", "up")
    assert "The workshop is open, with the links that it had" in err


@pytest.mark.slow
def test_up_as_json_is_one_document(run: Run, opened: list[Plan]) -> None:
    code, out, _ = run("workshop", "up", "--json")
    document = json.loads(out)
    assert code == 0
    assert [row["link"] for row in document["rows"]] == OPEN.links
    assert document["summary"]["page"] == OPEN.page


def test_a_workshop_elsewhere_has_its_page_there(run: Run, opened: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = replace(OPEN, address="tls://node7:8789", started_cluster=False)
    monkeypatch.setattr(hosting, "open_workshop", lambda *_: (elsewhere, True))
    _, _, err = run("workshop", "up")
    assert "ssh -L 4711:127.0.0.1:4711 node7" in " ".join(err.split())


def test_down_without_a_workshop_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, out, err = run("workshop", "down")
    assert (code, out) == (2, "")
    assert "There is no workshop to end: you have 0 on this host." in err


@pytest.mark.parametrize("link", ["", "https://example.org", f"https://127.0.0.1:9/join#{TOKENS[0]}.{TOKENS[1]}"])
def test_a_link_that_is_none_or_gone_is_one_sentence(run: Run, link: str) -> None:
    code, out, err = run("join", link, "--no-lab")
    assert (code, out) == (2, "")
    assert "Accepted: " in err
    assert not [token for token in TOKENS if token in err]


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "joined.json"
    admission = Admission(target=SchedulerTarget("tls://192.0.2.7:8789"), seat=5, ends_at=0.0)
    monkeypatch.setattr(client, "join", lambda link: (admission, file))
    return file


def test_join_prints_the_next_commands(run: Run, admitted: Path) -> None:
    code, out, err = run("join", f"{OPEN.links[0]}.{TOKENS[1]}", "--no-lab")
    assert code == 0
    assert out.splitlines()[0] == f"workbench lab --cluster {admitted}"
    assert "You are in, with link 5" in err
    assert TOKENS[0] not in out + err


def test_join_opens_the_lab_on_the_cluster_and_calibrates_nothing(
    run: Run, admitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: dict[str, Any] = {}
    monkeypatch.setattr(lab, "lab", lambda **options: asked_for.update(options) or 0)
    assert run("join", f"{OPEN.links[0]}.{TOKENS[1]}", "--no-browser")[0] == 0
    assert asked_for["address"] == str(admitted)
    assert asked_for["no_calibration"], "thirty calibrations at once would keep everybody waiting"


def test_a_link_can_be_typed_so_that_no_command_line_has_it(
    run: Run, admitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{OPEN.links[0]}.{TOKENS[1]}\n"))
    assert run("join", "--no-lab")[0] == 0
    assert Link.parse(f"{OPEN.links[0]}.{TOKENS[1]}").token == TOKENS[0]
