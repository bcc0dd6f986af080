"""Copy as: a link opens the same view, and a text that is no link is one sentence."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from workbench.experiment.form import FormQuestion
from workbench.results.filters import Filters
from workbench.widgets.copy_as import CopyAs, PageState, code_of, read_code
from workbench.widgets.exploration import Exploration

QUESTION = FormQuestion(
    operator="gemm_all_to_all", shape=(("m", 64), ("n", 64), ("k", 64)), dtype="float32", world=2, scheme="fused",
    values=(("fused", (("slice_tiles", 2),)),), fabric="emulated:wire_to_compute=0.5", protocol="quick",
)  # fmt: skip
STATE = PageState(
    exploration=Exploration(
        view="table", runs=("a", "b"), selected="a/key/a.1/measured", baseline="b/key//recorded",
        filters=Filters().with_range("time_s", (1e-3, 2e-3)).with_words("scheme", frozenset({"fused"})),
    ),
    question=QUESTION, machine="laptop_cpu", preset="tiny",
)  # fmt: skip


@pytest.fixture
def shown() -> list[PageState]:
    return []


@pytest.fixture
def menu(shown: list[PageState]) -> CopyAs:
    return CopyAs(lambda: STATE, lambda: True, shown.append)


def test_a_link_opens_the_view_that_it_was_made_of(menu: CopyAs, shown: list[PageState]) -> None:
    menu._hear(None, {"kind": "texts"}, [])
    code = menu.widget.texts["code"]
    assert len(code) < 1000, "short enough for a message"
    for text in (code, f" http://127.0.0.1:8888/lab/tree/explore.ipynb#view={code}\n", f"{code}=="):
        menu._hear(None, {"kind": "open", "text": text}, [])
    assert shown == [STATE] * 3
    assert (menu.widget.message, menu.widget.refused) == ("This is the view of the link.", False)


def test_the_menu_has_a_text_of_each_kind_and_only_a_link_where_the_question_is_refused(shown: list[PageState]) -> None:
    wrong = replace(STATE, question=replace(QUESTION, world=7))
    states = [wrong, STATE]
    menu = CopyAs(lambda: states.pop(), lambda: False, shown.append)
    menu.refresh()
    assert set(menu.widget.texts) == {"code", "command", "toml", "python"}
    assert menu.widget.texts["command"].startswith("workbench run gemm_all_to_all")
    assert "predictions(experiment" in menu.widget.texts["python"], "this page simulates"
    menu.refresh()
    assert (set(menu.widget.texts), menu.widget.refused) == ({"code"}, True)
    assert "7" in menu.widget.message
    assert read_code(menu.widget.texts["code"]) == wrong


def packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(("make", "message"), [
    (lambda code: "hello world", "This is no link to a view"),
    (lambda code: "", "This is no link to a view"),
    (lambda code: code[:-9], "or a part of it is missing"),
    (lambda code: "x" * 20_000, r"it has 20,000 > 16,384 letters"),
    (lambda code: packed(b" " * 2_000_000 + b"{}"), "This is no link to a view"),
    (lambda code: packed(b"[" * 100_000), "This is no link to a view"),
    (lambda code: packed(b"{}"), "This view cannot be read: a view has no 'exploration'"),
    (lambda code: packed(b'{"exploration": {}, "question": {}, "machine": "x", "preset": "y"}'), "has format None"),
    (lambda code: packed(json.dumps({**STATE.to_json(), "exploration": {
        **STATE.exploration.to_json(), "filters": {"ranges": {"time_s": [0, 10**400]}}}}).encode()),
     "A filter has a number that is too large"),
])  # fmt: skip
def test_what_is_no_link_is_one_sentence_and_opens_nothing(
    menu: CopyAs, shown: list[PageState], make: Callable[[str], str], message: str
) -> None:
    menu.open(make(code_of(STATE)))
    assert (menu.widget.refused, shown) == (True, [])
    with pytest.raises(ValueError, match=message):
        read_code(make(code_of(STATE)))
    assert "\n" not in menu.widget.message
