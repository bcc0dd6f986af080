"""Small pieces of HTML beside the controls: sizes, refusals, banners. Whatever a person or a file wrote is escaped."""

from __future__ import annotations

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

STYLE = """<style>
.wb-explorer { --wb-line: var(--jp-border-color2, #ccd); color: var(--jp-ui-font-color1, inherit); }
.wb-card { border: 1px solid var(--wb-line); border-radius: 6px; padding: 10px 12px; overflow: visible; }
.wb-explorer .wb-scheme button, .wb-explorer .wb-source button { padding: 0 9px; margin: 1px; font-size: 12px; }
.wb-explorer .wb-scheme button.mod-active, .wb-explorer .wb-source button.mod-active {
  background: var(--jp-brand-color1, #1976d2); color: #fff; box-shadow: none; }
.wb-explorer .wb-guess input { text-align: right; }
.wb-explorer table.wb-sizes { border-collapse: collapse; font-size: 12px; width: 100%; line-height: 1.5; }
.wb-explorer table.wb-sizes td, .wb-explorer table.wb-sizes th {
  padding: 1px 8px 1px 0; text-align: left; vertical-align: top; }
.wb-explorer table th { font-weight: 600; color: var(--jp-ui-font-color2, inherit); }
.wb-explorer .wb-note { font-size: 12px; line-height: 1.45; color: var(--jp-ui-font-color2, inherit); margin: 2px 0; }
.wb-explorer .wb-bad { border-left: 3px solid var(--jp-error-color1, #b3261e); padding: 4px 8px; font-size: 12px;
  line-height: 1.45; white-space: normal; margin: 4px 0; }
.wb-explorer .wb-warn { border-left: 3px solid var(--jp-warn-color1, #b26a00); padding: 4px 8px; font-size: 12px;
  line-height: 1.45; white-space: normal; margin: 4px 0; }
.wb-explorer .widget-html-content { line-height: 1.45; white-space: normal; }
.wb-explorer .wb-headline { font-size: 13px; margin: 0; }
</style>"""


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
