"""Machines by name: shipped files and, preferred to them, files that were calibrated or added on this computer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cluster import hosts
from cluster.cpu_use import HostUse
from kernels import files
from kernels.machine import BACKENDS, KIND, Machine, load
from kernels.schedule import Refusal
from kernels.units import percent_text
from workbench import resources
from workbench.resources import LAPTOP as LAPTOP
from workbench.resources import data_directory, runs_directory
from workbench.results.files import MACHINE, FileTarget, readable_errors
from workbench.results.quiet import BUSY_SHARE

DAMAGED = ".damaged"
"""Ending of the name of an unreadable machine file that was replaced by a new calibration."""
BEFORE, UNDONE = ".before", ".undone"
"""Endings of the names of a machine's calibration before the present one, and of the one that was undone last."""

DISTRUSTED = "; not trusted, others used the cores meanwhile: "
"""Between the provenance of a value and who used more of the cores than is accepted while it was measured."""

FROM_WORKERS = "assumed: as its worker tells"
"""Beginning of the provenance of values that a machine's workers reported, and no document has."""


@dataclass(frozen=True, slots=True)
class MachineValue:
    """A value of a machine file with its provenance."""

    key: str
    """Dotted, such as `dimension.0.latency_seconds`."""
    value: object
    provenance: str
    """`datasheet`, `calibrated` or `assumed`."""
    source: str
    """The document, or the reason for an assumption."""


def names() -> tuple[str, ...]:
    """Names of all machines, the one of CPU ranks first."""
    every = {path.stem for folder in _folders() for path in folder.glob("*.toml")}
    return tuple(sorted(every, key=lambda name: (name != LAPTOP, name)))


def readable() -> Iterator[Machine]:
    """All machines with a readable file; only a request by name raises for a wrong file."""
    return _readable(names())


def known(name: str) -> Machine | None:
    """The machine called *name*, or None if there is none, or its file is damaged."""
    return next(_readable([name]), None) if name in names() else None


def _readable(of: Iterable[str]) -> Iterator[Machine]:
    paths = [next(filter(Path.exists, _files(name))) for name in of]
    return resources.readable(paths, lambda path: machine(path.stem))


