"""How soon is the explorer there, and how responsive is it? `python -m tests.browser.measure_explorer [--json]`.

First the lab is started three times, as a person does, and its first page is timed; then a thousand tiny trials run
beside the page; last comes the table of 100,000 rows, which `--table` measures alone. Takes six minutes, in which
nothing else may run. Prints a table, or one JSON document: p50, p95 and the most of each number, how many there were,
its target and whether it is met.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser

from tests.browser.explorer_lab import ExplorerPage, explorer_server, opened_explorer, started_lab
from tests.browser.lab import Lab, chromium, running_server
from tests.browser.table_lab import opened_table

TARGETS = {
    "address_to_usable_ms": 10_000,
    "timeline_at_rest_ms": 50,
    "one_plus_one_ms": 200,
    "slider_ms": 300,
    "newest_row_ms": 150,
    "newest_row_while_sliding_ms": 150,
    "brush_to_lines_ms": 100,
    "brush_to_table_ms": 100,
    "brush_while_rows_come_ms": 250,
    "scroll_frame_ms": 34,
}
"""95 % are to be at most this."""
TITLES = {
    "command_to_address_ms": "workbench lab -> address printed",
    "address_to_usable_ms": "address printed -> usable",
    "run_to_first_mark_ms": "Run -> first measured mark",
    "timeline_at_rest_ms": "key -> timeline redrawn",
    "one_plus_one_ms": "1 + 1 in a cell, while a sweep runs",
    "slider_ms": "key -> new estimate, while a sweep runs",
    "newest_row_ms": "row stored -> drawn",
    "newest_row_while_sliding_ms": "row stored -> drawn, while somebody slides",
    "first_rows_ms": "100,000 rows: cell -> first row and lines drawn",
    "brush_to_lines_ms": "100,000 rows: brush -> lines filtered",
    "brush_to_table_ms": "100,000 rows: brush -> table",
    "brush_while_rows_come_ms": "100,000 rows: brush -> table, while 10 rows a second come",
    "append_ms": "100,000 rows: a row more -> drawn",
    "scroll_frame_ms": "100,000 rows: a frame while the table scrolls",
}
ROUNDS = 100
STARTS = 3
"""So often the lab is started: each takes half a minute."""
PATIENCE_MS = 120_000

_ONE_PLUS_ONE = """async (rounds) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const took = [];
  for (let round = 0; round < rounds; round += 1) {
    const began = performance.now();
    await kernel.requestExecute({ code: "1+1", store_history: false }).done;
    took.push(performance.now() - began);
    await new Promise((go) => setTimeout(go, 100));
  }
  return took;
}"""
# the time from the key to the new estimate above the timeline: the kernel has simulated another schedule
_SLIDER = """async ([rounds, mark]) => {
  const handle = document.querySelector(`.${mark} .noUi-handle`);
  const words = document.querySelector(".wb-headline");
  const took = [];
  for (let round = 0; round < rounds; round += 1) {
    const key = round % 2 ? "ArrowRight" : "ArrowLeft";
    const began = performance.now();
    const changed = new Promise((go, fail) => {
      const watch = new MutationObserver(() => { watch.disconnect(); go(); });
      watch.observe(words, { childList: true, subtree: true, characterData: true });
      setTimeout(() => { watch.disconnect(); fail(new Error("the headline did not change within 20 s")); }, 20000);
    });
    handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await changed;
    took.push(performance.now() - began);
    await new Promise((go) => setTimeout(go, 100));
  }
  return took;
}"""
# from the key to the first mark of the timeline that is drawn anew, while nothing runs
_TIMELINE = _SLIDER.replace(".wb-headline", ".wb-timeline svg.marks").replace(
    "characterData: true", "characterData: true, attributes: true"
)
# from the click on Run to the first mark of something timed
_FIRST_MARK = """async () => {
  const timed = ({ ariaLabel }) => ariaLabel?.includes(", measured");
  const began = performance.now();
  document.querySelector(".wb-run").click();
  while (![...document.querySelectorAll(".wb-panels .role-mark [aria-label]")].some(timed)) {
    if (performance.now() - began > 60000) throw new Error("nothing that was timed was drawn within 60 s");
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - began;
}"""
_WATCH_DRAWN = """() => {
  window.wbDrawn = [];
  document.addEventListener("drawn", (event) => {
    if (event.detail.sweep !== undefined) window.wbDrawn.push([event.detail.sweep, Date.now() / 1000]);
  });
}"""
# in the kernel: up to which row the chart has been told, and when the newest of them was written down
_WATCH_TOLD = """
import gc
from workbench.widgets.explorer_page import Explorer
_explorer = [found for found in gc.get_objects() if isinstance(found, Explorer)][-1]
_told = []
def _watched(news, add=_explorer.panels.add):
    add(news)
    if any(row["part"] == "whole" for row in news.rows):
        _told.append((_explorer.panels.along.chart._rows["sweep"].end, max(row["at"] for row in news.rows)))
_explorer.panels.add = _watched
"""


_APPEND = """async (rounds) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const took = [];
  for (let round = 0; round < rounds; round += 1) {
    window.wbRows.length = 0;
    const [began, number] = [performance.now(), 1000 + round];
    kernel.requestExecute({ code: `rows.append(measured(${number}, 2e-4)); draw()`, store_history: false });
    while (!window.wbRows.length) await new Promise(requestAnimationFrame);
    took.push(window.wbRows[0][0] - began);
    await new Promise((go) => setTimeout(go, 100));
  }
  return took;
}"""
_SCROLL = """async (frames) => {
  const body = document.querySelector(".workbench-row-grid .dt-scroll-body");
  const took = [];
  let last = performance.now();
  for (let frame = 0; frame < frames; frame += 1) {
    body.scrollTop += 60;
    await new Promise(requestAnimationFrame);
    took.push(performance.now() - last);
    last = performance.now();
  }
  return took;
}"""
# in the kernel: rows come from another thread, as those of a run do
_COME = """
import threading
coming = threading.Event()
def come(number=5000):
    while not coming.wait(0.1):
        number += 1
        rows.append(measured(number, 1e-3)); draw()
