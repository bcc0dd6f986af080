"""The machines one can name: the files we ship and, preferred to them, those calibrated or added on this computer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from cluster import gpus
from kernels.backends import BACKENDS
from kernels.machine import Machine, load
from kernels.schedule import Refusal
from workbench.resources import data_directory, runs_directory

LAPTOP = "laptop_cpu"
"""The machine of CPU ranks, whatever computer they run on."""
OF_GPU = {
    "NVIDIA H200": "h200_nvl",
    "NVIDIA H100 80GB HBM3": "h100_nvl",
    "NVIDIA A100-SXM4-80GB": "a100_nvl",
    "NVIDIA A40": "a40_pcie",
}
"""What the driver calls a GPU, and how the names of machines begin that are made of it; their count follows."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One value of a machine file and where it comes from."""

    key: str
    """Dotted, such as `dimension.0.latency_seconds`."""
    value: object
    provenance: str
    """`datasheet`, `calibrated` or `assumed`."""
    source: str
    """The document, or the reason to assume it."""


def names() -> tuple[str, ...]:
    """Names of all machines, the CPU ranks' first."""
    found = {path.stem for folder in _folders() for path in folder.glob("*.toml")}
    return tuple(sorted(found, key=lambda name: (name != LAPTOP, name)))


def machine(name: str) -> Machine:
    """The machine called *name*, as calibrated on this computer if it was, else as shipped; Refusal lists the names."""
    _check_known(name)
    calibrated, shipped = (folder / f"{name}.toml" for folder in _folders())
    return _read(calibrated if calibrated.exists() else shipped)


def shipped_machine(name: str) -> Machine:
    """The machine called *name* without any calibration: what calibrating begins with."""
    _check_known(name)
    calibrated, shipped = (folder / f"{name}.toml" for folder in _folders())
    return _read(shipped if shipped.exists() else calibrated)


def of_gpus() -> Machine:
    """The machine that this host's GPUs make; Refusal where none is described, to state one."""
    found = gpus.here()
    kinds = {gpu.name for gpu in found}
    prefix = OF_GPU.get(found[0].name) if len(kinds) == 1 else None
    # of those that have enough, the one with the fewest
    fits = sorted((count, name) for name in names() if prefix and (count := _count(name, prefix)) >= len(found))
    if fits:
        return machine(fits[0][1])
    offered = [name for name in names() if machine(name).backend == "triton"]
    which = f" ({', '.join(sorted(kinds))})" if kinds else ""
    raise Refusal(
        f"backend = triton was asked for without a machine, and none describes this host's {len(found)} GPUs{which}. "
        f"Accepted: --machine with one of {', '.join(offered)}."
    )


def _count(name: str, prefix: str) -> int:
    """How many GPUs the machine called *name* has, if it is one of those that *prefix* begins, or else 0."""
    rest = name.removeprefix(prefix)
    return int(rest) if name.startswith(prefix) and rest.isdigit() else 0


def unmeasurable(of: Machine, world: int = 1, elsewhere: bool = False) -> str | None:
    """Why *world* ranks of this host, or ranks *elsewhere* of this version, cannot measure on *of*; or None."""
    count = 0 if elsewhere or of.backend == "cpu" else len(gpus.here())
    able = [name for name in BACKENDS if name == "cpu" or elsewhere or count]
    if of.backend in able:
        if world <= count or count == 0:
            return None
        return (
            f"world = {world} was asked for on backend = {of.backend}, where every rank has a GPU of its own, but this "
            f"host has {count}. Accepted: world 1 to {count}, or `workbench predict` with the same words."
        )
    return (
        f"A measurement on machine {of.name} was asked for, whose backend is {of.backend}, but the ranks "
        f"{'there' if elsewhere else 'here'} have {', '.join(able)}. Accepted: --machine {LAPTOP}, or "
        "`workbench predict` with the same words."
    )


def calibrated_path(name: str) -> Path:
    """The file that calibrating *name* writes; its folder may not exist yet."""
    return runs_directory() / "machines" / f"{name}.toml"


def stated(of: Machine) -> Iterator[Stated]:
    """Every value of a machine with its provenance, in the order of its file."""
    for key, value in _values(of):
        kind, _, source = of.provenance_of(key).partition(":")
        yield Stated(key, value, kind, source.strip())


def _folders() -> tuple[Path, Path]:
    """What is preferred comes first."""
    return calibrated_path("any").parent, data_directory() / "machines"


def _check_known(name: str) -> None:
    if name not in names():
        raise Refusal(f"machine {name!r} was asked for, which is unknown. Accepted: {', '.join(names())}.")


def _read(path: Path) -> Machine:
    found = _load(path, path.stat().st_mtime_ns)
    if found.name != path.stem:
        raise ValueError(f"{path.name} says name = {found.name!r}, but a machine is found by its file's name. "
                         f"Write name = {path.stem!r}, or call the file {found.name}.toml.")  # fmt: skip
    return found


@lru_cache(maxsize=64)
def _load(path: Path, modified_ns: int) -> Machine:
    """*modified_ns* is in the key: a file that is written again, as by calibrating, is read again."""
    return load(path)


def _values(of: Machine) -> Iterator[tuple[str, object]]:
    for table in ("device", "costs"):
        for name, value in asdict(getattr(of, table)).items():
            if isinstance(value, dict):
                yield from ((f"{table}.{name}.{dtype}", speed) for dtype, speed in value.items())
            else:
                yield f"{table}.{name}", value
    for level, dimension in enumerate(of.dimensions):
        yield from ((f"dimension.{level}.{name}", value) for name, value in asdict(dimension).items())
    for rate in of.rates:
        yield f"rate.{rate.work}.{rate.dtype}.{rate.width:g}.{rate.size:g}", rate.per_second
    for call in of.collectives:
        yield f"collective.{call.name}.{call.world}.{call.num_bytes:g}", call.seconds
