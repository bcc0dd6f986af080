"""Fields of a Request are the options of every command that asks, and what was typed is told where it fails."""

import inspect
from dataclasses import Field, fields
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from kernels.schedule import Refusal
from kernels.trial import GPU_ONLY
from workbench.cli.app import app
from workbench.cli.options import Typed, request_command
from workbench.experiment import fields as typed
from workbench.experiment.fields import RequestFields
from workbench.experiment.question import Request

ASK = {"run": set(), "predict": set(), "recommend": {"protocol"}}
"""Commands that ask, and the fields that mean nothing to them."""


@pytest.mark.parametrize("name", ASK)
def test_every_field_is_an_option_of_every_command_that_asks(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    by_name = {each.name: each for each in command.params}
    assert set(typed.FIELDS) - set(by_name) == ASK[name]
    for field in set(typed.FIELDS) - ASK[name]:
        words = typed.option(field)
        flag = words.flag or (field if words.is_required else f"--{field}")
        assert flag in by_name[field].opts
        assert by_name[field].help == words.help


def test_the_help_of_latency_says_what_cpu_ranks_do_with_it() -> None:
    """They run it, and the number of calls in a graph is nothing to them."""
    assert "calls_per_graph" in GPU_ONLY
    assert "CPU ranks always call one by one" in typed.option("protocol").help


def test_a_request_has_no_field_that_cannot_be_typed() -> None:
    assert [each.name for each in fields(Request)] == [each.name for each in fields(RequestFields)]


def test_a_new_field_is_an_option_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    new: Field[Any] = typed._typed("How many dice.", typed=int | None)
    new.name = "dice"
    monkeypatch.setitem(typed.FIELDS, "dice", new)
    seen: list[Typed] = []

    @request_command()
    def command(words: Typed, json: bool = False) -> int:
        seen.append(words)
        return 0

    one = typer.Typer()
    one.command()(command)
    done = CliRunner().invoke(one, ["gemm_all_to_all", "--dice", "6", "--shape", "m=1", "--shape", "n=2"])
    assert done.exit_code == 0, done.output
    assert (seen[0]["dice"], seen[0]["shape"], seen[0]["backend"]) == (6, ["m=1", "n=2"], None)
    assert "How many dice." in CliRunner().invoke(one, ["--help"]).output
    assert get_args(inspect.signature(command).parameters["dice"].annotation)[0] == int | None


def test_what_is_typed_becomes_the_fields() -> None:
    words = dict.fromkeys(typed.FIELDS) | {"operator": "gemm_all_to_all", "protocol": "quick"}
    words |= {"shape": ["m=64", "n=32"], "schemes": ["fused"], "settings": ["slice_tiles=4"]}
    made = Request(**typed.values(words))
    assert made == Request(operator="gemm_all_to_all", shape=(("m", "64"), ("n", "32")), schemes=("fused",),
                           settings=(("slice_tiles", ("4",)),), protocol="quick")  # fmt: skip
    assert typed.values({"shape": None, "schemes": None, "settings": []}) == {
        "shape": (),
        "schemes": (),
        "settings": (),
    }


def test_a_document_tells_what_was_typed_though_it_cannot_be_read() -> None:
    words = {"operator": "gemm_all_to_all", "schemes": ["fused"], "shape": ["m"], "settings": None}
    assert typed.document(words) == {"operator": "gemm_all_to_all", "scheme": "fused", "shape": {"m": ""}, "axes": None}
    with pytest.raises(Refusal, match=r"--shape 'm' does not have the form name=value"):
        typed.values(words)


def test_what_is_typed_twice_counts_twice_or_is_refused() -> None:
    words = {"schemes": ["fused", "sequential", "fused"], "settings": ["pieces=2", "split=rows", "pieces=4"]}
    assert typed.values(words) == {
        "schemes": ("fused", "sequential"), "settings": (("pieces", ("2", "4")), ("split", ("rows",))),
    }  # fmt: skip
    with pytest.raises(Refusal, match=r"--shape states m 2 times: 2 > 1. Accepted: one size of m."):
        typed.values({"shape": ["m=64", "n=8", "m=32"]})
