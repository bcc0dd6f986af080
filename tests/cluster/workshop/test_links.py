"""A link is a key: it is parsed, never repeated in a message, and of no use to whoever is late, wrong or elsewhere."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.certificate import Certificate
from cluster.workshop import links
from cluster.workshop.classroom import Classroom, Opening
from cluster.workshop.links import Link, admission, new_token, print_of, software, token_digest

TOKEN = "0123456789abcdef"


def test_a_link_is_read_as_it_was_written_and_quotes_do_not_matter() -> None:
    link = Link("https://192.0.2.7:8788", new_token(), print_of(Certificate.create()))
    assert Link.parse(link.text) == Link.parse(f" '{link.text}' ") == link
    assert len(link.text) <= 70, "it fits into a line"


def test_no_text_about_a_link_has_its_key() -> None:
    link = Link("https://192.0.2.7:8788", TOKEN, "f" * 16)
    assert TOKEN not in f"{link} {link!r}"
    assert "#" in link.text.partition(TOKEN)[0], "a browser sends nothing that is after it"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not the link of a workshop (0 characters)"),
        ("https://example.org/", "not the link of a workshop"),
        (f"https://host:8788/join#{TOKEN}", "The end of this link is missing"),
        (f"https://host:8788/join#{TOKEN}.abc", "not the link"),
        (f"https://host/join#{TOKEN}.{TOKEN}", "names no port"),
        (f"https://host:99999/join#{TOKEN}.{TOKEN}", "host:99999/join#... names no port from 1 to 65535"),
    ],
)
def test_what_is_no_link_is_refused_without_repeating_it(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="Accepted: ") as refused:
        Link.parse(text)
    assert says in str(refused.value)
    assert TOKEN not in str(refused.value)


@contextmanager
def answering(answer: Callable[[dict[str, Any]], tuple[int, Any]]) -> Iterator[Link]:
    """A host without encryption that gives *answer* to the exchange of a link."""

    class Host(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, content = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Link(f"http://127.0.0.1:{server.server_address[1]}", TOKEN)
        server.shutdown()


def classroom(ends_at: float) -> Classroom:
    room = Classroom(Opening(seats={token_digest(TOKEN): 7}, ends_at=ends_at, page_digest="", files={},
                             host="127.0.0.1", port=0, pem=None))  # fmt: skip
    room.came = {}
    room.scheduler = type("Scheduler", (), {"address": "tcp://10.0.0.1:4321"})()
    return room


def test_a_link_lets_its_holder_in_at_the_host_that_it_names() -> None:
    room = classroom(time.time() + 100)
    with answering(lambda body: room.admit(body["token"], body["software"])) as link:
        admitted = admission(link)
    assert (admitted.target.address, admitted.seat) == ("tcp://127.0.0.1:4321", 7), "a router may translate addresses"
    assert list(room.came) == [7]


@pytest.mark.parametrize(
    ("token", "ends_in_s", "says"),
    [
        (TOKEN, -1.0, "it expired at "),
        ("f" * 16, 100.0, "nobody knows its key"),
        (None, 100.0, "nobody knows its key"),
        ("\ud800", 100.0, "nobody knows its key"),
    ],
)
def test_a_link_that_is_late_or_wrong_lets_nobody_in(token: str | None, ends_in_s: float, says: str) -> None:
    room = classroom(time.time() + ends_in_s)
    with answering(lambda body: room.admit(token, body["software"])) as link, pytest.raises(ValueError, match=says):
        admission(link)
    assert not room.came


def test_another_version_on_either_side_is_named_before_any_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    room = classroom(time.time() + 100)
    here = software()

    def elsewhere(body: dict[str, Any]) -> tuple[int, Any]:
        status, answer = room.admit(body["token"], {**body["software"], "overlap-workbench": "9.9"})
        assert set(answer) == {"software"}
        return status, {"software": {**here, "overlap-workbench": "9.9", "dask": "2031.1"}}

    with answering(elsewhere) as link, pytest.raises(ValueError, match="both sides must have the same") as refused:
        admission(link)
    assert "the workshop has overlap-workbench 9.9 and dask 2031.1" in str(refused.value)
    assert "Accepted: `pip install overlap-workbench==9.9 dask==2031.1` here" in str(refused.value)


@pytest.mark.parametrize("content", [b"<html>", b"[]", {"address": 3}, {}])
def test_something_else_at_the_address_is_named(content: Any) -> None:
    with answering(lambda body: (200, content)) as link, pytest.raises(ValueError, match="that is no workshop"):
        admission(link)


def test_a_host_that_says_nothing_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = threading.Event()
    with answering(lambda body: (200, {"waited": silent.wait(20.0)})) as link:
        began = time.monotonic()
        with pytest.raises(ValueError, match="is gone, or this computer cannot reach it"):
            admission(link, within_s=0.5)
        assert time.monotonic() - began < 15.0
        silent.set()


def test_the_fingerprint_is_that_of_the_certificate_alone() -> None:
    one, other = Certificate.create(), Certificate.create()
    assert print_of(one) == print_of(one) != print_of(other)
    assert print_of(None) == ""
    assert len(print_of(one)) == len(links.new_token()) == 16
