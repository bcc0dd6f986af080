"""Old module names still import, say so once, and name the new module; they go with the next release."""

import subprocess
import sys
from importlib import import_module, util

import pytest

import kernels.old_names
import workbench.old_names

OLD = kernels.old_names.MODULES | workbench.old_names.MODULES
LESSONS = """
from kernels.axes import tile
from kernels.backends.triton.rank import Call, Rank, Symmetric
from kernels.occupancy import NCCL, SHOT, beside, gemm_block, limits_of, padding, resident_blocks
from kernels.schemes import controls, schedule, tile_order
from workbench import counted, metrics, presets, recordings, resources
from workbench.bounds import bounds
from workbench.charts import accuracy, caches, landscape, looks, residency, scale_out, share_of_ideal, sweep, theme
from workbench.charts import claims as chart
from workbench.charts.words import fabric_words
from workbench.claims import answers, not_asked
from workbench.experiment import Experiment, Search
from workbench.lesson import beside, lesson, table
from workbench.machines import machine, shipped_machine, stated
from workbench.naming import source_title
from workbench.published import number, published
from workbench.reports.bundle import enable_renderer
from workbench.simulator.cache import operators, reuse, study
from workbench.simulator.cache.hierarchy import STUDY, hierarchy, of_machine
from workbench.simulator.cache.policies import POLICIES
from workbench.simulator.cache.simulate import simulate
from workbench.simulator.cache.sizes import SIZES, of_sizes, swept
from workbench.simulator.network import of_machine
from workbench.simulator.step.band import band
from workbench.simulator.step.configurations import CONFIGURATIONS, Setting, Stragglers, rows
from workbench.simulator.step.model import model, names
from workbench.simulator.step.prices import Prices
from workbench.terms import terms
from workbench.validation import validate_recordings
from workbench.widgets import explorer
assert callable(explorer)
"""
"""The imports of the notebooks before the modules moved."""


@pytest.mark.slow
def test_the_old_imports_of_the_notebooks_work_in_any_process() -> None:
    ran = subprocess.run([sys.executable, "-c", LESSONS], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("workbench.metrics is now workbench.results.metrics.") == 1


@pytest.mark.parametrize("old", [name for name in OLD if "triton" not in name])
def test_an_old_name_is_the_new_module_and_says_so_once(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(FutureWarning, match=f"{old} is now {OLD[old]}"):
        module = import_module(old)
    new = import_module(OLD[old])
    public = [name for name in vars(new) if not name.startswith("_")]
    assert [getattr(module, name) for name in public] == [getattr(new, name) for name in public]
    assert import_module(old) is module, "a second warning would be an error"


@pytest.mark.parametrize("tables", [kernels.old_names, workbench.old_names])
def test_renamed_names_exist_in_the_new_modules(tables: object) -> None:
    for old, names in tables.ATTRIBUTES.items():  # type: ignore[attr-defined]
        new = import_module(OLD[old])
        assert [name for name in names.values() if not hasattr(new, name)] == [], old


def test_an_old_name_never_hides_a_module() -> None:
    assert [name for name in OLD if getattr(util.find_spec(name), "origin", None)] == []


def test_the_old_module_of_experiments_still_has_its_classes() -> None:
    from workbench import experiment

    with pytest.warns(FutureWarning, match=r"Experiment is now workbench\.experiment\.experiment\.Experiment"):
        assert experiment.Experiment.__name__ == "Experiment"
    with pytest.raises(AttributeError):
        _ = experiment.Nothing


def test_unknown_modules_are_still_unknown() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("workbench.no_such_module")


def test_old_names_cost_nothing_at_the_start() -> None:
    code = "import sys, workbench; print([name for name in sys.modules if 'old_names' in name or name == 'kernels'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
