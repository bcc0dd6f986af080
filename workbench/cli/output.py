"""Output of commands: JSON documents, tables that fit the terminal, and outcomes as a table for each problem."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, cast

from kernels.fabric import TIMES_ARE_NOT, kind_and_numbers
from kernels.outcome import ROW_KEYS
from kernels.trial import ONE_CALL_NOTE, is_one_call, is_steady, protocol_text
from kernels.units import num_text, rate_text, ratio_text, seconds_text
from workbench.cli.exit_status import counted
from workbench.naming import PER_PROBLEM_NOTE, SIGNS, TIMED, is_per_problem, operator_title, source_title
from workbench.results import rows as result_rows
from workbench.results.comparison import BlockBases, comparison_note, leading, once, verdict_note
from workbench.results.metrics import gain

# Sentences, whose lines end between words, or one JSON document and nothing else.

if TYPE_CHECKING:
    from workbench.analysis.accuracy import EstimateError

DOCUMENT_KEYS = tuple(key for key in ROW_KEYS if key != "part")
"""The keys of the document of one outcome, which is always of a whole trial."""
RUNS_NAMED = 3
USUAL_COLUMNS = 80
"""The width of a terminal that does not report it."""
INDENT = "  "
_KEPT = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:[nµm]?s|min|hours|[kMGT]?[Bb](?:/s)?|[KMGT]iB|x|ranks?|cores?|points)\b)")
_OPTION = re.compile(r"(?<= )(--[a-z-]+) (?=[^-\s])")


GOES_ON = " \\"
_ERASE = "\x1b[K"
"""What a terminal erases the rest of a line for."""


def say(message: str) -> None:
    """Prints a message to stderr, separate from the output."""
    end_progress()
    print(wrapped(message, width(sys.stderr)), file=sys.stderr, flush=True)


def say_progress(message: str) -> None:
    """Prints how far a command is: over the last such line of a terminal, so that its answer is not pushed down."""
    columns = width(sys.stderr)
    if columns is None:
        say(message)
        return
    _Printed.progress = True  # first: what is said from another thread meanwhile ends it
    print(f"\r{cut(message, columns - 1)}{_ERASE}", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    """Erases the line of progress, if there is one."""
    if _Printed.progress:
        print(f"\r{_ERASE}", end="", file=sys.stderr, flush=True)
        _Printed.progress = False


SLOW_S = 0.5
"""Seconds of work after which a command says what it does: a person doubts after two that it does anything."""


@contextmanager
def said_if_slow(message: str) -> Iterator[None]:
    """Says *message* as soon as the work inside takes longer than SLOW_S; a terminal forgets it when that has ended."""
    later = threading.Timer(SLOW_S, say_progress, (message,))
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()
        end_progress()


def show_text(text: str) -> None:
    """Prints a sentence of the output to stdout."""
    print(wrapped(text, width(sys.stdout)))


def show_command(command: str) -> None:
    """Prints a command to be typed."""
    print("\n".join(command_lines(command, width(sys.stdout))))


def command_lines(command: str, columns: int | None) -> list[str]:
    """The lines of a command to be typed; all but the last end in a backslash. An option stays with its value."""
    kept = command if columns is None else _OPTION.sub(rf"\1{_KEPT}", command)
    lines = wrapped(kept, columns and columns - len(INDENT) - len(GOES_ON)).splitlines()
    return [f"{INDENT}{line}{GOES_ON if number < len(lines) else ''}" for number, line in enumerate(lines, 1)]


def width(stream: TextIO) -> int | None:
    """The columns of the terminal *stream*; None for a pipe."""
    if not stream.isatty():
        return None
    if (columns := os.environ.get("COLUMNS", "")).isdecimal():
        return int(columns) or USUAL_COLUMNS
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS


def wrapped(text: str, columns: int | None, indent: str = INDENT) -> str:
    """*text* in lines of at most *columns* where its words allow it; lines from the second on begin with *indent*.

    A number and its unit stay on one line.
    """
    if columns is None:
        return text
    lines = [
        line
        for whole in text.splitlines()
        for line in textwrap.wrap(_BEFORE_UNIT.sub(_KEPT, whole), columns, subsequent_indent=indent,
                                  break_long_words=False, break_on_hyphens=False) or [""]
    ]  # fmt: skip
    return "\n".join(lines).replace(_KEPT, " ")


class _Printed:
    """The count of documents printed since the command began, and whether a line of progress is on the terminal."""

    documents = 0
    progress = False


def begin() -> None:
    """Resets the count of printed documents."""
    _Printed.documents = 0


def documents() -> int:
    """The number of documents that the command has printed."""
    return _Printed.documents


def show_json(value: Any) -> None:
    """Prints one document; numbers that are not finite are null, as JSON requires."""
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
    """Prints the document of a listing, a sweep or a comparison."""
    show_json({"rows": list(rows), "summary": dict(summary)})


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with exactly DOCUMENT_KEYS."""
    return {key: row.get(key) for key in DOCUMENT_KEYS}


