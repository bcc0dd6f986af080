"""Outcomes as a person reads them: what all share once, then for each problem a table, the fastest first."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

from kernels.fabric import kind_and_numbers
from kernels.outcome import ROW_KEYS
from kernels.trial import BESIDE_ONE_CALL, is_one_call, protocol_words
from kernels.units import rate_text, ratio_text, seconds_text
from workbench.cli.exit_status import counted
from workbench.naming import OF_ONE, SIGNS, TIMED, is_of_one, operator_title, source_title
from workbench.results import rows as one_problem
from workbench.results.comparison import BlockBases, comparison_note, leading
from workbench.results.metrics import gain

# What a command prints: one JSON document and nothing else, or sentences that end their lines between words.

if TYPE_CHECKING:
    from workbench.analysis.accuracy import EstimateError

DOCUMENT_KEYS = tuple(key for key in ROW_KEYS if key != "part")
"""What `run --json` and `predict --json` print of one outcome; it is always of the whole."""
RUNS_NAMED = 3
USUAL_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
INDENT = "  "
_KEPT = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:[nµm]?s|min|hours|[kMGT]?[Bb](?:/s)?|[KMGT]iB|x|ranks?|cores?|points)\b)")


GOES_ON = " \\"


def say(sentence: str) -> None:
    """To the person, beside what is printed."""
    print(wrapped(sentence, width(sys.stderr)), file=sys.stderr, flush=True)


def tell(sentence: str) -> None:
    """A sentence that is part of what was asked for."""
    print(wrapped(sentence, width(sys.stdout)))


def tell_command(words: str) -> None:
    """A command to be typed; where it is longer than a line, each but the last goes on behind a backslash."""
    columns = width(sys.stdout)
    lines = wrapped(words, columns and columns - len(INDENT) - len(GOES_ON)).splitlines()
    print(f"{GOES_ON}\n".join(f"{INDENT}{line}" for line in lines))


def width(stream: TextIO) -> int | None:
    """Columns of the terminal that *stream* is; a pipe has none."""
    if not stream.isatty():
        return None
    if (columns := os.environ.get("COLUMNS", "")).isdecimal():
        return int(columns) or USUAL_COLUMNS
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS


def wrapped(text: str, columns: int | None, indent: str = INDENT) -> str:
    """*text* in lines of at most *columns* where its words allow it, behind *indent* from the second on.

    A number stays beside its unit.
    """
    if columns is None:
        return text
    lines = [
        line
        for given in text.splitlines()
        for line in textwrap.wrap(_BEFORE_UNIT.sub(_KEPT, given), columns, subsequent_indent=indent,
                                  break_long_words=False, break_on_hyphens=False) or [""]
    ]  # fmt: skip
    return "\n".join(lines).replace(_KEPT, " ")


class _Printed:
    """What this process printed since its command began."""

    documents = 0


def begin() -> None:
    """A command begins: it has not printed a document yet."""
    _Printed.documents = 0


def documents() -> int:
    """How many documents the command has printed."""
    return _Printed.documents


def show_json(value: Any) -> None:
    """One document; what is not a finite number is null, as JSON wants it."""
    text = json.dumps(_finite(value), allow_nan=False, default=str)
    _Printed.documents += 1
    print(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def show_rows(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """The document of a listing, a sweep or a comparison."""
    show_json({"rows": list(rows), "summary": dict(summary)})


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with exactly the keys of the contract."""
    return {key: row.get(key) for key in DOCUMENT_KEYS}


def say_known(rows: Sequence[Mapping[str, Any]]) -> None:
    """Which of the schedules shown were measured earlier, and so perhaps not in one sitting."""
    from datetime import datetime

    since = {row["origin"]: row["known_since"] for row in rows if row["source"] == "recorded"}
    if not since:
        return
    runs = [f"run {run} of {datetime.fromtimestamp(since[run]).isoformat(' ', 'minutes')}" for run in sorted(since)]
    count = sum(row["source"] == "recorded" for row in rows)
    some = runs if len(runs) <= RUNS_NAMED else [*runs[:RUNS_NAMED], f"{len(runs) - RUNS_NAMED} more"]
    say(f"{count} of {len({row['key'] for row in rows})} schedules {'is' if count == 1 else 'are'} known from "
        f"{' and '.join(some)}: --fresh measures them together.")  # fmt: skip


