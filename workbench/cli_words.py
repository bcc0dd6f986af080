"""What rows have in common and what tells them apart: facts of their problems, axes of their schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels import fabric as fabrics
from kernels.protocol import protocol_words
from kernels.units import rate_text
from workbench.naming import operator_title

Row = Mapping[str, Any]
Facts = Mapping[str, str]

WHAT = ("operator", "shape", "dtype", "world")
WHERE = ("machine", "link", "hosts", "ratio", "rate", "protocol")


def facts(row: Row) -> dict[str, str]:
    """Problem and place of *row* in words, by the names of WHAT and WHERE; one rank alone has no link."""
    every = {
        "operator": f"{operator_title(row['operator'])} ({row['operator']})",
        "shape": ", ".join(f"{name}={value}" for name, value in (row["shape"] or {}).items()),
        "dtype": str(row["dtype"]),
        "world": f"{row['world']} ranks" if row["world"] != 1 else "1 rank",
        "machine": str(row.get("machine") or ""),
        **(link(row["fabric"]) if row["world"] != 1 and row.get("fabric") else {}),
        "protocol": protocol_words(row.get("protocol"), row.get("backend")),
    }
    return {name: words for name, words in every.items() if words}


def link(fabric: str) -> dict[str, str]:
    """The kind of a link; of an emulated one its hosts, the ratio, and the rate that follows from it."""
    kind, numbers = fabrics.kind_and_numbers(fabric)
    words = {"link": f"{kind} link" if numbers else kind}
    if "hosts" in numbers:
        slower = f"1/{numbers['between_slowdown']:g} of the rate between" if "between_slowdown" in numbers else ""
        words["hosts"] = ", ".join(filter(None, (f"{numbers['hosts']:g} hosts", slower)))
    if "wire_to_compute" in numbers:
        words["ratio"] = f"wire:compute {numbers['wire_to_compute']:g}"
    if "bandwidth_bytes_per_second" in numbers:
        words["rate"] = rate_text(numbers["bandwidth_bytes_per_second"])
    return words


def same(some: Sequence[Facts]) -> dict[str, str]:
    """What all of them say alike."""
    first = some[0] if some else {}
    return {name: words for name, words in first.items() if all(each.get(name) == words for each in some)}


def told(known: Facts, names: Iterable[str]) -> str:
    """Those of *names* that are known, in one line."""
    return ", ".join(known[name] for name in names if name in known)


def shape_in_short(shape: Mapping[str, Any] | None) -> str:
    """`4096x1024x768`; what is no number stands behind."""
    values = list((shape or {}).values())
    counts = "x".join(str(value) for value in values if not isinstance(value, str))
    return " ".join([counts, *(value for value in values if isinstance(value, str))])


def problem_in_short(row: Row) -> str:
    """Sizes, then the operator."""
    return f"{shape_in_short(row['shape'])} {operator_title(row['operator'])}"


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes that schedules have in common: all of them, and those of one scheme."""

    of_all: Mapping[str, Any]
    of_scheme: Mapping[str, Mapping[str, Any]]
    alone: bool = False
    """There is one schedule only."""

    @classmethod
    def of(cls, rows: Iterable[Row], known: Axes | None = None) -> Axes:
        """Of the schedules of *rows*, without what is *known* already."""
        schedules = {repr((row["scheme"], row["axes"])): (row["scheme"], row["axes"] or {}) for row in rows}
        every = list(schedules.values())
        of_all = _without(_alike([axes for _, axes in every]), known.of_all if known else {})
        of_scheme: dict[str, dict[str, Any]] = {}
        for scheme in dict.fromkeys(scheme for scheme, _ in every):
            its = [axes for name, axes in every if name == scheme]
            said = {**of_all, **(known.common(scheme) if known else {})}
            if len(its) > 1 and (alike := _without(_alike(its), said)):
                of_scheme[scheme] = alike
        return cls(of_all, of_scheme, len(every) == 1)

    def common(self, scheme: str) -> dict[str, Any]:
        """What need not be said of a schedule of *scheme*."""
        return {**self.of_all, **self.of_scheme.get(scheme, {})}

    def lines(self) -> list[str]:
        """What is said above a table."""
        lines = [f"{'its axes' if self.alone else 'all schedules'}: {_pairs(self.of_all)}"] if self.of_all else []
        return lines + [f"all {scheme}: {_pairs(axes)}" for scheme, axes in self.of_scheme.items()]

    def label(self, row: Row) -> str:
        """The row's scheme, and the axes that are its own."""
        common = self.common(row["scheme"])
        differing = {name: value for name, value in (row["axes"] or {}).items() if common.get(name) != value}
        return f"{row['scheme']} {_pairs(differing)}".strip()

    def and_also(self, more: Axes) -> Axes:
        """Both together."""
        schemes = {*self.of_scheme, *more.of_scheme}
        return Axes({**self.of_all, **more.of_all},
                    {name: {**self.of_scheme.get(name, {}), **more.of_scheme.get(name, {})} for name in schemes},
                    more.alone)  # fmt: skip


def _alike(some: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in (some[0] if some else {}).items()
            if all(axes.get(name) == value for axes in some)}  # fmt: skip


def _without(axes: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in axes.items() if known.get(name) != value}


def _pairs(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in axes.items())
