"""The machines one can name: the files we ship and, preferred to them, those calibrated or added on this computer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from cluster import hosts
from kernels import files
from kernels.machine import BACKENDS, Machine, load
from kernels.schedule import Refusal
from workbench import resources
from workbench.resources import LAPTOP as LAPTOP
from workbench.resources import data_directory, runs_directory
from workbench.results.files import MACHINE, FileTarget, sentences

DAMAGED = ".damaged"
"""How the name of a machine file ends that could not be read, and was calibrated anew."""


TOLD = "assumed: as its worker tells"
"""How the provenance begins of what a machine's own workers told, and no document."""


@dataclass(frozen=True, slots=True)
class StatedValue:
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
    every = {path.stem for folder in _folders() for path in folder.glob("*.toml")}
    return tuple(sorted(every, key=lambda name: (name != LAPTOP, name)))


def readable() -> Iterator[Machine]:
    """All machines, without those whose files are wrong: who asks for one of them by name is told."""
    return _readable(names())


def known(name: str) -> Machine | None:
    """The machine called *name*; None where there is none here, or its file is damaged."""
    return next(_readable([name]), None) if name in names() else None


def _readable(of: Iterable[str]) -> Iterator[Machine]:
    paths = [next(filter(Path.exists, _files(name))) for name in of]
    return resources.readable(paths, lambda path: machine(path.stem))


def machine(name: str) -> Machine:
    """The machine called *name*, as calibrated on this computer if it was, else as shipped; Refusal lists the names.

    A damaged calibration is left out, and told, where there is the shipped machine to take; else it is a ValueError.
    """
    _check_known(name)
    calibrated, shipped = _files(name)
    if not calibrated.exists():
        return _read(shipped)
    try:
        fitted = _read(calibrated)
    except ValueError as error:
        if not shipped.exists():
            raise
        resources.leave_out(calibrated, f"{error} The machine is taken as it is shipped, not calibrated.")
        return _read(shipped)
    resources.mark_readable(calibrated)
    return fitted if name != LAPTOP else _as_many_ranks(fitted, _read(shipped))


def _as_many_ranks(fitted: Machine, shipped: Machine) -> Machine:
    """How many CPU ranks there may be is nothing that one measures: files of older versions say 8."""
    pairs = zip(fitted.dimensions, shipped.dimensions, strict=False)
    return replace(fitted, dimensions=tuple(replace(one, count=max(one.count, other.count)) for one, other in pairs))


def shipped_machine(name: str) -> Machine:
    """The machine called *name* without any calibration: what calibrating begins with."""
    _check_known(name)
    calibrated, shipped = _files(name)
    return _read(shipped if shipped.exists() else calibrated)


def trust(name: str) -> str:
    """How far the description of machine *name* is to be trusted that was never calibrated, in words."""
    described = known(name)
    is_told = described is not None and described.provenance_of("device.name").startswith(TOLD)
    return "assumed, not calibrated" if is_told else "not calibrated"


def unmeasurable(of: Machine, world: int = 1, elsewhere: bool = False) -> str | None:
    """Why *world* ranks of this host, or ranks *elsewhere* of this version, cannot measure on *of*; or None."""
    count = 0 if elsewhere or of.backend == "cpu" else len(hosts.visible_gpus())
    able = [name for name in BACKENDS if name == "cpu" or elsewhere or count]
    if of.backend in able:
        if world <= count or count == 0:
            return None
        return (
            f"world = {world} is too large for backend = {of.backend}. Every rank needs a GPU of its own, and this "
            f"host has {count}. Accepted: world 1 to {count}, or `workbench predict` with the same words."
        )
    return (
        f"Machine {of.name} cannot be measured {'there' if elsewhere else 'here'}. Its backend is {of.backend}, "
        f"but the ranks have {', '.join(able)}. Accepted: --machine {LAPTOP}, or `workbench predict` with the same "
        "words."
    )


def calibrated_path(name: str) -> Path:
    """The file that calibrating *name* writes; its folder may not exist yet."""
    return runs_directory() / "machines" / f"{name}.toml"


def stated(of: Machine) -> Iterator[StatedValue]:
    """Every value of a machine with its provenance, in the order of its file."""
    for key, value in _values(of):
        kind, _, source = of.provenance_of(key).partition(":")
        yield StatedValue(key, value, kind, source.strip())


def _files(name: str) -> tuple[Path, Path]:
    """Where machine *name* may stand; what is preferred comes first."""
    calibrated, shipped = (folder / f"{name}.toml" for folder in _folders())
    return calibrated, shipped


def _folders() -> tuple[Path, Path]:
    """What is preferred comes first."""
    return calibrated_path("any").parent, data_directory() / "machines"


def _check_known(name: str) -> None:
    if name not in names():
        raise Refusal(f"There is no machine {name!r}. Accepted: {', '.join(names())}.")


def _read(path: Path) -> Machine:
    read = _load(path, files.modified_ns(path))
    if read.name != path.stem:
        raise ValueError(f"{path.name} says name = {read.name!r}, but a machine is found by its file's name. "
                         f"Accepted: name = {path.stem!r}, or a file called {read.name}.toml.")  # fmt: skip
    return read


def crowded(world: int, cores: int) -> str | None:
    """What to know before *world* ranks are timed on *cores*, or None."""
    if world <= cores:
        return None
    some = f"{cores} core" if cores == 1 else f"{cores} cores"
    return f"{world} ranks share {some} here: they slow each other down beyond what overlap explains."


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
        yield from ((f"dimension.{level}.{name}", value) for name, value in asdict(dimension).items() if value != "")
    for rate in of.rates:
        yield f"rate.{rate.work}.{rate.dtype}.{rate.width:g}.{rate.size:g}", rate.per_second
    for call in of.collectives:
        yield f"collective.{call.name}.{call.world}.{call.num_bytes:g}", call.seconds


def own(name: str) -> FileTarget:
    """The file of the calibrated machine *name* beside the runs, whatever stands there now."""
    path = calibrated_path(name)
    with sentences(path, MACHINE.noun):
        path.parent.mkdir(parents=True, exist_ok=True)
    return FileTarget(path, force=True)


def write(text: str, target: FileTarget) -> Machine:
    """The machine that *text* is, in a file: whole or not at all."""
    read: list[Machine] = []

    def fill(unfinished: Path) -> None:
        unfinished.write_text(text)
        read.append(load(unfinished))

    _keep_damaged(target.path)
    target.write(MACHINE, fill)
    resources.mark_readable(target.path)
    return read[0]


def _keep_damaged(path: Path) -> None:
    """A machine file that nobody can read is not lost to the one that takes its place: somebody may have edited it."""
    if not path.exists():
        return
    try:
        load(path)
    except ValueError:
        with sentences(path, MACHINE.noun):
            path.replace(path.with_name(f"{path.name}{DAMAGED}"))
