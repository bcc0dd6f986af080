"""What documents say of measured GPUs, written from the files that hold it: `python -m tests.gpu.documents`.

A document marks each such piece: <!-- NAME --> piece <!-- /NAME -->. A piece whose file is not there stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kernels import files
from kernels.outcome import trial_row
from tests.gpu import (
    alone_fit,
    caches_fit,
    choices,
    concurrent_summary,
    pieces_summary,
    searches,
    short_results,
    summary,
)
from tests.gpu.summary import NUMBERS, text
from workbench.analysis import coverage
from workbench.results.rows import question_of

ROOT = Path(__file__).parents[2]
Facts = Mapping[str, Any]
TWINS = {
    "data and flag, no barrier": "without the barrier", "data and flag, relaxed signal": "with a relaxed signal",
    "data and flag, no acquire": "without the acquire", "data and flag, stale data": "with data of an earlier round",
    "counted in relaxed, another block signals": "where blocks counted themselves in relaxed",
    "packets in two halves": "with packets in two halves", "bulk, no drain": "without `drain`",
}  # fmt: skip
"""What breaks a rule, as a sentence says it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document that is made of what was recorded."""

    name: str
    document: str
    made: Callable[[Path], str | None]
    """Of the folder data/; None where it holds nothing of this yet."""


OF_TWO = "h200_nvl2"
OF_STREAMS, OF_PIECES, OF_COMPUTATIONS, OF_REGIMES = "_concurrent", "_pieces", "_alone", "_regimes"
"""Ends of the names of recordings that have tables of their own."""


OF_SPACES = "_space"
"""Is in the name of a recording of schedules that were drawn: those are no table of what is fast."""


def recordings_of(data: Path, ending: str = "", model: str = "h200") -> list[Path]:
    """The recordings of *model* whose names end so; without *ending* those that have no table of their own.

    A table's times are of one model: those of other GPUs do not join it.
    """
    every = [path for path in sorted((data / "recordings").glob(f"{model}_nvl*.jsonl")) if OF_SPACES not in path.stem]
    with_tables = (OF_STREAMS, OF_PIECES, OF_COMPUTATIONS, OF_REGIMES)
    apart = [path for path in every if path.stem.endswith(ending or with_tables)]
    return apart if ending else [path for path in every if path not in apart]


def has_blocks(path: Path) -> bool:
    """Whether it is of a time when baselines stood in every block: each line names its own, and there is one."""
    lines = path.read_text().splitlines()
    return bool(lines) and all(json.loads(line).get("block") for line in lines)


def results(data: Path) -> str | None:
    """README's eight rows, once recordings with blocks have some."""
    with_blocks = [path for path in recordings_of(data) if has_blocks(path)]
    rows = short_results.text(summary.read(with_blocks), summary.read(recordings_of(data, OF_PIECES)))
    return f"\n{rows}\n" if rows else None


def two_streams(data: Path) -> str | None:
    """The table of two streams, once there is a recording of them."""
    told = concurrent_summary.text(summary.read(recordings_of(data, OF_STREAMS)))
    return f"\n{told}\n" if told else None


def pieces(data: Path) -> str | None:
    """The table of pieces, once there is a recording of them."""
    told = pieces_summary.text(summary.read(recordings_of(data, OF_PIECES)))
    return f"\n{told}\n" if told else None


def short_pieces(data: Path) -> str | None:
    """The answer to what pieces were to reach."""
    told = pieces_summary.short(summary.read(recordings_of(data, OF_PIECES)))
    return f"\n{told}\n" if told else None


def tables(data: Path, model: str = "h200") -> str | None:
    """Tables of fused kernels, once recordings with blocks have a row; older ones give what those have no row of."""
    by_age: dict[bool, list[Path]] = {True: [], False: []}
    for path in recordings_of(data, model=model):
        by_age[has_blocks(path)].append(path)
    new, old = summary.read(by_age[True]), summary.read(by_age[False])
    covered = {question_of(line.fused) for line in summary.lines(summary.joined(new)).get(summary.MANY, [])}
    if not covered:
        return None
    kept = [entry for entry in old if question_of(trial_row(entry.measurement.trial)) not in covered]
    return f"\n{text([*new, *kept])}\n"


def probe(data: Path, name: str) -> Facts | None:
    """The one probe of that name, of the machine with the most GPUs; None where there is none."""
    found = sorted((data / "probes").glob(f"h*_nvl*_{name}.json"))
    return json.loads(found[-1].read_text()) if found else None


def litmus(data: Path) -> str | None:
    """How many rounds each way of a message broke."""
    if (told := probe(data, "litmus")) is None:
        return None
    broken: dict[str, list[int]] = {}
    for row in sorted(told["rows"], key=lambda each: each["rank"]):
        broken.setdefault(row["name"], []).append(row["broken"])
    right = [row["name"] for row in told["rows"] if not row["breaks"] and row["broken"]]
    loads = [row["load_gb_per_s"] for row in told["rows"]]
    held = f"these broke: {', '.join(sorted(set(right)))}" if right else "none of the right ways broke"
    seen = [f"{words} {listed(broken[name])}" for name, words in TWINS.items() if any(broken.get(name, []))]
    unseen = [words for name, words in TWINS.items() if name in broken and not any(broken[name])]
    return (
        f"{machine_words(told)}: of {told['rows'][0]['rounds']:,} rounds at {min(loads):.0f} to {max(loads):.0f} GB/s "
        f"of other stores on the links {held}. Twins that break one rule each broke, by rank: {'. Broke '.join(seen)}."
        + (f" None broke {' or '.join(unseen)}." if unseen else "")
    )


