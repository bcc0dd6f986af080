"""Tables that fit the terminal: numbers are never cut or wrapped, words give way."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from workbench.cli_show import width, wrapped

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
class Column:
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


def show_table(columns: Sequence[Column]) -> None:
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


def _without_optional(columns: Sequence[Column], room: int) -> list[Column]:
    shown = list(columns)
    for column in sorted(columns, key=lambda each: -each.goes_below):
        if column.goes_below and _needed(shown, column.goes_below) > room:
            shown.remove(column)
    return shown


def _needed(columns: Sequence[Column], wanted: int = 0) -> int:
    return sum(column.least(wanted) for column in columns) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """What is left of the room goes to who lacks most."""
    widths = [column.least() for column in columns]
    for _ in range(room - _needed(columns)):
        lacks = [column.natural - wide for column, wide in zip(columns, widths, strict=True)]
        if max(lacks) <= 0:
            break
        widths[lacks.index(max(lacks))] += 1
    return widths


def _merged(columns: Sequence[Column]) -> list[Column]:
    """The first column, and all others as one of sentences."""
    name, *others = columns
    cells = zip(*map(_inline, others), strict=True)
    return [name, Column("", ["; ".join(text.removesuffix(".") for text in texts if text) for texts in cells])]


def _inline(column: Column) -> list[str]:
    """Its cells as parts of sentences; nothing where there is nothing to say."""
    return ["" if cell is None else column.inline.format(cell) for cell in column.cells]


def _print(columns: Sequence[Column], widths: Sequence[int]) -> None:
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


def _fitted(column: Column, wide: int) -> list[list[str]]:
    """The lines of each cell; texts that are the same down to where they would be cut stand there whole."""
    whole = [wrapped(text, wide, indent="").splitlines() or [""] for text in column.texts]
    if column.kind != "cut":
        return whole
    shown = [cut(text, wide) for text in column.texts]
    texts: dict[str, set[str]] = {}
    for text, short in zip(column.texts, shown, strict=True):
        texts.setdefault(short, set()).add(text)
    return [[short] if len(texts[short]) == 1 else lines for short, lines in zip(shown, whole, strict=True)]


def _lines(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """One row of cells that have several lines each."""
    for texts in zip_longest(*cells, fillvalue=""):
        blanks = [" " * (wide - _length(text)) for text, wide in zip(texts, widths, strict=True)]
        aligned = [blank + text if column.kind == "number" else text + blank
                   for column, text, blank in zip(columns, texts, blanks, strict=True)]  # fmt: skip
        yield (" " * GAP).join(aligned).rstrip()


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