threading.Thread(target=come, daemon=True).start()
"""


def measure_table(browser: Browser, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The table of 100,000 rows: first paint, brush, a row more, scroll; nothing else runs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder)) as server,
        opened_table(Lab(server, browser)) as drawn,
    ):
        first = drawn.page.evaluate("() => [Math.max(wbRows[0][0], wbLines[0][0]) - wbBegan]")
        still = drawn.brushed(rounds)
        drawn.notebook.python(_COME)
        running = drawn.brushed(rounds)
        drawn.notebook.python("coming.set()")
        appended = drawn.page.evaluate(_APPEND, rounds)
        scrolled = drawn.page.evaluate(_SCROLL, rounds)
    values = {
        "first_rows_ms": first, "brush_to_lines_ms": [lines for _, lines in still],
        "brush_to_table_ms": [rows for rows, _ in still], "brush_while_rows_come_ms": [rows for rows, _ in running],
        "append_ms": appended, "scroll_frame_ms": scrolled,
    }  # fmt: skip
    return {name: summary(each) for name, each in values.items()}


def summary(values: list[float]) -> dict[str, float]:
    """Of times in milliseconds."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"p50": round(median(ordered), 1), "p95": round(p95, 1), "most": round(ordered[-1], 1), "n": len(ordered)}


def ask_for_a_thousand(explorer: ExplorerPage) -> str:
    """Small problems of which there are many schedules; what the form says of them."""
    explorer.take_sizes(m=512, n=512, k=64)
    explorer.press("wb-scheme", "decomposed")
    explorer.open_advanced()
    explorer.sweep("pieces", "tile", "split", "steps", "grouping", "pattern")
    explorer.wait_words("wb-plan", "1,120 decomposed schedules")
    return explorer.words("wb-plan")