def say_off(estimates: Sequence[EstimateError]) -> None:
    """Which estimates are off, and the command that makes them right."""
    for each in estimates:
        say(f"{each} {each.advice}")


def schedule(row: Mapping[str, Any]) -> str:
    """The row's schedule as people write it."""
    axes = ", ".join(f"{name}={value}" for name, value in (row["axes"] or {}).items())
    return f"{row['scheme']}({axes})"


# Tables that fit the terminal: numbers are never cut or wrapped, words give way.

NOTHING = "–"
GAP = 2
"""Blanks between two columns."""
LEAST = {"words": 12, "cut": 10}
"""With fewer columns, words and cut texts say nothing."""
LONG = 40
"""A longer word, such as a path, sticks out instead of widening its column."""
ROOMY = 32
"""Where the words behind names would have fewer columns, each row becomes a sentence."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column, and what may happen to it where room is short."""

    heading: str
    """Its lines end where it says so, and nowhere else."""
    cells: Sequence[object]
    """None: there is nothing to say."""
    kind: str = "words"
    """`number` and `name` keep their cells whole on one line; `words` are wrapped between words; `cut` texts end with
    an ellipsis, unless they would then be alike."""
    goes_below: int = 0
    """It is left out where cut texts, or words, would have fewer columns than this; 0: never."""
    inline: str = "{}"
    """How a cell of words reads in a sentence, where columns do not fit beside each other."""

    @property
    def texts(self) -> list[str]:
        return [NOTHING if cell is None else str(cell) for cell in self.cells]

    @property
    def natural(self) -> int:
        """As wide as its widest line."""
        return max((_length(line) for text in (self.heading, *self.texts) for line in text.splitlines()), default=0)

    def least(self, wanted: int = 0) -> int:
        """As narrow as it may be, flexible ones as *wanted*, but never so that a word is split."""
        if self.kind not in LEAST:
            return self.natural
        lengths = [_length(word) for text in (self.heading, *self.texts) for word in text.split()]
        longest = max((each for each in lengths if each <= LONG), default=0) if self.kind == "words" else 0
        return max(min(self.natural, max(wanted, LEAST[self.kind])), longest)


def show_table(columns: Sequence[TableColumn]) -> None:
    """The table in the room there is: first some columns go, then words are wrapped or cut.

    Of a list of names with words, each row becomes a name and a sentence where the words would be too narrow.
    """
    said = [column for column in columns if any(cell is not None for cell in column.cells)]
    room = width(sys.stdout)
    if room is None:
        _print(said, [column.natural for column in said])
        return
    shown = _without_optional(said, room)
    kinds = [column.kind for column in shown]
    if kinds[:1] == ["name"] and "words" in kinds and _needed(shown, ROOMY) > room:
        shown = _merged(said)
    _print(shown, _widths(shown, room))


def cut(text: str, columns: int) -> str:
    """*text* in at most *columns*, an ellipsis for what is missing; numbers are kept whole or left out."""
    if _length(text) <= columns:
        return text
    kept, rest = "", text
    while rest:
        word, _, rest = rest.partition(" ")
        longer = f"{kept} {word}".lstrip()
        if _length(longer) + 2 > columns:
            break
        kept = longer
    spare = columns - _length(kept) - 2 if kept else columns - 1
    some = "" if spare < 2 or any(map(str.isdigit, word)) else word[:spare]
    if "=" in word and "=" not in some[:-1]:  # a name without the beginning of its value tells no rows apart
        some = ""
    return f"{kept} {some}…".lstrip()


def _without_optional(columns: Sequence[TableColumn], room: int) -> list[TableColumn]:
    shown = list(columns)
    for column in sorted(columns, key=lambda each: -each.goes_below):
        if column.goes_below and _needed(shown, column.goes_below) > room:
            shown.remove(column)
    return shown