def listed(counts: Sequence[int]) -> str:
    """`19,204 and 33,819`."""
    return " and ".join(f"{count:,}" for count in counts)


def machine_words(told: Facts) -> str:
    """Where and when."""
    return f"{told['provenance']['gpus'].replace('NVIDIA ', '')}, {told['provenance']['date'][:10]}"


def stamps(data: Path) -> str | None:
    """How finely the clock ticks, and what the timeline's stamps cost."""
    if (told := probe(data, "stamps")) is None:
        return None
    most = max(told["rows"], key=lambda row: row["slower_percent"])
    return (
        f"{machine_words(told)}: the clock ticks every {most['tick_s'] * 1e9:.0f} ns, and stamps cost at most "
        f"{max(0.0, most['slower_percent']):.1f} % of a call (`{most['operator']}`)."
    )


def tutorial(data: Path) -> str | None:
    """The tutorial's operator beside torch and NCCL."""
    if (told := probe(data, "tutorial")) is None:
        return None
    fused_s = min(seconds for name, seconds in told["seconds"].items() if name.startswith("fused"))
    world = NUMBERS.get(told["world"], str(told["world"]))
    return (
        f"on {world} {told['provenance']['gpus'].split()[-1]}s {fused_s * 1e6:.0f} µs against "
        f"{told['seconds']['torch + NCCL'] * 1e6:.0f} µs of torch and NCCL"
    )


def caches(data: Path) -> str | None:
    """What a GPU counted of DRAM bytes and L2 hits, and how far the reuse tier is off."""
    return None if (told := probe(data, "caches")) is None else caches_fit.counted_text(machine_words(told), told)


def drawn_caches(data: Path) -> str | None:
    """The same of kernels that were drawn when the tier was finished."""
    told = probe(data, "caches_drawn")
    return None if told is None else caches_fit.counted_text(machine_words(told), told)


def computations(data: Path) -> str | None:
    """How far estimates of computations alone are off."""
    [path] = recordings_of(data, OF_COMPUTATIONS) or [None]
    return None if path is None else alone_fit.text(path.stem)


def intervals_hold(name: str) -> Callable[[Path], str | None]:
    """How many unseen trials of the machine called *name* lie inside their interval, by class and split."""
    return lambda data: coverage.coverage_text(name) if recordings_of(data) else None


def cache_hints(data: Path) -> str | None:
    """What a GPU took with each cache hint, beside a replay."""
    return None if (told := probe(data, "caches")) is None else caches_fit.hints_text(told)


def of_choices(made: Callable[[], str]) -> Callable[[Path], str | None]:
    """*made* of the shipped recordings, which the study reads itself."""
    return lambda data: made() if recordings_of(data) else None


PIECES = (
    Piece("choice facts", "docs/results/choice.md", of_choices(choices.facts_text)),
    Piece("searches", "docs/results/searches.md", of_choices(searches.text)),
    Piece("choosers", "docs/results/choice.md", of_choices(choices.scores_text)),
    Piece("worst choices", "docs/results/choice.md", of_choices(choices.worst_text)),
    Piece("fresh choices", "docs/results/choice.md", of_choices(choices.fresh_text)),
    Piece("counted", "docs/caches.md", caches),
    Piece("drawn kernels", "docs/caches.md", drawn_caches),
    Piece("hints", "docs/caches.md", cache_hints),
    Piece("alone", "docs/results/estimates.md", computations),
    Piece("intervals", "docs/results/estimates.md", intervals_hold(OF_TWO)),
    Piece("H100 intervals", "docs/results/estimates.md", intervals_hold("h100_nvl2")),
    Piece("results", "README.md", results),
    Piece("gpus", "docs/results/fused.md", tables),
    Piece("h100 gpus", "docs/results/h100.md", partial(tables, model="h100")),
    Piece("two streams", "docs/results/streams.md", two_streams),
    Piece("pieces", "docs/results/pieces.md", pieces),
    Piece("pieces by operator", "docs/results/pieces.md", short_pieces),
    Piece("tutorial", "README.md", tutorial),
    Piece("litmus", "docs/gpu-backend.md", litmus),
    Piece("stamps", "docs/gpu-backend.md", stamps),
)


def between(name: str) -> re.Pattern[str]:
    """The piece called *name* with its marks."""
    return re.compile(rf"(<!-- {name} -->)(.*?)(<!-- /{name} -->)", re.DOTALL)


def differing(root: Path) -> Iterator[tuple[Piece, str, str]]:
    """Pieces that do not say what the files hold, with what they say and what they should."""
    for piece in PIECES:
        if (made := piece.made(root / "data")) is None:
            continue
        found = between(piece.name).search((root / piece.document).read_text())
        said = found[2] if found else "(no such mark)"
        if said.split() != made.split():  # a paragraph may be wrapped otherwise
            yield piece, said, made


def rewrite(root: Path) -> list[str]:
    """Writes the pieces that differ, and answers with their names."""
    changed = []
    for piece, _, made in list(differing(root)):
        path = root / piece.document
        old = path.read_text()
        new = between(piece.name).sub(lambda found, made=made: f"{found[1]}{made}{found[3]}", old)
        if new == old:
            raise ValueError(f"{piece.document} has no place for {piece.name}. Accepted: <!-- {piece.name} --> in it.")
        files.write(path, new)
        changed.append(piece.name)
    return changed


if __name__ == "__main__":
    print(f"written: {', '.join(rewrite(ROOT)) or 'nothing, the documents say what the files hold'}")
    sys.exit(0)
