"""A workshop over TLS: opened, joined, asked again, killed and opened again, ended; and it leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_bench
import psutil
import pytest
from fake_cluster import eventually

from cluster import launch, scheduler_file
from cluster.client import Cluster
from cluster.connection import holder_text
from cluster.workshop import client, hosting
from cluster.workshop.classroom import NAME
from cluster.workshop.client import ClassBoard
from cluster.workshop.hosting import Plan, Workshop
from cluster.workshop.links import Link
from kernels.files import Failed
from tests.cluster.workshop.conftest import free_ports


def page() -> dict[str, tuple[str, bytes]]:
    return {"/workshop": ("text/html", b"<title>page</title>")}


def guess(alias: str, question: str = "total time") -> dict[str, Any]:
    return {"lesson": 1, "question": question, "alias": alias, "guess": 3.0, "unit": "ms"}


def everything_below(*folders: Path) -> str:
    return "".join(file.read_text(errors="replace") for folder in folders for file in folder.rglob("*")
                   if file.is_file())  # fmt: skip


def test_a_student_joins_by_a_link_and_is_in_the_cluster(workshop: Workshop) -> None:
    admitted, file = client.join(Link.parse(workshop.links[1]))
    assert (admitted.seat, admitted.target.address) == (2, workshop.address)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with Cluster.connect(file) as cluster:
        assert len(cluster.describe()["workers"]) == 2
    with ClassBoard.connect(file) as board:
        board.submit(guess("heron"))
        assert [each["alias"] for each in board.guesses()] == ["heron"]
        assert board.best() == []


def test_an_alias_of_somebody_else_is_refused(workshop: Workshop) -> None:
    with ClassBoard.connect(workshop.target) as board:
        board._owner = "another student"
        with pytest.raises(ValueError, match=r"'heron' is taken.*such as 'heron 2'"):
            board.submit(guess("heron"))
        board.submit(guess("heron 2"))


def test_another_certificate_gets_no_key(workshop: Workshop) -> None:
    link = Link.parse(workshop.links[0])
    other = Link(link.origin, link.token, "x" * 16)
    with pytest.raises(ValueError, match="shows another certificate, so your key was not sent"):
        client.join(other)


def test_up_again_says_the_same_links(workshop: Workshop, plan: Plan, cluster_folder: Path) -> None:
    again, is_new = hosting.open_workshop(plan, page, cluster_folder)
    assert (again, is_new) == (workshop, False)


def test_no_file_but_its_record_has_a_link(workshop: Workshop, state_home: Path, cluster_folder: Path) -> None:
    record = hosting.record_file()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    keys = [*workshop.tokens, workshop.page_key]
    content = record.read_text()
    assert all(key in content for key in keys)
    record.rename(record.with_suffix(".away"))
    try:
        logs = everything_below(state_home / "overlap-workbench", cluster_folder).replace(content, "")
    finally:
        record.with_suffix(".away").rename(record)
    assert "distributed" in logs, "Dask's log is among them"
    assert not [key for key in keys if key in logs]
    assert not [key for key in keys if key in repr(workshop)]
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [key for key in keys for command in commands if key in command]


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_up_on_its_own_frozen_cluster_says_how_to_end_that(
    workshop: Workshop, plan: Plan, cluster_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = scheduler_file.read()
    assert record is not None
    monkeypatch.setattr(hosting, "ANSWER_S", 1.0)
    with hosting.open_client(workshop.target) as connected:
        with frozen(record.pid):
            with pytest.raises(Failed, match="did not answer within 1 s"):
                hosting._facts(connected)
            with pytest.raises(Failed, match=r"does not answer.*or first `workbench workshop down`"):
                hosting.open_workshop(plan, page, cluster_folder)
        assert hosting._facts(connected) is not None
    assert hosting.remembered() == workshop


@pytest.mark.slow
def test_a_workshop_whose_cluster_died_comes_back_with_its_links_and_its_people(
    workshop: Workshop, plan: Plan, cluster_folder: Path
) -> None:
    board = ClassBoard.connect(client.joined_file())
    board.submit(guess("heron", "before"))
    record = scheduler_file.read()
    assert record is not None
    os.killpg(record.pid, signal.SIGKILL)
    assert eventually(lambda: not record.alive, 30.0)
    with pytest.raises(Failed, match="Your guesses are kept here, and sent with the next one"):
        board.submit(guess("heron", "meanwhile"))
    again, is_new = hosting.open_workshop(plan, page, cluster_folder)
    assert not is_new
    assert (again.links, again.address, again.page_key) == (workshop.links, workshop.address, workshop.page_key)
    board.submit(guess("heron", "after"))
    assert {each["question"] for each in board.guesses()} == {"before", "meanwhile", "after"}
    board.close()


def test_down_leaves_no_process_no_file_and_no_key(workshop: Workshop, state_home: Path, cluster_folder: Path) -> None:
    record = scheduler_file.read()
    assert record is not None
    family = psutil.Process(record.pid).children(recursive=True)
    closed = hosting.close_workshop()
    assert closed.started_cluster
    assert eventually(lambda: not any(process.is_running() for process in family), 60.0)
    left = {file.name for folder in (state_home, cluster_folder) for file in folder.rglob("*") if file.is_file()}
    kept = {client.joined_file().name, client.owner_file().name}
    assert kept <= left <= {"dask.log", *kept}, "the files of a person who takes part in classes stay with that person"
    assert not [key for key in (*closed.tokens, closed.page_key)
                if key in everything_below(state_home, cluster_folder)]  # fmt: skip
    with pytest.raises(ValueError, match="There is no workshop to end: you have 0 on this host"):
        hosting.close_workshop()
    with pytest.raises(ValueError, match="is gone, or this computer cannot reach it"):
        client.join(Link.parse(closed.links[0]))


def test_a_workshop_on_a_cluster_of_others_leaves_that_cluster(address: str, cluster_folder: Path) -> None:
    opened, is_new = hosting.open_workshop(Plan(students=1, cluster=address, port=0), page, cluster_folder)
    assert (is_new, opened.started_cluster, opened.certificate) == (True, False, None)
    assert opened.links[0].startswith("http://127.0.0.1:")
    client.join(Link.parse(opened.links[0]))
    with ClassBoard.connect(address) as board:
        board.submit(guess("heron"))
        hosting.close_workshop()
        with pytest.raises(ValueError, match="has no class board: 0 workshops are open there"):
            board.guesses()
    with Cluster.connect(address) as cluster:
        assert cluster.describe()["workers"]


@pytest.mark.slow
def test_a_workshop_on_a_silent_cluster_of_others_is_remembered_until_it_has_ended(cluster_folder: Path) -> None:
    record = launch.up("local", cluster_folder, num_ranks=1)
    try:
        plan = Plan(students=1, port=0)
        opened, _ = hosting.open_workshop(plan, page, cluster_folder)
        assert not opened.started_cluster
        with frozen(record.pid):
            with pytest.raises(Failed, match="its 1 links may let people in once it does"):
                hosting.close_workshop()
            with pytest.raises(Failed, match="does not answer"):
                hosting.open_workshop(plan, page, cluster_folder)
        client.join(Link.parse(opened.links[0]))
        assert hosting.close_workshop() == opened
        with pytest.raises(ValueError, match="is gone"):
            client.join(Link.parse(opened.links[0]))
        again, _ = hosting.open_workshop(plan, page, cluster_folder)
    finally:
        launch.down()
    assert hosting.close_workshop() == again, "a cluster that has ended keeps nobody from ending its workshop"


def test_links_that_have_expired_let_nobody_in_and_up_makes_new_ones(address: str, cluster_folder: Path) -> None:
    old, _ = hosting.open_workshop(Plan(students=1, hours=1e-5, cluster=address, port=0), page, cluster_folder)
    assert eventually(lambda: time.time() > old.ends_at, 10.0)
    with pytest.raises(ValueError, match=r"does not let you in: it expired at .* Accepted: ask the lecturer"):
        client.join(Link.parse(old.links[0]))
    new, is_new = hosting.open_workshop(Plan(students=2, cluster=address, port=0), page, cluster_folder)
    assert is_new
    assert (new.address, len(new.links), set(new.tokens) & set(old.tokens)) == (old.address, 2, set())
    client.join(Link.parse(new.links[1]))
    with pytest.raises(ValueError, match="nobody knows its key"):
        client.join(Link.parse(old.links[0]))
    hosting.close_workshop()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"students": 0}, "0 students do not fit. Accepted: 1 to 300"),
        ({"hours": 0.0}, "0 hours do not fit"),
        ({"hours": 1000.0}, "1000 hours do not fit"),
        ({"port": 65535}, "port 65535 does not fit"),
    ],
)
def test_a_workshop_that_cannot_be_is_one_sentence(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        hosting.open_workshop(Plan(**change), page, tmp_path)
    assert launch.running() is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize(("offset", "fault"), [(0, "cannot be exchanged"), (1, "cannot listen")])
def test_a_port_that_is_taken_is_named_before_a_cluster_starts(
    host: str, offset: int, fault: str, tmp_path: Path
) -> None:
    import socket

    plan = Plan(students=1, ranks=1, host=host, port=free_ports(host))
    port = plan.port + offset
    taken = socket.create_server((host, port))
    with taken, pytest.raises(ValueError, match=f"{fault} at {host} port {port} .*--port with another"):
        hosting.open_workshop(plan, page, tmp_path)
    assert launch.running() is None


@pytest.mark.parametrize("port", [0, 18788])
def test_a_cluster_on_loopback_has_the_ports_that_were_named(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[dict[str, Any]] = []
    monkeypatch.setattr(hosting, "_refuse_port", lambda *_: None)
    monkeypatch.setattr(launch, "up", lambda *_, **given: options.append(given))
    hosting._start(Plan(host="127.0.0.1", port=port, ranks=2), tmp_path)
    assert options == [{"host": "127.0.0.1", "port": port and port + 1, "num_ranks": 2}]


def test_links_on_loopback_have_the_port_that_was_named(address: str, cluster_folder: Path) -> None:
    plan = Plan(students=1, cluster=address, port=free_ports("127.0.0.1"))
    opened, _ = hosting.open_workshop(plan, page, cluster_folder)
    assert opened.port == plan.port
    assert opened.links[0].startswith(f"http://127.0.0.1:{plan.port}/")
    client.join(Link.parse(opened.links[0]))
    hosting.close_workshop()


def _holders(dask_scheduler: Any) -> list[dict[str, Any]]:
    return list(dask_scheduler.plugins[NAME].state()["holders"])


def test_the_lecturer_sees_who_holds_ranks(cluster_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fake_bench.FOLDER, str(cluster_folder))
    trials = [fake_bench.FakeTrial(key="a", num_samples=50, seconds=0.05)]
    with launch.local(1, published=False, entry=fake_bench.ENTRY) as private:
        plan = Plan(students=2, cluster=private.address, port=0)
        opened, _ = hosting.open_workshop(plan, page, cluster_folder)
        _, file = client.join(Link.parse(opened.links[1]))
        with Cluster.connect(file, entry=fake_bench.ENTRY) as cluster, ClassBoard.connect(file) as board:
            stream = cluster.stream(trials, world=1, shares_heap=True, deadline_s=20)
            assert any(event["kind"] == "sample" for event in stream)
            assert [row["holder"] for row in launch.status(file)] == ["link 2"]
            board.claim("Blue Heron")
            assert [row["holder"] for row in launch.status(file)] == ["link 2 (Blue Heron)"]
            assert cluster.client.run_on_scheduler(_holders) == [{"who": "link 2 (Blue Heron)", "ranks": 1}]
            stream.close()
        hosting.close_workshop()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("DroppableClient-workbench-ab2e4613-ec11-11f1-be10-02fc00000001", "client ab2e4613"),
        ("DroppableClient-workbench-link-7-ab2e4613-ec11-11f1-be10-02fc00000001", "link 7 (lynx)"),
        ("DroppableClient-workbench-link-8-ab2e4613-ec11-11f1-be10-02fc00000001", "link 8"),
        ("Client-ab2e4613-ec11-11f1-be10-02fc00000001", "Client-ab2e4613-ec11-11f1-be10-02fc00000001"),
    ],
)
def test_a_holder_has_the_words_that_are_known(number: str, words: str) -> None:
    assert holder_text(number, {7: "lynx"}) == words


class RecordingLedger:
    """Keeps an alias and callbacks, as a lesson's ledger does."""

    def __init__(self) -> None:
        self.alias, self.callbacks = "", []

    def use_alias(self, name: str) -> None:
        self.alias = name

    def on_new(self, callback: Any) -> Any:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)


