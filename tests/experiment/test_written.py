"""What Copy as writes asks the same question: command, file and cell make trials with the same keys."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.schedule import Refusal, Schedule
from tests.workbench.conftest import FakeCluster
from workbench import cli, machines
from workbench.experiment import question as requests
from workbench.experiment.experiment import Experiment, Search
from workbench.experiment.form import SCHEME, FormQuestion
from workbench.experiment.written import command_text, python_text, toml_text
from workbench.results.store import Store

ONE = FormQuestion(
    operator="gemm_all_to_all", shape=(("m", 64), ("n", 64), ("k", 64)), dtype="float32", world=2, scheme="fused",
    values=(("fused", (("slice_tiles", 2),)), ("decomposed", (("pieces", 2),))),
    fabric="emulated:wire_to_compute=0.5", protocol="quick",
)  # fmt: skip
QUESTIONS = {
    "one schedule": ONE,
    "an embedding": replace(ONE, operator="embedding_all_to_all", values=(), shape=(
        ("tables_per_rank", 2), ("rows", 100), ("dim", 32), ("batch", 64), ("pooling", 4), ("indices", "uniform"))),
    "schemes": replace(ONE, swept=(SCHEME,)),
    "an axis": replace(ONE, swept=("slice_tiles",), fresh=True),
    "schemes and axes": replace(ONE, swept=(SCHEME, "slice_tiles", "pieces", "tile")),
}  # fmt: skip


def keys(experiment: Experiment) -> list[str]:
    """The keys of its schedules in order, and of how it is searched."""
    (problem,) = experiment.problems
    points = experiment.points(problem, machines.machine(experiment.machine))
    trials = [experiment.trial(problem, each, experiment.fabric).key for each in points.schedules]
    return [*trials, str(experiment.search)]


@pytest.fixture(params=QUESTIONS)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return QUESTIONS[request.param].experiment(machines.machine("laptop_cpu"))


def test_the_file_is_the_same_experiment_for_a_sweep(experiment: Experiment, tmp_path: Path) -> None:
    for search in (Search(), Search(kind="estimate_first", count=3, budget_s=60.5)):
        wanted = replace(experiment, search=search)
        (tmp_path / "space.toml").write_text(toml_text(wanted), encoding="utf-8")
        again = requests.load(tmp_path / "space.toml")
        assert keys(again) == keys(wanted)
        assert (again.title, again.parts, again.protocol) == (wanted.title, wanted.parts, wanted.protocol)


def test_the_command_is_the_same_experiment_in_a_shell(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = f'workbench() {{ printf "%s\\n" "$@" > {shlex.quote(str(tmp_path / "words"))}; }}\n'
    subprocess.run(["bash", "-c", shim + command_text(experiment)], cwd=tmp_path, check=True, timeout=60)
    words = (tmp_path / "words").read_text().splitlines()
    asked_for: list[Experiment] = []

    def measured(wanted: Experiment, *_: Any) -> None:
        asked_for.append(wanted)
        raise ValueError("enough")

    monkeypatch.setattr("workbench.cli.ask.measured", measured)
    monkeypatch.chdir(tmp_path)
    assert cli.status(words) == 2
    assert words[0] == ("run" if experiment.together else "sweep")
    assert keys(asked_for[0]) == keys(experiment)
    assert (asked_for[0].fresh, asked_for[0].parts) == (experiment.fresh, experiment.parts)


@pytest.mark.parametrize("measured", [True, False])
def test_the_cell_is_the_same_experiment_in_a_notebook(
    experiment: Experiment, measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()

    class Connected:
        def __enter__(self) -> FakeCluster:
            return cluster

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("cluster.client.Cluster.connect", lambda *_: Connected())
    monkeypatch.setattr("workbench.results.store.store_path", lambda path=None: path or tmp_path / "store.sqlite")
    names: dict[str, Any] = {}
    exec(compile(python_text(experiment, measured=measured), "cell", "exec"), names)
    assert names["experiment"] == experiment
    table = names["table"]
    whole = table[(table["part"] == "whole") & (table["source"] == ("measured" if measured else "estimated"))]
    made = {  # rows have all axes, schedules leave out values that older ones had implicitly
        (row["scheme"], tuple(sorted(Schedule.from_json(row).axes))) for _, row in whole.iterrows()
    }
    (problem,) = experiment.problems
    points = experiment.points(problem, machines.machine(experiment.machine), measured=measured)
    assert len(made & {(each.scheme, tuple(sorted(each.axes))) for each in points.schedules}) > 0
    assert bool(cluster.lists) == measured
    if measured:
        with Store(tmp_path / "store.sqlite") as store:
            assert store.run("last")["title"] == experiment.title


def test_a_link_that_a_file_cannot_say_is_refused_with_both_texts() -> None:
    question = replace(ONE, fabric="emulated:bandwidth_bytes_per_second=1234567.5")
    with pytest.raises(Refusal, match="more digits than a file says"):
        toml_text(question.experiment(machines.machine("laptop_cpu")))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_comes_back_from_its_json(name: str) -> None:
    question = QUESTIONS[name]
    assert FormQuestion.from_json(json.loads(json.dumps(question.to_json()))) == question
    for key, value in (("shape", [["m", None]]), ("world", "2"), ("values", [["fused", [1]]]), ("swept", "all")):
        with pytest.raises(ValueError, match=rf"cannot be read: a question has {key} = "):
            FormQuestion.from_json({**question.to_json(), key: value})


def test_the_commands_of_two_questions_write_two_files() -> None:
    machine = machines.machine("laptop_cpu")
    both = ((SCHEME, "slice_tiles"), (SCHEME, "slice_tiles", "pieces", "tile"))
    texts = [command_text(replace(ONE, swept=swept).experiment(machine)) for swept in both]
    files = {text.partition("\n")[0] for text in texts}
    assert all(file.startswith("cat > space_") for file in files)
    assert len(files) == 2