def say_known(rows: Sequence[Mapping[str, Any]]) -> None:
    """Says which of the shown schedules were measured earlier, and so perhaps not in one run."""
    from datetime import datetime

    started = {row["origin"]: row["known_since"] for row in rows if row["source"] == "recorded"}
    if not started:
        return
    runs = [f"run {run} of {datetime.fromtimestamp(started[run]).isoformat(' ', 'minutes')}" for run in sorted(started)]
    count = sum(row["source"] == "recorded" for row in rows)
    some = runs if len(runs) <= RUNS_NAMED else [*runs[:RUNS_NAMED], f"{len(runs) - RUNS_NAMED} more"]
    say(f"{count} of {len({row['key'] for row in rows})} schedules {'is' if count == 1 else 'are'} known from "
        f"{' and '.join(some)}: --fresh measures them together.")  # fmt: skip


def say_off(estimates: Sequence[EstimateError]) -> None:
    """Says which estimates are off, and the command that corrects them."""
    for each in estimates:
        say(off_text(each))


def off_text(estimate: EstimateError) -> str:
    """A sentence about estimates that are off, and what corrects them."""
    return f"{estimate} {estimate.advice}"


def schedule(row: Mapping[str, Any]) -> str:
    """The row's schedule as text."""
    axes = ", ".join(f"{name}={value}" for name, value in (row["axes"] or {}).items())
    return f"{row['scheme']}({axes})"


# A screen: the answer and what fits below it; the rest is printed on request.

SCREEN = 24
"""The lines of a terminal: those of an answer, of what follows it, and of the line about the rest."""


class _Screen:
    """A standard output that keeps back whatever does not fit into *lines* lines."""

    def __init__(self, stream: TextIO, lines: int) -> None:
        self._stream, self._left, self._open = stream, lines, ""
        self.rest = ""
        """What was not printed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Passes whole lines on, or none of them, so that no row or sentence is cut.

        An empty line and a line that ends in a colon wait for what follows: neither is the last one of a screen.
        """
        self._open += text
        if self._open.endswith("\n") and not self._open.endswith((":\n", "\n\n")) and self._open != "\n":
            count = self._open.count("\n")
            if self.rest or count > self._left:
                self.rest += self._open
            else:
                self._left -= count
                self._stream.write(self._open)
            self._open = ""
        return len(text)


@contextmanager
def one_screen(every: bool, remarks: Sequence[str] = ()) -> Iterator[None]:
    """A terminal shows what fits on a screen and how many lines `--all` adds; then *remarks* are said to stderr.

    A pipe gets *every* line, and so does a terminal on request.
    """
    if every or width(sys.stdout) is None:
        yield
    else:
        taken = sum(wrapped(remark, width(sys.stderr)).count("\n") + 1 for remark in remarks if sys.stderr.isatty())
        screen = _Screen(sys.stdout, SCREEN - taken - 1)
        with redirect_stdout(cast(TextIO, screen)):
            yield
        if (count := screen.rest.count("\n")) > 1:
            show_text(f"and {num_text(count, 'more line')}: --all prints them")
        else:  # it takes no more room than the sentence about it
            print(screen.rest, end="")
    for remark in remarks:
        say(remark)


