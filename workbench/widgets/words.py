"""Small pieces of HTML beside the controls: sizes, refusals, banners. Whatever a person or a file wrote is escaped."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup, escape

from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.units import bytes_text

TITLES = {
    "slice_tiles": "Tiles per slice",
    "pieces": "Pieces",
    "tile": "Tile",
    "tile_order": "Tile order",
    "write": "Write",
    "grid": "Grid",
    "comm_sms": "Comm SMs",
    "split": "Split",
    "steps": "Steps",
    "grouping": "Grouping",
    "pattern": "Pattern",
    "engine": "Engine",
    "collective": "Collective",
}

STYLE = f"<style>{(Path(__file__).parent / 'explorer.css').read_text()}</style>"


def axis_title(name: str) -> str:
    """The axis as a label; one that is new to this table shows its own name."""
    return TITLES.get(name, name)


def refusal_html(sentence: str) -> str:
    """Why what is asked cannot be."""
    return str(Markup('<div class="wb-bad" role="alert">{}</div>').format(sentence))


def warning_html(sentence: str) -> str:
    """What a person should know before trusting a number."""
    return str(Markup('<div class="wb-warn" role="status">{}</div>').format(sentence))


def note_html(sentence: str) -> str:
    """A quiet sentence."""
    return str(Markup('<div class="wb-note">{}</div>').format(sentence))


def sizes_html(problem: Problem) -> str:
    """Local and global sizes side by side, and what must cross the wire."""
    stated = OPERATORS[problem.operator]
    local, whole = stated.local(problem), stated.whole(problem)
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(mine, _shape(shape), _shape(whole_shape))
        for (mine, shape), whole_shape in zip(local.items(), whole.values(), strict=True)
    ]
    table = Markup(
        '<table class="wb-sizes"><tr><th>tensor</th><th>one rank</th><th>all {} ranks</th></tr>{}</table>'
    ).format(problem.world, Markup("").join(rows))
    wire = Markup('<div class="wb-note">Each rank sends at least {}, computes {:.3g} GFLOP.</div>').format(
        bytes_text(stated.wire_bytes(problem)), stated.flops(problem) / 1e9
    )
    return str(table + wire)


def _shape(sizes: tuple[int, ...]) -> Markup:
    return escape(" × ".join(f"{size:,}".replace(",", " ") for size in sizes))