def measure(explorer: ExplorerPage, rounds: int = ROUNDS) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """While a run goes on: rounds of `1+1`, of the slider, the age of what was drawn meanwhile; and how the run was."""
    explorer.notebook.python(_WATCH_TOLD)
    explorer.page.evaluate(_WATCH_DRAWN)
    explorer.begin()
    explorer.page.wait_for_function("() => window.wbDrawn.length > 3", timeout=60_000)
    ones = explorer.page.evaluate(_ONE_PLUS_ONE, rounds)
    sliding_from = time.time()
    slider = explorer.page.evaluate(_SLIDER, [rounds, "wb-axis-pieces"])
    still_running = explorer.at("wb-stop").is_enabled()
    progress = explorer.words("wb-progress")
    if still_running:
        explorer.at("wb-stop").click()
        explorer.wait_end()
    told = json.loads(explorer.notebook.python("import json; print(json.dumps(_told))"))
    drawn = explorer.page.evaluate("() => window.wbDrawn")
    found = {
        "one_plus_one_ms": ones,
        "slider_ms": slider,
        "newest_row_ms": ages(told, [one for one in drawn if one[1] < sliding_from]),
        "newest_row_while_sliding_ms": ages(told, [one for one in drawn if one[1] >= sliding_from]),
    }
    numbers = {name: summary(values) for name, values in found.items()}
    return numbers, {"still_running": still_running, "progress": progress}


def judgement(name: str, found: dict[str, float]) -> dict[str, Any]:
    """*found* with the target of *name*, and whether it is met; of nothing measured nothing is said to be met."""
    target, p95 = TARGETS.get(name), found.get("p95")
    return found if target is None else {**found, "target_p95": target, "met": p95 is not None and p95 <= target}


def ages(told: list[tuple[int, float]], drawn: list[tuple[int, float]]) -> list[float]:
    """How old the newest row was when it was drawn for the first time, in milliseconds."""
    when, first = dict(told), {}
    for end, at in drawn:
        first.setdefault(end, at)
    return [1000 * (at - when[end]) for end, at in first.items() if end in when]


def first_page(browser: Browser) -> dict[str, float]:
    """One start of the lab: until its address is printed, until a key moves the timeline, until Run shows a mark."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started_lab(Path(folder), "--ranks", "2", "--no-calibration") as lab,
        browser.new_context(viewport={"width": 1366, "height": 768}) as context,
    ):
        explorer = lab.open(context)
        explorer.page.wait_for_selector(".wb-timeline svg.marks", timeout=PATIENCE_MS)
        explorer.page.evaluate(_TIMELINE, [1, "wb-ratio"])
        usable = time.monotonic()
        explorer.wait_words("wb-cluster", "2 ranks")
        explorer.page.wait_for_timeout(
            10_000
        )  # the ranks have been started, and are warm when a person has read the page
        return {
            "command_to_address_ms": 1000 * (lab.printed - lab.started),
            "address_to_usable_ms": 1000 * (usable - lab.printed),
            "run_to_first_mark_ms": float(explorer.page.evaluate(_FIRST_MARK)),
        }


def table(found: dict[str, dict[str, Any]]) -> str:
    """The numbers for people: one row each, times with their units."""
    rows = [("", "p50", "p95", "most", "n", "target of p95", "met")]
    for name, numbers in found.items():
        times = [_words(numbers.get(key)) for key in ("p50", "p95", "most")]
        target, met = _words(numbers.get("target_p95")), {True: "yes", False: "no", None: ""}[numbers.get("met")]
        rows.append((TITLES[name], *times, str(numbers["n"]), target, met))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _words(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def main() -> int:
    only_table = "--table" in sys.argv[1:]
    path = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium was found")
    if only_table:
        with chromium(path) as browser:
            judged = {name: judgement(name, numbers) for name, numbers in measure_table(browser).items()}
        print(json.dumps(judged, indent=1) if "--json" in sys.argv[1:] else table(judged))
        return 0
    with chromium(path) as browser:
        starts = [first_page(browser) for _ in range(STARTS)]
        found = {name: summary([start[name] for start in starts]) for name in starts[0]}
        with (
            tempfile.TemporaryDirectory() as folder,
            explorer_server(Path(folder), browser) as (lab, runs),
            opened_explorer(lab, runs) as explorer,
        ):
            explorer.wait_words("wb-cluster", "ranks")
            found["timeline_at_rest_ms"] = summary(explorer.page.evaluate(_TIMELINE, [ROUNDS, "wb-ratio"]))
            planned = ask_for_a_thousand(explorer)
            measured, state = measure(explorer)
        measured |= measure_table(browser)
    judged = {name: judgement(name, numbers) for name, numbers in (found | measured).items()}
    if "--json" in sys.argv[1:]:
        print(json.dumps({**judged, "planned": planned, **state}, indent=1))
    else:
        print(table(judged), "", f"The sweep: {planned} {state['progress']}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