# Tables that fit the terminal: numbers are never cut or wrapped, texts are.

NOTHING = "–"
GAP = 2
"""Blanks between two columns."""
LEAST = {"words": 12, "cut": 10}
"""The fewest columns of wrapped and cut texts."""
LONG = 40
"""A longer word, such as a path, exceeds its column instead of widening it."""
ROOMY = 32
"""With fewer columns for texts after a name, each row becomes a sentence."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column, and how it adapts to a narrow terminal."""

    heading: str
    """The heading, which is never wrapped."""
    cells: Sequence[object]
    """The cells; None: empty."""
    kind: str = "words"
    """`number` and `name` keep their cells whole on one line; `words` are wrapped between words; `cut` texts end with
    an ellipsis, unless they would then be alike."""
    goes_below: int = 0
    """The column is left out where texts would have fewer columns than this; 0: never."""
    inline: str = "{}"
    """The format of a cell in a sentence, where columns do not fit next to each other."""

    @property
    def texts(self) -> list[str]:
        return [NOTHING if cell is None else str(cell) for cell in self.cells]

    @property
    def natural(self) -> int:
        """The width of the widest line."""
        return max((_length(line) for text in (self.heading, *self.texts) for line in text.splitlines()), default=0)

    def least(self, wanted: int = 0) -> int:
        """The smallest width, *wanted* for flexible columns, without splitting a word."""
        if self.kind not in LEAST:
            return self.natural
        lengths = [_length(word) for text in (self.heading, *self.texts) for word in text.split()]
        longest = max((each for each in lengths if each <= LONG), default=0) if self.kind == "words" else 0
        return max(min(self.natural, max(wanted, LEAST[self.kind])), longest)


def show_table(columns: Sequence[TableColumn]) -> None:
    """Prints the table in the width of the terminal: first some columns are left out, then texts are wrapped or cut.

    In a list of names with texts, each row becomes a name and a sentence where the texts would be too narrow. Where a
    name leaves no room for its sentence, the sentence is below it.
    """
    filled = [column for column in columns if any(cell is not None for cell in column.cells)]
    room = width(sys.stdout)
    if room is None:
        _print(filled, [column.natural for column in filled])
        return
    shown = _without_optional(filled, room)
    kinds = [column.kind for column in shown]
    if kinds[:1] == ["name"] and "words" in kinds and _needed(shown, ROOMY) > room:
        shown = _merged(filled)
        if _needed(shown) > room:
            _print_below(shown, room)
            return
    _print(shown, _widths(shown, room))


def cut(text: str, columns: int) -> str:
    """*text* in at most *columns*, with an ellipsis for the missing part; numbers are kept whole or left out."""
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
    if "=" in word and "=" not in some[:-1]:  # a name without the beginning of its value identifies no row
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
    """The widths of *columns*; spare room goes to the column that lacks most."""
    widths = [column.least() for column in columns]
    for _ in range(room - _needed(columns)):
        lacks = [column.natural - wide for column, wide in zip(columns, widths, strict=True)]
        if max(lacks) <= 0:
            break
        widths[lacks.index(max(lacks))] += 1
    return widths


def _merged(columns: Sequence[TableColumn]) -> list[TableColumn]:
    """The first column, and all others merged into a column of sentences."""
    name, *others = columns
    cells = zip(*map(_inline, others), strict=True)
    return [name, TableColumn("", ["; ".join(text.removesuffix(".") for text in texts if text) for texts in cells])]


def _inline(column: TableColumn) -> list[str]:
    """The cells as parts of sentences; an empty text for an empty cell."""
    return ["" if cell is None else column.inline.format(cell) for cell in column.cells]


def _print(columns: Sequence[TableColumn], widths: Sequence[int]) -> None:
    """Prints rows as high as their highest cell; wider than the terminal rather than without a number."""
    from rich.console import Console

    title = ""
    if any(column.heading for column in columns):
        heads = [column.heading.splitlines() or [""] for column in columns]
        most = max(map(len, heads))
        console = Console(highlight=False, markup=False, soft_wrap=True)
        with console.capture() as capture:
            for line in _lines(columns, widths, [[""] * (most - len(head)) + head for head in heads]):
                console.print(line, style="bold")
        title = capture.get()
    fitted = [_fitted(column, wide) for column, wide in zip(columns, widths, strict=True)]
    for cells in zip(*fitted, strict=True):
        print(title + "\n".join(_lines(columns, widths, cells)))  # no screen ends between a heading and its first row
        title = ""
    print(title, end="")