def machine(name: str) -> Machine:
    """The machine called *name*, as calibrated on this computer or else as shipped; Refusal lists the names.

    A damaged calibration is reported and ignored if there is a shipped machine; else it raises ValueError.
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
    """*fitted* with at least as many CPU ranks as *shipped*: the number is not measured, and older files have 8."""
    pairs = zip(fitted.dimensions, shipped.dimensions, strict=False)
    return replace(fitted, dimensions=tuple(replace(ours, count=max(ours.count, other.count)) for ours, other in pairs))


def shipped_machine(name: str) -> Machine:
    """The machine called *name* without calibration, with which calibrating begins."""
    _check_known(name)
    calibrated, shipped = _files(name)
    return _read(shipped if shipped.exists() else calibrated)


def trust(name: str) -> str:
    """The trust in the description of uncalibrated machine *name*, as text."""
    described = known(name)
    is_assumed = described is not None and described.provenance_of("device.name").startswith(FROM_WORKERS)
    return "assumed, not calibrated" if is_assumed else "not calibrated"


def unmeasurable(of: Machine, world: int = 1, elsewhere: bool = False, *, share_gpu: bool = False) -> str | None:
    """Why *world* ranks of this host, or of a cluster *elsewhere*, cannot measure on *of*; None if they can.

    *share_gpu*: they are to be on one GPU.
    """
    count = 0 if elsewhere or of.backend == "cpu" else len(hosts.visible_gpus())
    able = [name for name in BACKENDS if name == "cpu" or elsewhere or count]
    if of.backend in able:
        if share_gpu and not elsewhere:
            return hosts.sharing_refusal("world", world, count)
        if world <= count or count == 0 or share_gpu:
            return None
        sharing = "" if hosts.sharing_refusal("world", world, count) else "--share-gpu for ranks that share one, "
        return (
            f"world = {world} is too large for backend = {of.backend}. Every rank needs a GPU of its own, and this "
            f"host has {count}. Accepted: world 1 to {count}, {sharing}or `workbench predict` with the same options."
        )
    return (
        f"Machine {of.name} cannot be measured {'there' if elsewhere else 'here'}. Its backend is {of.backend}, "
        f"but the ranks have {', '.join(able)}. Accepted: --machine {LAPTOP}, or `workbench predict` with the same "
        f'options; in a space file machine = "{LAPTOP}", or `workbench sweep --estimate`.'
    )


def calibrated_path(name: str) -> Path:
    """The file that calibrating *name* writes; its folder may not exist yet."""
    return runs_directory() / "machines" / f"{name}.toml"


def distrusted(of: Machine) -> dict[str, str]:
    """By the key of each value that was measured while others used the cores: who, and how many of how many."""
    marked = {key: how.partition(DISTRUSTED)[2] for key, how in of.provenance.items()}
    return {key: others for key, others in marked.items() if others}


def machine_values(of: Machine) -> Iterator[MachineValue]:
    """Every value of a machine with its provenance, in file order."""
    for key, value in _values(of):
        kind, _, source = of.provenance_of(key).partition(":")
        yield MachineValue(key, value, kind, source.strip())


def _files(name: str) -> tuple[Path, Path]:
    """Possible files of machine *name*, the preferred one first."""
    calibrated, shipped = (folder / f"{name}.toml" for folder in _folders())
    return calibrated, shipped


def _folders() -> tuple[Path, Path]:
    """Folders of machine files, the preferred one first."""
    return calibrated_path("any").parent, data_directory() / "machines"


def _check_known(name: str) -> None:
    if not _has_file(name) and name not in names():
        raise Refusal(f"There is no machine {name!r}. Accepted: {', '.join(names())}.")


def _has_file(name: str) -> bool:
    """Whether a file is called *name*: listing the folders takes longer than all else."""
    return Path(name).name == name and any(map(os.path.lexists, _files(name)))


def _read(path: Path) -> Machine:
    read = _load(path, files.modified_ns(path))
    if read.name != path.stem:
        raise ValueError(f"{path.name} says name = {read.name!r}, but a machine is found by its file's name. "
                         f"Accepted: name = {path.stem!r}, or a file called {read.name}.toml.")  # fmt: skip
    return read


def crowded(world: int, cores: int, where: str = " here") -> str | None:
    """A warning about timing *world* CPU ranks on *cores*, or None."""
    if world <= cores:
        return None
    shared = f"{cores} core" if cores == 1 else f"{cores} cores"
    return f"{world} ranks share {shared}{where}: they take turns, so times show the order, not the speed."


@lru_cache(maxsize=64)
def _load(path: Path, modified_ns: int) -> Machine:
    """The machine in *path*, cached by *modified_ns* too: calibrating writes the file again."""
    resources.refuse_slow_toml(files.text(path, KIND), path, KIND)
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


def calibrated_target(name: str) -> FileTarget:
    """The file of the calibrated machine *name* in the runs folder, replaced if it exists."""
    path = calibrated_path(name)
    with readable_errors(path, MACHINE.noun):
        path.parent.mkdir(parents=True, exist_ok=True)
    return FileTarget(path, renews=True)


def write(text: str, target: FileTarget) -> Machine:
    """Write machine file *text* to *target*, whole or not at all; the result is the machine.

    The machine's calibration before it stays as a file, to which `undo` goes back.
    """
    loaded: list[Machine] = []

    def fill(unfinished: Path) -> None:
        unfinished.write_text(text)
        loaded.append(load(unfinished))
        if target.path == calibrated_path(loaded[0].name) and target.path.exists():
            _copy(target.path, BEFORE)

    _keep_damaged(target.path)
    target.write(MACHINE, fill)
    resources.mark_readable(target.path)
    return loaded[0]


def undo(name: str) -> Machine:
    """Bring back machine *name* as it was before its last calibration: the one before that, or the shipped one.

    The undone calibration stays as a file that ends in UNDONE. Refusal where there is no calibration to undo.
    """
    _check_known(name)
    path, shipped = _files(name)
    before = _kept(path, BEFORE)
    if before.exists():
        load(before)  # a damaged file is refused while the present one is still in use
    elif not path.exists() or not shipped.exists() or load(path).calibrated is None:
        raise Refusal(f"--undo has nothing to bring back for {name}: 0 calibrations of it are kept in {path.parent}. "
                      "Accepted: a machine that was calibrated on this computer.")  # fmt: skip
    with readable_errors(path, MACHINE.noun):
        if path.exists():
            _copy(path, UNDONE)
        if before.exists():
            before.replace(path)
        else:
            path.unlink()
    resources.mark_readable(path)
    return machine(name)


def _kept(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _copy(path: Path, ending: str) -> None:
    """Copy machine file *path* to one with this *ending* added to its name, whole or not at all."""
    with files.whole(_kept(path, ending)) as unfinished:
        unfinished.write_bytes(path.read_bytes())


def _keep_damaged(path: Path) -> None:
    """Rename an unreadable machine file before it is replaced: it may have been edited by hand."""
    if not path.exists():
        return
    try:
        load(path)
    except ValueError:
        with readable_errors(path, MACHINE.noun):
            path.replace(_kept(path, DAMAGED))


# A busy computer is not calibrated.


class BusyComputer(files.Failed):
    """Others use more of the cores than is accepted, so that the machine stays as it was."""

    def __init__(self, name: str, others: str) -> None:
        """*others*: who used the cores, and how much, as the beginning of a sentence."""
        super().__init__(
            f"{name} cannot be calibrated on a busy computer. {others}; {ACCEPTED_LOAD}. The machine stays "
            f"{present_text(name)}. Accepted: another try when they have ended, or `workbench calibrate --busy`, which "
            "takes the times as they are."
        )
        self.others = others


ACCEPTED_LOAD = f"up to {percent_text(BUSY_SHARE)} of the cores is accepted"


def use_text(use: HostUse) -> str:
    """How many of how many cores others use, and who."""
    whom = ", ".join(f"{party} {cores:.1f}" for party, cores in use.whom.items())
    return f"{use.others_cores:.1f} of {use.cores:g} cores" + (f" ({whom})" if whom else "")


def present_text(name: str) -> str:
    """How machine *name* is known now, as the end of a sentence."""
    described = known(name)
    if described is None or described.calibrated is None:
        return f"not calibrated: {name} is as it was"
    return f"as calibrated {described.calibrated}"


def __getattr__(name: str) -> Any:
    """Names of the release before."""
    from kernels.old_names import renamed

    return renamed(__name__, name, {"stated": "machine_values"})
