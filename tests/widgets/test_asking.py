"""The form's state becomes a problem, a trial and an experiment, and says why it cannot."""

import pytest

from kernels.schedule import Refusal
from kernels.schemes import COMPARED
from workbench.experiment.form import FormQuestion
from workbench.machines import machine

SHAPE = (("m", 64), ("n", 64), ("k", 64))


def asked(**changes: object) -> FormQuestion:
    return FormQuestion(
        **{
            "operator": "gemm_all_to_all",
            "shape": SHAPE,
            "dtype": "float32",
            "world": 2,
            "scheme": "fused",
            "fabric": "emulated:wire_to_compute=1",
            **changes,
        }
    )  # type: ignore[arg-type]


def test_values_that_were_set_are_in_the_trial_and_the_others_keep_their_default() -> None:
    trial = asked(values=(("fused", (("write", "staged"),)),)).trial(machine("laptop_cpu"))
    assert trial.schedule["write"] == "staged"
    assert trial.schedule["tile_order"] == "rotated"


def test_values_of_one_scheme_are_kept_while_another_is_shown() -> None:
    both = asked(values=(("fused", (("slice_tiles", 2),)),))
    assert both.values_of("fused") == {"slice_tiles": 2}
    assert both.values_of("decomposed") == {}


def test_one_trial_is_measured_together_with_everything_it_is_compared_with() -> None:
    experiment = asked().experiment(machine("laptop_cpu"))
    assert experiment.together
    assert experiment.parts == "each"
    assert len(experiment.points(experiment.problems[0], machine("laptop_cpu")).schedules) == 1


def test_a_swept_axis_takes_all_its_values_and_schemes_are_compared_on_request() -> None:
    here = machine("laptop_cpu")
    swept = asked(swept=("slice_tiles", "scheme"), shape=(("m", 2048), ("n", 2048), ("k", 64))).experiment(here)
    schedules = swept.points(swept.problems[0], here).schedules
    assert {schedule.scheme for schedule in schedules} == set(COMPARED)
    assert len({schedule["slice_tiles"] for schedule in schedules if schedule.scheme == "fused"}) > 2
    assert not swept.together


def test_an_illegal_combination_says_why() -> None:
    with pytest.raises(Refusal, match=r"pattern = ring"):
        asked(scheme="decomposed", values=(("decomposed", (("pattern", "ring"), ("grouping", "fused"))),)).trial(
            machine("laptop_cpu")
        )


def test_one_micro_batch_has_nothing_to_overlap_with() -> None:
    with pytest.raises(Refusal, match=r"1 < 2\. Accepted: 2 to 32\."):
        asked(scheme="concurrent", values=(("concurrent", (("micro_batches", 1),)),)).trial(machine("laptop_cpu"))
