"""What the check before a release asks can be asked, on CPU ranks, two H200s and one; what must be refused is."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernels.backends.triton.recipes import compilations
from kernels.fabric import SHARED_GPU
from kernels.operators import OPERATORS
from tests.release.checks import words_of
from tests.release.questions import QUESTIONS, REFUSED, SHARED, SpaceFile
from tests.release.site import Site
from workbench import cli, machines
from workbench.cli import measuring
from workbench.experiment import question
from workbench.experiment.experiment import Experiment
from workbench.experiment.fields import pairs
from workbench.experiment.question import Request
from workbench.results.comparison import MAX_BLOCK_SCHEDULES

MACHINES = {"cpu": "laptop_cpu", "triton": "h200_nvl2", SHARED: "h200_nvl2"}
NEEDS_A_CLUSTER = ("more ranks than there are", "second cluster", "nobody at the address")
"""The real check asks these."""


def loaded(space: SpaceFile, world: int, backend: str, folder: Path) -> Experiment:
    text = space.toml(world, "triton", SHARED_GPU) if backend == SHARED else space.toml(world, backend)
    path = folder / "space.toml"
    path.write_text(f'machine = "{MACHINES[backend]}"\n{text}')
    return question.load(path)


@pytest.mark.parametrize("backend", QUESTIONS)
@pytest.mark.parametrize(("name", "world"), [("sweep", 2), ("long", 2), ("alone", 1)])
def test_every_schedule_of_a_space_can_be_measured(backend: str, name: str, world: int, tmp_path: Path) -> None:
    if (backend, name) == (SHARED, "alone"):
        pytest.skip("a rank alone shares its GPU with nobody")
    space: SpaceFile = getattr(QUESTIONS[backend], name)
    experiment = loaded(space, world, backend, tmp_path)
    (problem,) = experiment.problems
    points = experiment.points(problem, machines.machine(experiment.machine), measured=True)
    left_out = [chosen.get("collective") for chosen, _ in points.left_out]
    assert (len(points.schedules), list(points.refused)) == (space.count, [])
    assert left_out == (["library_tuned", "copy_engine"] if (backend, name) == (SHARED, "sweep") else [])
    kernels = {one for chosen in points.schedules
               for one in compilations(experiment.trial(problem, chosen, experiment.fabric))}  # fmt: skip
    assert len(kernels) <= 2, "the kernel and its watched form"


@pytest.mark.parametrize("backend", QUESTIONS)
def test_a_long_space_has_several_blocks(backend: str) -> None:
    assert min(QUESTIONS[backend].long.count, QUESTIONS[backend].alone.count) > MAX_BLOCK_SCHEDULES


@pytest.mark.parametrize("backend", QUESTIONS)
def test_every_operator_is_asked_and_runs(backend: str) -> None:
    questions = QUESTIONS[backend]
    assert list(questions.shapes) == list(OPERATORS)
    machine = machines.machine(MACHINES[backend])
    for operator, shape in questions.shapes.items():
        sizes = pairs(shape.split(), "--shape", "m=1024")
        shares = backend == SHARED
        request = Request(operator=operator, shape=sizes, machine=machine.name, share_gpu=shares).measured()
        experiment = request.experiment()
        points = experiment.points(experiment.problems[0], machine, measured=True)
        assert tuple(chosen.scheme for chosen in points.schedules) == questions.schemes(operator)


@pytest.mark.parametrize("backend", QUESTIONS)
@pytest.mark.parametrize("name", [name for name in REFUSED if name not in NEEDS_A_CLUSTER])
def test_what_must_be_refused_is(
    backend: str, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, host_with_gpus: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    @contextmanager
    def connected(*_: Any, **__: Any) -> Iterator[Any]:
        pytest.fail("a cluster was started for nothing")
        yield

    monkeypatch.setattr(measuring, "connected", connected)
    monkeypatch.chdir(tmp_path)
    host_with_gpus(1 if backend == SHARED else 2)
    site = cast(Site, SimpleNamespace(sizes=lambda operator: sizes(operator, backend)))
    status = cli.status(words_of(site, REFUSED[name]))
    out, err = capsys.readouterr()
    assert (status, REFUSED[name].sentence in err) == (REFUSED[name].status, True), err
    assert not out or json.loads(out)["outcome"] == "failure"


def sizes(operator: str, backend: str) -> list[str]:
    """As a Site says them, but of a machine that this host need not be."""
    shares = backend == SHARED
    known = {"questions": QUESTIONS[backend], "backend": "triton" if shares else backend, "share_gpu": shares}
    fitting = type("Fitting", (), known)
    return [*Site.sizes(cast(Site, fitting), operator), "--machine", MACHINES[backend]]