def _needed(columns: Sequence[TableColumn], wanted: int = 0) -> int:
    return sum(column.least(wanted) for column in columns) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[TableColumn], room: int) -> list[int]:
    """What is left of the room goes to who lacks most."""
    widths = [column.least() for column in columns]
    for _ in range(room - _needed(columns)):
        lacks = [column.natural - wide for column, wide in zip(columns, widths, strict=True)]
        if max(lacks) <= 0:
            break
        widths[lacks.index(max(lacks))] += 1
    return widths


def _merged(columns: Sequence[TableColumn]) -> list[TableColumn]:
    """The first column, and all others as one of sentences."""
    name, *others = columns
    cells = zip(*map(_inline, others), strict=True)
    return [name, TableColumn("", ["; ".join(text.removesuffix(".") for text in texts if text) for texts in cells])]


def _inline(column: TableColumn) -> list[str]:
    """Its cells as parts of sentences; nothing where there is nothing to say."""
    return ["" if cell is None else column.inline.format(cell) for cell in column.cells]


def _print(columns: Sequence[TableColumn], widths: Sequence[int]) -> None:
    """Each row as high as its highest cell; wider than the terminal rather than without a number."""
    from rich.console import Console

    if any(column.heading for column in columns):
        heads = [column.heading.splitlines() or [""] for column in columns]
        most = max(map(len, heads))
        console = Console(highlight=False, markup=False, soft_wrap=True)
        for line in _lines(columns, widths, [[""] * (most - len(head)) + head for head in heads]):
            console.print(line, style="bold")
    fitted = [_fitted(column, wide) for column, wide in zip(columns, widths, strict=True)]
    for cells in zip(*fitted, strict=True):
        for line in _lines(columns, widths, cells):
            print(line)


def _fitted(column: TableColumn, wide: int) -> list[list[str]]:
    """The lines of each cell; texts that are the same down to where they would be cut stand there whole."""
    whole = [wrapped(text, wide, indent="").splitlines() or [""] for text in column.texts]
    if column.kind != "cut":
        return whole
    shown = [cut(text, wide) for text in column.texts]
    texts: dict[str, set[str]] = {}
    for text, short in zip(column.texts, shown, strict=True):
        texts.setdefault(short, set()).add(text)
    return [[short] if len(texts[short]) == 1 else lines for short, lines in zip(shown, whole, strict=True)]


