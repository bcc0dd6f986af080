"""The table of all rows in a real JupyterLab, with a hundred thousand invented rows, and the hands that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page

from tests.browser.lab import Lab, Notebook

CELL = """
import numpy as np, time, ipywidgets
from workbench.experiment.estimated_space import EstimatedSpace
from workbench.results.columns import grid_frame
from workbench.widgets.exploration import *
from workbench.widgets.table_view import TableView

SAME = {"operator": "gemm_all_to_all", "shape": {"m": 8192, "n": 4096, "k": 1792}, "dtype": "bfloat16", "world": 2,
        "machine": "invented", "fabric": "nvlink", "part": "whole", "backend": "triton"}
CHOICES = {"tile": ["128x256x64", "128x128x64", "64x128x64", "128x64x64"], "num_warps": [4, 8],
           "num_stages": [2, 3, 4, 5], "tile_order": ["interleaved", "peer_major", "own_last"],
           "slice_tiles": [*range(1, 101)], "comm_sms": [0, 4, 8, 16, 24, 32], "store": ["tma", "plain"]}


class Space:
    key = place = "invented"

    def answer(self):
        random, count = np.random.default_rng(0), 100_000
        sizes = [len(values) for values in CHOICES.values()]
        numbers = np.unravel_index(random.permutation(np.prod(sizes))[:count], sizes)  # no two are equal
        points = {name: np.array(values)[number] for (name, values), number in zip(CHOICES.items(), numbers)}
        seconds = 4e-4 * np.exp(0.4 * random.standard_normal(count)) * (1 + 0.1 * points["num_stages"])
        return EstimatedSpace(grid_frame({**SAME, "source": "estimated", "scheme": "fused"}, points, seconds),
                              "Invented estimates.")


def measured(number, time_s):
    axes = {"tile": "128x128x64", "num_warps": 4, "num_stages": 3, "tile_order": "own_last",
            "slice_tiles": 2 ** (number % 5), "comm_sms": 16, "store": "tma", "group_rows": 1 + number}
    return {**SAME, "source": "measured", "scheme": "fused", "run": "r", "key": f"k{number}", "block": "b",
            "time_s": time_s, "axes": axes}


rows = [measured(number, 1e-3 + 1e-5 * number) for number in range(200)]
explored, space = Explored(Exploration(runs=("r",))), Space()
table = TableView(explored.dispatch)
draw = lambda *_: table.draw(Scene(explored.state, list(rows), space=space))
explored.on_change(draw)
place = ipywidgets.VBox([table.widget], layout=ipywidgets.Layout(height="560px", width="100%"))
began = time.time()
draw()
display(place)
"""
_WATCH = """() => {
  Object.assign(window, { wbMoves: [], wbRows: [], wbLines: [] });
  document.addEventListener("pointermove", () => window.wbMoves.push(performance.now()), true);
  document.addEventListener("drawn", ({ detail }) => {
    if (detail.rows !== undefined) requestAnimationFrame(() => window.wbRows.push([performance.now(), detail.rows]));
    if (detail.lines !== undefined) requestAnimationFrame(() => window.wbLines.push([performance.now(), detail.lines]));
  });
}"""
GRID, LINES = ".workbench-row-grid", ".workbench-parallel"
SETTLED_MS = 60_000
TIME_RIGHT, AXIS_TOP, AXIS_PIXELS = 46, 36, 170
"""Where the axis of the time is in the drawing: its distance from the right and from the top, and its length."""


@dataclass(frozen=True)
class TablePage:
    """The table as a person's hands and eyes have it."""

    notebook: Notebook

    @property
    def page(self) -> Page:
        return self.notebook.page

    def counts(self) -> str:
        return self.page.locator(".wb-counts").inner_text()

    def wait_counts(self, text: str) -> None:
        self.page.locator(".wb-counts", has_text=text).wait_for(timeout=SETTLED_MS)

    def first_row(self) -> list[str]:
        """The cells of the uppermost row in sight."""
        script = """() => {
          const top = document.querySelector(".workbench-row-grid .dt-scroll-body").getBoundingClientRect().top;
          const rows = [...document.querySelectorAll(".workbench-row-grid tbody tr[data-row]")];
          const row = rows.find((each) => each.getBoundingClientRect().bottom > top + 2);
          return [...(row?.cells ?? [])].map((cell) => cell.innerText.replace(/\\u00a0/g, " "));
        }"""
        return list(self.page.evaluate(script))

    def scroll(self, pixels: int | None = None) -> int:
        """Scrolls the table to *pixels*, if it is given; where it is then."""
        body = f"document.querySelector('{GRID} .dt-scroll-body')"
        if pixels is not None:
            self.page.evaluate(f"() => {{ {body}.scrollTop = {pixels}; }}")
            self.page.wait_for_timeout(800)
        return int(self.page.evaluate(f"() => {body}.scrollTop"))

    def time_axis(self, share: float) -> tuple[float, float]:
        """A point of the axis of the time, at *share* of its length from the top."""
        lines = self.page.locator(f"{LINES} canvas")
        lines.wait_for()
        box = lines.bounding_box()
        assert box is not None
        return box["x"] + box["width"] - TIME_RIGHT, box["y"] + AXIS_TOP + AXIS_PIXELS * share

    def press(self, share: float) -> None:
        """Begins a brush of the time."""
        self.page.mouse.move(*self.time_axis(share))
        self.page.mouse.down()

    def drag(self, share: float) -> list[float]:
        """Moves the brush; milliseconds until the table and until the lines were drawn anew."""
        self.page.evaluate("() => { for (const each of [wbMoves, wbRows, wbLines]) each.length = 0; }")
        self.page.mouse.move(*self.time_axis(share))
        self.page.wait_for_function("() => wbMoves.length && wbRows.length && wbLines.length", timeout=SETTLED_MS)
        return list(self.page.evaluate("() => [wbRows.at(-1)[0] - wbMoves[0], wbLines.at(-1)[0] - wbMoves[0]]"))

    def brushed(self, rounds: int) -> list[list[float]]:
        """The times of `drag` of so many movements to and fro."""
        self.press(0.9)
        took = [self.drag(0.8 - 0.4 * abs((number % 20) - 10) / 10) for number in range(rounds)]
        self.page.mouse.up()
        self.notebook.python("explored.dispatch(ClearFilters())")
        self.page.wait_for_timeout(500)
        return took


@contextmanager
def opened_table(lab: Lab) -> Iterator[TablePage]:
    """The page with all rows drawn."""
    with lab.opened([CELL]) as notebook:
        notebook.page.set_viewport_size({"width": 1366, "height": 768})
        notebook.page.evaluate(_WATCH)
        notebook.page.evaluate("() => { window.wbBegan = performance.now(); }")
        notebook.run_all()
        table = TablePage(notebook)
        table.wait_counts("100,000 estimated")
        notebook.page.wait_for_selector(f"{GRID} tbody tr[data-row]", timeout=SETTLED_MS)
        notebook.page.wait_for_selector(f"{LINES} canvas", timeout=SETTLED_MS)
        notebook.page.evaluate("() => document.querySelector('.wb-table-view').scrollIntoView()")
        yield table