def test_a_ledger_is_followed_under_an_alias_that_was_granted(address: str, cluster_folder: Path) -> None:
    hosting.open_workshop(Plan(students=1, cluster=address, port=0), page, cluster_folder)
    ledger = RecordingLedger()
    with ClassBoard.connect(address) as board, ClassBoard.connect(address) as other:
        other._owner = "another student"
        other.claim("heron")
        with pytest.raises(ValueError, match="'heron' is taken"):
            board.follow("heron", ledger)
        assert (ledger.alias, ledger.callbacks) == ("", [])
        end = board.follow("heron 2", ledger)
        assert ledger.alias == "heron 2"
        ledger.callbacks[0](guess(ledger.alias))
        assert eventually(lambda: [each["alias"] for each in other.guesses()] == ["heron 2"], 30.0)
        end()
        assert ledger.callbacks == []
    hosting.close_workshop()


def test_a_notebook_that_is_open_sends_all_again_to_a_new_board(
    address: str, cluster_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "AGAIN_S", 0.2)
    plan, ledger = Plan(students=1, cluster=address, port=0), RecordingLedger()
    hosting.open_workshop(plan, page, cluster_folder)
    with ClassBoard.connect(address) as board, ClassBoard.connect(address) as other:
        board.follow("heron", ledger)
        for question in ("first", "second"):
            ledger.callbacks[0](guess("heron", question))
        assert eventually(lambda: len(other.guesses()) == 2, 30.0)
        hosting.close_workshop()
        hosting.open_workshop(plan, page, cluster_folder)
        assert eventually(lambda: [each["question"] for each in other.guesses()] == ["first", "second"], 30.0)
    assert ledger.callbacks == [], "a board that is closed follows nobody"
    hosting.close_workshop()


