"""The papers beside ours: published rows are whole, and every answer of ours says what it is formed from."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import typer.main
from typer.testing import CliRunner

from kernels.operators import OPERATORS
from workbench.analysis import claims
from workbench.analysis.claims import (
    ClaimAnswer,
    ClaimSources,
    OurNumber,
    cases,
    gpu_rows,
    recorded_losses,
    unanswered,
    within_a_node,
)
from workbench.analysis.published import COLUMNS, number, published
from workbench.cli.app import app
from workbench.cli.lists import _agreement
from workbench.lessons.predictions import step
from workbench.machines import shipped_machine
from workbench.results import recordings

# The papers beside ours: every answer is formed from files or computed, and says from where; no figure is pinned.


@pytest.fixture(scope="module")
def every() -> dict[str, ClaimAnswer]:
    return {answer.published.id: answer for answer in claims.answers()}


@pytest.mark.slow
def test_each_number_that_can_be_asked_has_one_row_and_the_others_are_named(every: dict[str, ClaimAnswer]) -> None:
    assert set(every) == set(ClaimSources().ways)
    assert set(every) | {one.id for one in unanswered()} == {one.id for one in published()}
    for answer in every.values():
        ours = answer.ours
        assert ours.why.endswith(".")
        assert (ours.value is None) == (ours.source is None) == (not ours.command)
        assert ours.source in (None, "recorded", "estimated")


def test_a_command_that_is_told_is_one_of_ours(every: dict[str, ClaimAnswer]) -> None:
    known = typer.main.get_group(app).commands
    for answer in every.values():
        if answer.ours.command:
            words = shlex.split(answer.ours.command)
            assert words[0] == "workbench"
            options = {option for one in known[words[1]].params for option in one.opts}
            assert {word for word in words if word.startswith("--")} <= options, answer.ours.command


@pytest.mark.parametrize("name", ["R05", "R07", "R09"])
def test_what_fusing_saved_is_formed_anew_from_the_recordings(every: dict[str, ClaimAnswer], name: str) -> None:
    ours, reported = every[name].ours, number(name)
    assert (ours.source, every[name].direction) == ("recorded", True)
    saved = []
    for case in ours.cases:
        entries = [each.measurement for each in recordings.recordings(case["recording"])]
        timed = [one for one in entries if one.trial.problem.operator == reported.operator
                 and dict(one.trial.problem.shape) == case["shape"] and one.trial.part == "whole"]  # fmt: skip
        fused = {one.block: one.time_s for one in timed if one.time_s == case["time_s"]}
        (block,) = fused
        plain = [one.time_s for one in timed if one.block == block and one.trial.schedule.scheme == "sequential"]
        saved.append(100 * (1 - case["time_s"] / min(plain)))
        assert case["library_reduction"] >= case["reduction"] - 1e-12, "the library is never the better baseline"
    assert ours.value == pytest.approx({"mean": mean, "max": max}[reported.aggregate](saved))
    assert (ours.low, ours.high) == pytest.approx((min(saved), max(saved)))
    assert "Over NCCL:" in ours.why
    assert shipped_machine(ours.machine)


def test_of_a_problem_that_was_recorded_twice_the_newest_recording_counts() -> None:
    book = gpu_rows()
    old = {name: [{**row, "date": "1999-01-01", "time_s": row["time_s"] / 100} for row in rows]
           for name, rows in book.items()}  # fmt: skip
    both = {f"old {name}": rows for name, rows in old.items()} | book
    of_both, of_new = (cases(rows, "gemm_all_to_all", "fused") for rows in (both, book))
    assert sorted(of_both, key=str) == sorted(of_new, key=str)


def test_a_ring_of_shards_idles_a_mesh_and_not_a_switch(every: dict[str, ClaimAnswer]) -> None:
    on_mesh, on_switch = (case["ring_over_direct"] for case in every["R23"].ours.cases)
    assert on_mesh > 5
    assert on_switch < 1.1


def test_the_ideal_is_of_parts_alone_and_below_two(every: dict[str, ClaimAnswer]) -> None:
    ours = every["R20"].ours
    for case in ours.cases:
        parts = case["compute_s"], case["comm_s"]
        assert case["ideal"] == pytest.approx(sum(parts) / max(parts))
    assert 1 < ours.low < ours.high <= 2


def test_what_no_gpu_has_recorded_has_no_number() -> None:
    row = ClaimAnswer(published=number("R30"), ours=within_a_node(number("R30"), {})).row()
    assert [row[key] for key in ("ours", "source", "direction", "size", "ratio", "command")] == [None] * 6
    assert "No recording of a GPU has an operator by concurrent yet." in row["why"]


def test_a_kept_summary_says_when_the_simulator_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has changed" not in claims.best_static(number("R41")).why, f"to be mended by: {claims.KEEPING}"
    monkeypatch.setattr(claims, "simulator_print", lambda: "another")
    assert f"The simulator has changed since: `{claims.KEEPING}`" in claims.best_static(number("R41")).why


def test_what_a_replay_imports_is_what_its_print_is_of() -> None:
    folder = Path(claims.__file__).parents[1] / "simulator" / "cache"
    text = "".join((folder / f"{name}.py").read_text() for name in claims.REPLAYS)
    imported = set(re.findall(r"from workbench\.simulator\.cache\.(\w+) import", text))
    imported |= set(re.findall(r"from workbench\.simulator\.cache import (\w+)\n", text))
    assert imported <= set(claims.REPLAYS)


@pytest.mark.parametrize(
    ("value", "direction", "size"),
    [(20.0, True, "similar"), (31.0, True, "larger"), (13.0, True, "smaller"), (-5.0, False, None), (None, None, None)],
)
def test_direction_and_size_follow_one_rule(value: float | None, direction: bool | None, size: str | None) -> None:
    answer = ClaimAnswer(published=number("R09"), ours=OurNumber(value=value))
    assert (answer.direction, answer.size) == (direction, size)


def test_a_speed_up_of_one_is_no_effect_and_a_claim_holds_always_or_less() -> None:
    faster = ClaimAnswer(published=number("R21"), ours=OurNumber(value=1.0))
    assert faster.direction is False
    assert replace(faster, ours=OurNumber(value=1.6)).size == "similar"
    rule = ClaimAnswer(published=number("R41"), ours=OurNumber(value=1.0, covered=(17, 17)))
    assert (rule.direction, rule.size, rule.holds_in) == (True, "similar", None)
    part = replace(rule, ours=OurNumber(value=0.25, covered=(1, 4)))
    assert (part.direction, part.size, part.holds_in) == (None, None, "1 of 4")
    never = replace(rule, ours=OurNumber(value=0.0, covered=(0, 4)))
    assert (never.direction, never.size, never.holds_in) == (False, None, None)


def test_rules_that_hold_in_part_and_counts_of_inputs_are_not_counted_as_the_same_sign(
    every: dict[str, ClaimAnswer],
) -> None:
    assert (every["R25"].direction, every["R25"].holds_in) == (None, "1 of 4")
    assert (every["R40"].direction, every["R40"].size, every["R40"].is_input) == (None, None, True)
    sentence = _agreement([every[name] for name in ("R09", "R25", "R40")])
    assert sentence == (
        "Of 2 published results, 1 have the same sign as ours, and 0 are within a factor of 1.5 of it. Partly covered: "
        "R25 in 1 of 4 of our cases. R40 counts inputs and has no sign."
    )


def test_no_gain_is_told_over_a_baseline_that_nobody_chose() -> None:
    """Blocks of a design space hold one baseline, NCCL as it comes."""
    shipped, book = recordings.shipped(), gpu_rows()
    spaces = [name for name in shipped if "_space" in name]
    assert spaces
    assert not book.keys() & set(spaces)
    assert {"h200_nvl2_gemm", "h200_nvl2_pieces", "h200_nvl4_gemm"} <= book.keys()


def test_the_command_prints_rows_and_refuses_what_nobody_answers() -> None:
    told = CliRunner().invoke(app, ["claims", "R09", "--json"])
    (row,) = json.loads(told.stdout)["rows"]
    assert (row["id"], row["published"], row["verified"], row["source"]) == ("R09", 20.0, True, "recorded")
    shown = CliRunner().invoke(app, ["claims", "R23"]).stdout
    assert "unverified" in shown
    assert [answer.published.id for answer in claims.answers(["r40"])] == ["R40"]
    with pytest.raises(ValueError, match=r"R99 is not among the \d+ published numbers that we answer. Accepted: R01"):
        claims.answers(["R99"])


@pytest.mark.parametrize("name", ["R01", "R02", "R06"])
def test_between_nodes_is_estimated_over_a_stated_list_of_shapes(every: dict[str, ClaimAnswer], name: str) -> None:
    ours = every[name].ours
    assert (ours.source, ours.machine, every[name].direction) == ("estimated", "h200_ib", True)
    assert "Nothing between hosts was measured" in ours.why
    assert {case["world"] for case in ours.cases} == {2, 16}
    assert all("transport=gin" in case["schedule"] for case in ours.cases)
    for case in ours.cases:
        assert case["time_s"] >= max(case["compute_s"], 0) > 0
        assert case["reduction"] == pytest.approx(1 - case["time_s"] / case["baseline_s"])


def test_the_step_is_a_band_with_two_cases_in_which_fusing_gains_nothing(every: dict[str, ClaimAnswer]) -> None:
    ours = every["R11"].ours
    *inside, dense, sums = ours.cases
    where = ("network", "network_bytes_per_second", "dense_scale", "configuration")
    assert len({tuple(case[name] for name in where) for case in inside}) == len(inside) == 10
    saved = [100 * case["reduction"] for case in inside]
    assert (ours.low, ours.high) == (min(saved), max(saved))
    assert ours.low <= ours.value <= ours.high
    assert all(-0.1 < case["reduction"] < 0.05 for case in (dense, sums)), "negative cases"
    assert min(saved) > 0
    one_pass = step(dense=16.0)["reduction"]
    assert f"Fusing both passes (fused) gains nothing on {dense['world']} ranks" in ours.why
    assert f"({100 * dense['reduction']:.1f} %; fused_forward alone saves {100 * one_pass:.1f} %)" in ours.why, (
        "lesson 9's"
    )
    page = (Path(__file__).parents[2] / "docs" / "steps.md").read_text()
    assert f"--dense-scale 16` takes {-100 * dense['reduction']:.0f} % more" in page
    assert f"takes {100 * one_pass:.0f} % less there, and {100 * step(dense=32.0)['reduction']:.0f} % less with" in page
    small = step("dlrm_dcnv2", ranks=128)["reduction"]
    assert f"takes {100 * sums['reduction']:.0f} % less, and {100 * small:.0f} % less with `fused_forward`" in page
    assert every["R12"].ours.cases == ours.cases


def test_recorded_losses_are_told_of_shorter_and_longer_computations() -> None:
    known = (("a", 4.0, 1.02), ("b", 1.0, 1.4), ("c", 2.0, 1.2), ("d", 3.0, 1.06))
    rows = [{"scheme": "decomposed", "block": name, "whole_s": whole_s, "decomposition_loss": {"compute": loss}}
            for name, whole_s, loss in known]  # fmt: skip
    others = [{**rows[0], "scheme": "fused"}, {**rows[0], "block": "e", "decomposition_loss": None}]
    said = recorded_losses({"one": [*rows, *others]}, "decomposed")
    assert "the 2 shorter ones take 1.30 of the whole, the 2 longer ones 1.04 (medians)" in said
    assert recorded_losses({"one": others}, "decomposed") == ""


# Published numbers: every row is whole, only abstracts are verified, and a damaged table is refused with its line.


def test_every_number_says_paper_version_section_machine_and_baseline() -> None:
    numbers = published()
    assert len({one.id for one in numbers}) == len(numbers) > 30
    assert {one.paper for one in numbers} >= {"arXiv:2305.06942", "arXiv:2512.10236", "arXiv:2606.09200",
                                              "arXiv:1910.00134"}  # fmt: skip
    for one in numbers:
        assert one.row()["source"] == "published"
        assert one.operator in {"", *OPERATORS}
        assert one.verified == (one.section == "abstract"), one.id
        assert bool(one.mark) != one.verified


def test_a_speed_up_and_a_reduction_are_told_in_the_same_share() -> None:
    assert number("R09").reduction == pytest.approx(0.2)
    assert number("R21").reduction == pytest.approx(1 - 1 / 1.6)
    assert number("R40").reduction is None
    assert (number("R09").text, number("R05").text) == ("up to 20 %", "20 % on average")


GOOD = "R1,arXiv:1,v1,abstract,work,scope,,,time_reduction,max,20,percent,library,one node,true"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (GOOD.replace("20,percent", "twenty,percent"), "line 2: its value is 'twenty', and a finite number is needed"),
        (GOOD.replace("20,percent", "nan,percent"), "line 2: its value is 'nan'"),
        (GOOD.replace("percent", "miles"), "line 2: its unit is 'miles', and one of percent, x"),
        (GOOD.replace("true", "perhaps"), "line 2: its verified is 'perhaps'"),
        (GOOD.replace("scope,,", "scope,gemm,"), "line 2: its operator is 'gemm'"),
        (GOOD.replace("one node", ""), "line 2: its machine is empty"),
        (GOOD + ",more", "line 2: it has 16 cells, and 15 are needed"),
        (GOOD + "\n" + GOOD, "line 3: its id R1 is in the table already"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(",".join(COLUMNS) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"published\.csv cannot be read as published numbers") as error:
        published(path)
    assert sentence in str(error.value)


def test_a_table_of_other_columns_is_refused_and_so_is_an_unknown_id(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="its first line has the columns a, b"):
        published(path)
    with pytest.raises(ValueError, match=r"no published number 'R99'\. Accepted: R01, "):
        number("R99")