def _print_below(columns: Sequence[TableColumn], room: int) -> None:
    """Prints each row as a name and below it, indented, its sentence, in *room* columns."""
    names, sentences = columns
    for name, sentence in zip(names.texts, sentences.texts, strict=True):
        print(name)
        print(wrapped(f"{' ' * GAP}{sentence}", room, indent=" " * GAP))


def _fitted(column: TableColumn, wide: int) -> list[list[str]]:
    """The lines of each cell; texts that would be equal after a cut are kept whole."""
    whole = [wrapped(text, wide, indent="").splitlines() or [""] for text in column.texts]
    if column.kind != "cut":
        return whole
    shown = [cut(text, wide) for text in column.texts]
    texts: dict[str, set[str]] = {}
    for text, short in zip(column.texts, shown, strict=True):
        texts.setdefault(short, set()).add(text)
    return [[short] if len(texts[short]) == 1 else lines for short, lines in zip(shown, whole, strict=True)]


def _lines(columns: Sequence[TableColumn], widths: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of one row, whose cells have several lines each."""
    for texts in zip_longest(*cells, fillvalue=""):
        blanks = [" " * (wide - _length(text)) for text, wide in zip(texts, widths, strict=True)]
        aligned = [blank + text if column.kind == "number" else text + blank
                   for column, text, blank in zip(columns, texts, blanks, strict=True)]  # fmt: skip
        yield (" " * GAP).join(aligned).rstrip()


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


# What rows have in common and what differs: facts of their problems, axes of their schedules.

Row = Mapping[str, Any]
Facts = Mapping[str, str]

WHAT = ("operator", "shape", "dtype", "world")
WHERE = ("machine", "link", "hosts", "ratio", "rate", "protocol")


def facts(row: Row) -> dict[str, str]:
    """Texts about problem and place of *row*, by the names of WHAT and WHERE; one rank alone has no link."""
    every = {
        "operator": f"{operator_title(row['operator'])} ({row['operator']})",
        "shape": ", ".join(f"{name}={value}" for name, value in (row["shape"] or {}).items()),
        "dtype": str(row["dtype"]),
        "world": f"{row['world']} ranks" if row["world"] != 1 else "1 rank",
        "machine": str(row.get("machine") or ""),
        **(link(row["fabric"]) if row["world"] != 1 and row.get("fabric") else {}),
        "protocol": protocol_text(row.get("protocol"), row.get("backend")),
    }
    return {name: text for name, text in every.items() if text}


def link(fabric: str) -> dict[str, str]:
    """Texts about a link: its kind; if emulated, its hosts, ratio and rate."""
    kind, numbers = kind_and_numbers(fabric)
    texts = {"link": f"{kind} link" if numbers else kind}
    if "hosts" in numbers:
        slower = f"1/{numbers['between_slowdown']:g} of the rate between" if "between_slowdown" in numbers else ""
        texts["hosts"] = ", ".join(filter(None, (f"{numbers['hosts']:g} hosts", slower)))
    if "wire_to_compute" in numbers:
        texts["ratio"] = f"wire:compute {numbers['wire_to_compute']:g}"
    if "bandwidth_bytes_per_second" in numbers:
        texts["rate"] = rate_text(numbers["bandwidth_bytes_per_second"])
    return texts


def same(some: Sequence[Facts]) -> dict[str, str]:
    """The facts that all of *some* share."""
    first = some[0] if some else {}
    return {name: text for name, text in first.items() if all(each.get(name) == text for each in some)}


def joined_facts(known: Facts, names: Iterable[str]) -> str:
    """The *known* facts called *names*, on one line."""
    return ", ".join(known[name] for name in names if name in known)


def shape_in_short(shape: Mapping[str, Any] | None) -> str:
    """A shape as `4096x1024x768`, followed by values that are not numbers."""
    values = list((shape or {}).values())
    counts = "x".join(str(value) for value in values if not isinstance(value, str))
    return " ".join([counts, *(value for value in values if isinstance(value, str))])


def problem_in_short(row: Row) -> str:
    """The sizes, then the operator."""
    return f"{shape_in_short(row['shape'])} {operator_title(row['operator'])}"


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes that all schedules, or all of one scheme, have in common."""

    of_all: Mapping[str, Any]
    of_scheme: Mapping[str, Mapping[str, Any]]
    alone: bool = False
    """Whether there is only one schedule."""

    @classmethod
    def of(cls, rows: Iterable[Row], known: Axes | None = None) -> Axes:
        """The common axes of the schedules of *rows*, without those that are *known* already."""
        chosen = [(row["scheme"], _chosen(row)) for row in rows]
        every = list({repr(schedule): schedule for schedule in chosen}.values())
        of_all = _without(_alike([axes for _, axes in every]), known.of_all if known else {})
        of_scheme: dict[str, dict[str, Any]] = {}
        for scheme in dict.fromkeys(scheme for scheme, _ in every):
            of_one = [axes for name, axes in every if name == scheme]
            shown = {**of_all, **(known.common(scheme) if known else {})}
            if len(of_one) > 1 and (alike := _without(_alike(of_one), shown)):
                of_scheme[scheme] = alike
        return cls(of_all, of_scheme, len(every) == 1)

    def common(self, scheme: str) -> dict[str, Any]:
        """The axes that a label of *scheme* leaves out."""
        return {**self.of_all, **self.of_scheme.get(scheme, {})}

    def lines(self) -> list[str]:
        """The lines above a table."""
        lines = [f"{'its axes' if self.alone else 'all schedules'}: {_pairs(self.of_all)}"] if self.of_all else []
        return lines + [f"all {scheme}: {_pairs(axes)}" for scheme, axes in self.of_scheme.items()]

    def label(self, row: Row) -> str:
        """The row's scheme, and the axes that are not common."""
        common = self.common(row["scheme"])
        differing = {name: value for name, value in _chosen(row).items() if common.get(name) != value}
        return f"{row['scheme']} {_pairs(differing)}".strip()

    def and_also(self, more: Axes) -> Axes:
        """The common axes of both together."""
        schemes = {*self.of_scheme, *more.of_scheme}
        return Axes({**self.of_all, **more.of_all},
                    {name: {**self.of_scheme.get(name, {}), **more.of_scheme.get(name, {})} for name in schemes},
                    more.alone)  # fmt: skip


def _chosen(row: Row) -> dict[str, Any]:
    """The axes of *row* that had another choice."""
    from workbench.experiment.space import without_only_choices

    return without_only_choices(row)


def _alike(some: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in (some[0] if some else {}).items()
            if all(axes.get(name) == value for axes in some)}  # fmt: skip


def _without(axes: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in axes.items() if known.get(name) != value}


def _pairs(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in axes.items())


# Outcomes: what all share once, then a table for each problem, the fastest first.

FEW = 10
"""Rows printed per problem, unless all are requested."""
FEW_IN_ALL, FEWEST = 30, 3
"""Rows printed of several problems in all, and the fewest of each."""


@dataclass(frozen=True, slots=True)
class TerminalLine:
    """One schedule of one problem: its timed row and its estimate."""

    clock: Row | None
    guess: Row | None

    @property
    def row(self) -> Row:
        """The row whose ratios are shown."""
        either = self.clock or self.guess
        assert either is not None
        return either


def show_outcomes(rows: Sequence[Row], *, title: str = "", every: bool = False) -> None:
    """Prints timed and estimated schedules side by side: the first few of each problem, or *every* one."""
    problems = [*result_rows.by_problem(row for row in rows if row["time_s"] is not None).values()]
    parts = list(map(_entries, problems))
    if title:
        show_text(title)
    if not parts:
        return
    entries = [entry for part in parts for entry in part]
    rows_of = [[entry.row for entry in part] for part in parts]
    # of protocols, steady load alone concerns estimates
    hidden = () if any(entry.clock or is_steady(entry.row.get("protocol")) for entry in entries) else ("protocol",)
    most = None if every else few(len(parts))
    shared_and_parts = show_shared_and_parts(rows_of, notes(entries), hidden)
    for part, same, axes in zip(parts, problems, shared_and_parts, strict=True):
        _show_part(part[:most], axes, same)
        show_remaining_count(len(part) - len(part[:most]))
        _show_verdict(same)
    _show_remarks([entry.clock for entry in entries if entry.clock])


def show_shared_and_parts(
    parts: Sequence[Sequence[Row]], remarks: Iterable[str] = (), hidden: Sequence[str] = ()
) -> Iterator[Axes]:
    """Prints what the rows of all *parts* share, then, before each part is shown, what differs in it.

    Yields the axes that labels of the part leave out. *hidden*: facts that are not printed.
    """
    alike = same([facts(row) for part in parts for row in part])
    axes = Axes.of(row for part in parts for row in part)
    show_shared({name: text for name, text in alike.items() if name not in hidden}, axes, remarks)
    for part in parts:
        print()
        more = Axes.of(part, axes)
        differing = {name: text for name, text in facts(part[0]).items() if name not in alike}
        if len(parts) > 1:
            show_text("; ".join(filter(None, (joined_facts(differing, (*WHAT, *WHERE)), *more.lines()))))
        yield axes.and_also(more) if len(parts) > 1 else axes


def few(num_problems: int) -> int:
    """The number of rows printed of each problem."""
    return max(FEWEST, min(FEW, FEW_IN_ALL // max(1, num_problems)))


def show_remaining_count(count: int) -> None:
    """Prints how many rows were left out."""
    if count > 0:
        show_text(f"and {count:,} more: --all prints them")


def show_shared(common: Mapping[str, str], axes: Axes, remarks: Iterable[str] = ()) -> None:
    """Prints what all rows share: problem, place, remarks, axes."""
    for line in (joined_facts(common, WHAT), joined_facts(common, WHERE), "; ".join(remarks), *axes.lines()):
        if line:
            show_text(line)


def by_problem(rows: Iterable[Row]) -> list[list[TerminalLine]]:
    """The schedules of each problem: timed ones, then those only estimated, each fastest first."""
    timed = result_rows.by_problem(row for row in rows if row["time_s"] is not None)
    return [_entries(same) for same in timed.values()]


def _entries(rows: Sequence[Row]) -> list[TerminalLine]:
    """One entry for each schedule of one problem."""
    clocks = [row for row in leading(once(rows)) if row["source"] in TIMED]
    guesses = {row["key"]: row for row in rows if row["source"] not in TIMED}
    timed = [TerminalLine(row, guesses.get(row["key"])) for row in clocks]
    timed_keys = {row["key"] for row in clocks}
    only = sorted((row for row in guesses.values() if row["key"] not in timed_keys), key=lambda row: row["time_s"])
    return [*timed, *(TerminalLine(None, row) for row in only)]


def notes(entries: Sequence[TerminalLine]) -> list[str]:
    """Remarks on how to read the times of all *entries*."""
    clocks = [entry.clock for entry in entries if entry.clock]
    guesses = [entry.guess for entry in entries if entry.guess]
    remarks = ["plan executed on CPU ranks"] if clocks and all(row["backend"] == "cpu" for row in clocks) else []
    remarks += [PER_PROBLEM_NOTE] if any(map(is_per_problem, (*clocks, *guesses))) else []
    remarks += ["results verified"] if clocks and all(row["correct"] for row in clocks) else []
    if unfitted := [row for row in guesses if not row["calibrated"]]:
        from workbench.machines import trust

        trusts = sorted({trust(row["machine"]) for row in unfitted})
        schemes = ", ".join(sorted({row["scheme"] for row in unfitted}))
        of_schemes = "" if len(unfitted) == len(guesses) else f" of {schemes}"
        remarks.append(f"estimates{of_schemes} {trusts[0]}: only their order counts")
    if guesses and any(is_one_call(row.get("protocol"), row.get("backend")) for row in clocks):
        remarks.append(ONE_CALL_NOTE)
    return remarks


def clock_heading(rows: Iterable[Row]) -> tuple[str, bool]:
    """The heading of timed rows, and whether each time needs its own sign, as there are several sources."""
    present = {row["source"] for row in rows}
    sources = [source for source in TIMED if source in present]
    return "\n".join(map(heading, sources)), len(sources) > 1


def heading(source: str) -> str:
    """The sign and name of a source, as a heading."""
    return source_title(source).replace("\N{NO-BREAK SPACE}", " ")


def signed(source: str, seconds: float | None, needed: bool = True) -> str | None:
    """A time, after the sign of its source if *needed*."""
    if seconds is None:
        return None
    return f"{SIGNS[source]} {seconds_text(seconds)}" if needed else seconds_text(seconds)


def _show_part(shown: Sequence[TerminalLine], axes: Axes, rows: Sequence[Row]) -> None:
    """Prints the table of one problem's *shown* schedules; *rows* are all of them, with each block's baselines."""
    clocks = [entry.clock for entry in shown]
    title, is_mixed = clock_heading(row for row in clocks if row)
    # the ratio of two estimates would be mistaken for a measured one next to ratios of timed schedules
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


def _show_verdict(rows: Sequence[Row]) -> None:
    """Prints what is certain about the rows of one problem, and how to measure together what was not compared."""
    for sentence in filter(None, (verdict_note(rows), comparison_note(rows), result_rows.alike_tiles(rows))):
        show_text(sentence)
    if command := _together_command(rows):
        show_text("This measures the fastest with what it was not compared with, in turns:")
        show_command(command)


def _together_command(rows: Sequence[Row]) -> str:
    """The command that measures the fastest schedule of one problem together with those of other blocks."""
    from workbench.experiment.question import command, together
    from workbench.results.comparison import apart

    experiment = together(several) if (several := apart(rows)) else None
    return command(experiment.to_json()) if experiment else ""


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else seconds_text(seconds)


def gain_text(row: Row) -> str | None:
    """The speedup over the best sequential schedule of the row's block; None if none was timed there."""
    ratio = gain(row)
    return None if ratio is None else ratio_text(ratio)


def _ratio(over: float | None, under: float | None) -> str | None:
    return ratio_text(over / under) if over and under else None


def _show_remarks(rows: Sequence[Row]) -> None:
    """Prints the messages of timed rows, each once, such as of a control that had no effect."""
    axes, remarks = Axes.of(rows), dict[str, list[Row]]()
    for row in rows:
        remark = str(row["message"] or "").replace(TIMES_ARE_NOT, "").strip()  # which stands below the table once
        if remark:
            remarks.setdefault(remark, []).append(row)
    if remarks:
        print()
    for remark, about in list(remarks.items())[:FEWEST]:
        labels = dict.fromkeys(axes.label(row) for row in about)
        show_text(f"{'; '.join(labels) if len(labels) <= FEWEST else f'{len(labels)} schedules'}: {remark}")
    show_remaining_count(len(remarks) - FEWEST)


def show_failures(rows: Sequence[Row], *, every: bool = False) -> None:
    """Prints failures: each reason once, after its schedules. Trials of a stopped run are not failures."""
    failed = [row for row in rows if row["outcome"] == "failure" and row["stage"] != "cancelled"]
    if not failed:
        return
    axes = Axes.of(row for row in rows)
    reasons: dict[tuple[str, str], list[Row]] = {}
    for row in failed:
        reasons.setdefault((row["stage"], row["message"]), []).append(row)
    print()
    show_text(counted(failed))
    shown = list(reasons.items())[: None if every else FEW]
    for (stage, message), about in shown:
        labels = dict.fromkeys(axes.label(row) + ("" if row["part"] == "whole" else f", {row['part']} alone")
                            for row in about)  # fmt: skip
        named = "; ".join(labels) if len(labels) <= FEWEST else f"{len(labels)} schedules"
        show_text(f"{named} ({stage}): {message}")
    show_remaining_count(len(reasons) - len(shown))
