"""What ranks cannot run is asked where no rank is: of the backend, in a process that has no torch."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import backends
from kernels.fabric import parse
from kernels.machine import BACKENDS, load
from kernels.operators import OPERATORS, problem
from kernels.schemes import BASELINE, SCHEMES, run_by, schedule
from kernels.trial import PROTOCOLS, Trial

ROOT = Path(__file__).parents[3]
SHAPE = {"m": 512, "n": 512, "k": 512}
MACHINES = {"cpu": "laptop_cpu", "triton": "h200_nvl8"}
LINKS = {"cpu": "emulated", "triton": "nvlink"}

ASKED = """
import sys
import kernels.backends
strangers = {"torch", "triton", "numba"} & {name.partition(".")[0] for name in sys.modules}
assert not strangers, strangers
"""


def trial(backend: str, *, dtype: str, link: str | None = None) -> Trial:
    machine, fabric = load(ROOT / "data" / "machines" / f"{MACHINES[backend]}.toml"), parse(link or LINKS[backend])
    asked = problem("gemm_all_to_all", SHAPE, dtype=dtype, world=2)
    chosen = schedule(asked, "fused", {}, machine, fabric)
    return Trial(problem=asked, schedule=chosen, backend=backend, machine=machine.name, fabric=fabric,
                 protocol=PROTOCOLS["quick"])  # fmt: skip


def test_cpu_ranks_compute_no_more_tiles_than_somebody_waits_for() -> None:
    """A quarter of a million tiles are refused with tiles that are not."""
    usual = trial("cpu", dtype="float32")
    narrow = replace(usual, schedule=replace(usual.schedule, axes=(("tile", "1x1x512"), *usual.schedule.axes[1:])))
    sentence = backends.refusal(narrow, True)
    assert sentence == ("tile = 1x1x512 cuts 512 x 512 into 262,144 tiles, and a CPU rank calls each by itself: "
                        "262,144 > 16,384. Accepted: larger tiles, such as 32x32x512.")  # fmt: skip
    larger = (("tile", "32x32x512"), *usual.schedule.axes[1:])
    assert backends.refusal(replace(usual, schedule=replace(usual.schedule, axes=larger)), True) is None


def test_asking_a_backend_needs_no_torch_and_no_triton() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("backend", "dtype", "accepted"),
    [("cpu", "float16", "Accepted: float32, bfloat16"), ("triton", "float32", "Accepted: bfloat16, float16")],
)
def test_a_dtype_that_the_kernels_do_not_know_is_refused(backend: str, dtype: str, accepted: str) -> None:
    assert accepted in str(backends.refusal(trial(backend, dtype=dtype), shares_heap=True))
    assert backends.refusal(trial(backend, dtype="bfloat16"), shares_heap=True) is None


def test_a_link_that_ranks_do_not_have_is_refused_before_its_bandwidth_is_known() -> None:
    asked = trial("triton", dtype="bfloat16")
    emulated = replace(asked, fabric=parse("emulated"))
    assert "Accepted: nvlink" in str(backends.refusal(emulated, shares_heap=True))
    here = trial("cpu", dtype="float32")
    assert backends.refusal(here, shares_heap=True) is None
    assert "Accepted: emulated, shared_memory, network" in str(
        backends.refusal(replace(here, fabric=parse("nvlink")), shares_heap=True)
    )


def test_ranks_of_several_hosts_are_refused_what_needs_peers_memory() -> None:
    for backend in BACKENDS:
        assert "hosts" in str(backends.refusal(trial(backend, dtype="bfloat16"), shares_heap=False))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_of_the_table_has_a_folder_dtypes_a_usual_link_and_the_baseline(backend: str) -> None:
    assert (Path(backends.__file__).parent / backend / "backend.py").exists()
    assert all(backends.dtypes(backend, operator) for operator in OPERATORS)
    assert LINKS[backend] == BACKENDS[backend][0]
    assert BASELINE in run_by(backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_run_the_schemes_that_say_so_and_refuse_the_others(backend: str) -> None:
    asked = trial(backend, dtype="bfloat16")
    machine = load(ROOT / "data" / "machines" / f"{MACHINES[backend]}.toml")
    for name in SCHEMES:
        usual = replace(asked, schedule=schedule(asked.problem, name, {}, machine, asked.fabric))
        refused = backends.refusal(usual, shares_heap=True) is not None
        assert refused == (name not in run_by(backend)), name
    assert {name for known in SCHEMES.values() for name in known.run_by} <= set(BACKENDS)