def test_a_board_that_falls_silent_while_all_is_sent_again_gets_all_the_next_time(
    address: str, cluster_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(students=1, cluster=address, port=0)
    hosting.open_workshop(plan, page, cluster_folder)
    with ClassBoard.connect(address) as board:
        board.submit(guess("heron", "first"))
        board.submit(guess("heron", "second"))
        hosting.close_workshop()
        hosting.open_workshop(plan, page, cluster_folder)
        ask = board._call

        def silent_about_second(question: str, **facts: Any) -> dict[str, Any]:
            if facts["entry"]["question"] == "second":
                raise Failed("It does not answer.")
            return ask(question, **facts)

        monkeypatch.setattr(board, "_call", silent_about_second)
        with pytest.raises(Failed):
            board.submit(guess("heron", "third"))
        monkeypatch.undo()
        board.submit(guess("heron", "third"))
        assert {each["question"] for each in board.guesses()} == {"first", "second", "third"}
    hosting.close_workshop()


def test_an_answer_of_recorded_schedules_is_checked_in_the_scheduler(
    address: str, cluster_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "CHECKS", {"8": "fake_bench:best_found"})
    hosting.open_workshop(Plan(students=1, cluster=address, port=0), page, cluster_folder)
    with ClassBoard.connect(address) as board:
        board.answer("heron", [3, 1, 2])
        assert [(each["alias"], each["time_s"], each["lesson"]) for each in board.best()] == [("heron", 0.01, "8")]
        with pytest.raises(ValueError, match="is no list of schedules"):
            board.answer("heron", "all of them")
        with pytest.raises(ValueError, match=r"no answers of lesson '3'.* Accepted: answers of lesson 8"):
            board.answer("heron", [3, 1, 2], lesson=3)
    hosting.close_workshop()
    monkeypatch.setattr(hosting, "CHECKS", {"8": "no_such_module:check"})
    hosting.open_workshop(Plan(students=1, cluster=address, port=0), page, cluster_folder)
    with ClassBoard.connect(address) as board, pytest.raises(ValueError, match="has no no_such_module:check"):
        board.answer("heron", [1])
    hosting.close_workshop()