def _lines(columns: Sequence[TableColumn], widths: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """One row of cells that have several lines each."""
    for texts in zip_longest(*cells, fillvalue=""):
        blanks = [" " * (wide - _length(text)) for text, wide in zip(texts, widths, strict=True)]
        aligned = [blank + text if column.kind == "number" else text + blank
                   for column, text, blank in zip(columns, texts, blanks, strict=True)]  # fmt: skip
        yield (" " * GAP).join(aligned).rstrip()


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


# What rows have in common and what tells them apart: facts of their problems, axes of their schedules.

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
    kind, numbers = kind_and_numbers(fabric)
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


# Outcomes as a person reads them: what all share once, then for each problem a table, the fastest first.

FEW = 10
"""So many rows are printed of a problem, unless all are asked for."""
FEW_IN_ALL, FEWEST = 30, 3
"""Of several problems so many in all, but of each no fewer."""


@dataclass(frozen=True, slots=True)
class TerminalLine:
    """One schedule of one problem: what a clock said, and the estimate."""

    clock: Row | None
    guess: Row | None

    @property
    def row(self) -> Row:
        """The one that the ratios are of."""
        either = self.clock or self.guess
        assert either is not None
        return either


def show_outcomes(rows: Sequence[Row], *, title: str = "", every: bool = False) -> None:
    """Timed and estimated schedules side by side; of each problem the first few, or *every* one."""
    parts = by_problem(rows)
    if title:
        tell(title)
    if not parts:
        return
    entries = [entry for part in parts for entry in part]
    rows_of = [[entry.row for entry in part] for part in parts]
    # how one times says nothing of estimates
    hidden = () if any(entry.clock for entry in entries) else ("protocol",)
    most = None if every else few(len(parts))
    for part, axes in zip(parts, tell_each(rows_of, notes(entries), hidden), strict=True):
        _show_part(part, axes, most)
    _show_remarks([entry.clock for entry in entries if entry.clock])


def tell_each(parts: Sequence[Sequence[Row]], said: Iterable[str] = (), hidden: Sequence[str] = ()) -> Iterator[Axes]:
    """Above all: what the rows of all *parts* share. Then, before each part is shown, what is its own.

    The answer is what need not be said of the part's schedules. *hidden*: facts that are not to be told.
    """
    alike = same([facts(row) for part in parts for row in part])
    axes = Axes.of(row for part in parts for row in part)
    tell_shared({name: words for name, words in alike.items() if name not in hidden}, axes, said)
    for part in parts:
        print()
        more = Axes.of(part, axes)
        differing = {name: words for name, words in facts(part[0]).items() if name not in alike}
        if len(parts) > 1:
            tell("; ".join(filter(None, (told(differing, (*WHAT, *WHERE)), *more.lines()))))
        yield axes.and_also(more) if len(parts) > 1 else axes


def few(num_problems: int) -> int:
    """How many rows of each problem are printed."""
    return max(FEWEST, min(FEW, FEW_IN_ALL // max(1, num_problems)))


def tell_more(count: int) -> None:
    """How many rows were left out."""
    if count > 0:
        tell(f"and {count:,} more: --all prints them")


def tell_shared(common: Mapping[str, str], axes: Axes, said: Iterable[str] = ()) -> None:
    """What all rows share: what is computed, where, how it is to be read, and with which axes."""
    for line in (told(common, WHAT), told(common, WHERE), "; ".join(said), *axes.lines()):
        if line:
            tell(line)


def by_problem(rows: Iterable[Row]) -> list[list[TerminalLine]]:
    """The schedules of each problem: those a clock has timed before those only estimated, each the best first."""
    timed = one_problem.by_problem(row for row in rows if row["time_s"] is not None)
    return [_entries(same) for same in timed.values()]


def _entries(rows: Sequence[Row]) -> list[TerminalLine]:
    """One for each schedule of one problem; of a baseline that stands in several blocks the one beside the best."""
    clocks = [row for row in leading(rows) if row["source"] in TIMED]
    guesses = {row["key"]: row for row in rows if row["source"] not in TIMED}
    firsts = {row["key"]: row for row in reversed(clocks)}
    timed = [TerminalLine(row, guesses.get(row["key"])) for row in clocks if firsts[row["key"]] is row]
    only = sorted((row for row in guesses.values() if row["key"] not in firsts), key=lambda row: row["time_s"])
    return [*timed, *(TerminalLine(None, row) for row in only)]


def notes(entries: Sequence[TerminalLine]) -> list[str]:
    """How the times of all *entries* are to be read."""
    clocks = [entry.clock for entry in entries if entry.clock]
    guesses = [entry.guess for entry in entries if entry.guess]
    said = ["plan executed on CPU ranks"] if clocks and all(row["backend"] == "cpu" for row in clocks) else []
    said += [OF_ONE] if any(map(is_of_one, (*clocks, *guesses))) else []
    said += ["results verified"] if clocks and all(row["correct"] for row in clocks) else []
    if unfitted := [row for row in guesses if not row["calibrated"]]:
        from workbench.machines import trust

        words = sorted({trust(row["machine"]) for row in unfitted})
        schemes = ", ".join(sorted({row["scheme"] for row in unfitted}))
        of_schemes = "" if len(unfitted) == len(guesses) else f" of {schemes}"
        said.append(f"estimates{of_schemes} {words[0]}: only their order counts")
    if guesses and any(is_one_call(row.get("protocol"), row.get("backend")) for row in clocks):
        said.append(BESIDE_ONE_CALL)
    return said


def clock_heading(rows: Iterable[Row]) -> tuple[str, bool]:
    """The heading of times that a clock took, and whether each needs its own sign: they are of several sources."""
    met = {row["source"] for row in rows}
    sources = [source for source in TIMED if source in met]
    return "\n".join(map(heading, sources)), len(sources) > 1


def heading(source: str) -> str:
    """A source and its sign, as a heading."""
    return source_title(source).replace("\N{NO-BREAK SPACE}", " ")


def signed(source: str, seconds: float | None, needed: bool = True) -> str | None:
    """A time behind the sign of its source, where that is *needed*."""
    if seconds is None:
        return None
    return f"{SIGNS[source]} {seconds_text(seconds)}" if needed else seconds_text(seconds)


def _show_part(part: Sequence[TerminalLine], axes: Axes, most: int | None) -> None:
    """One problem."""
    shown, rows = part[:most], [row for entry in part for row in (entry.clock, entry.guess) if row]
    clocks = [entry.clock for entry in shown]
    title, is_mixed = clock_heading(row for row in clocks if row)
    # the ratio of an estimate is to an estimate: beside ratios of what was timed it would be taken for one of these
    compared = [entry.row if entry.clock or not any(clocks) else None for entry in shown]
    bases = BlockBases.of(rows)
    several = len({bases.text(row) for row in compared if row}) > 1
    all_right = all(row["correct"] for row in clocks if row)
    show_table([
        TableColumn(title, [row and signed(row["source"], row["time_s"], is_mixed) for row in clocks], "number"),
        TableColumn(heading("estimated"), [entry.guess and seconds_text(entry.guess["time_s"]) for entry in shown],
               "number"),
        TableColumn("of the\nfloor", [row and _ratio(row["time_s"], row["floor_s"]) for row in compared], "number",
               goes_below=20),
        TableColumn("speed-up over\nsequential", [row and (gain_text(row) or NOTHING) for row in compared], "number"),
        TableColumn("over", [row and bases.text(row) if several else None for row in compared], "name", goes_below=60),
        TableColumn("skew", [row and _seconds(row["skew_s"]) for row in clocks], "number", goes_below=40),
        TableColumn("correct", [None if all_right else row and {True: "yes", False: "no"}.get(row["correct"])
                           for row in clocks], "name", goes_below=30),
        TableColumn("schedule", [axes.label(entry.row) for entry in shown], "cut"),
    ])  # fmt: skip
    tell_more(len(part) - len(shown))
    if said := comparison_note(rows):
        tell(said)


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else seconds_text(seconds)


def gain_text(row: Row) -> str | None:
    """The speed-up over the best sequential schedule of the row's block, where one was timed there."""
    ratio = gain(row)
    return None if ratio is None else ratio_text(ratio)


def _ratio(over: float | None, under: float | None) -> str | None:
    return ratio_text(over / under) if over and under else None


def _show_remarks(rows: Sequence[Row]) -> None:
    """What is to be said of times that there are, each sentence once: of a control that did not act, first of all."""
    axes, remarks = Axes.of(rows), dict[str, list[Row]]()
    for row in rows:
        if row["message"]:
            remarks.setdefault(str(row["message"]), []).append(row)
    if remarks:
        print()
    for remark, about in list(remarks.items())[:FEWEST]:
        who = dict.fromkeys(axes.label(row) for row in about)
        tell(f"{'; '.join(who) if len(who) <= FEWEST else f'{len(who)} schedules'}: {remark}")
    tell_more(len(remarks) - FEWEST)


def show_failures(rows: Sequence[Row], *, every: bool = False) -> None:
    """What failed, and why: each reason once, behind the schedules it is about. What was stopped did not fail."""
    failed = [row for row in rows if row["outcome"] == "failure" and row["stage"] != "cancelled"]
    if not failed:
        return
    axes = Axes.of(row for row in rows)
    reasons: dict[tuple[str, str], list[Row]] = {}
    for row in failed:
        reasons.setdefault((row["stage"], row["message"]), []).append(row)
    print()
    tell(counted(failed))
    shown = list(reasons.items())[: None if every else FEW]
    for (stage, message), about in shown:
        who = dict.fromkeys(axes.label(row) + ("" if row["part"] == "whole" else f", {row['part']} alone")
                            for row in about)  # fmt: skip
        named = "; ".join(who) if len(who) <= FEWEST else f"{len(who)} schedules"
        tell(f"{named} ({stage}): {message}")
    tell_more(len(reasons) - len(shown))
