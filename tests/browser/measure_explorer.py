"""How responsive is the notebook while a thousand tiny trials run? `python -m tests.browser.measure_explorer`.

Prints one JSON document: p50, p95 and the most of each number in milliseconds, how many there were, its target and
whether it is met.
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

from tests.browser.explorer_lab import ExplorerPage, explorer_server, opened_explorer
from tests.browser.lab import chromium

TARGETS = {
    "timeline_at_rest_ms": 50,
    "one_plus_one_ms": 200,
    "slider_ms": 300,
    "newest_row_ms": 150,
    "newest_row_while_sliding_ms": 150,
}
"""95 % are to be at most this."""
ROUNDS = 100

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
_WATCH_DRAWN = """() => {
  window.wbDrawn = [];
  document.addEventListener("drawn", (event) => {
    if (event.detail.sweep !== undefined) window.wbDrawn.push([event.detail.sweep, Date.now() / 1000]);
  });
}"""
# in the kernel: up to which row the chart has been told, and when the newest of them was written down
_WATCH_TOLD = """
import gc
from workbench.widgets.exploring import Explorer
_explorer = [found for found in gc.get_objects() if isinstance(found, Explorer)][-1]
_told = []
def _watched(news, add=_explorer.panels.add):
    add(news)
    if any(row["part"] == "whole" for row in news.rows):
        _told.append((_explorer.panels.along.chart._rows["sweep"].end, max(row["at"] for row in news.rows)))
_explorer.panels.add = _watched
"""


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
    for axis in ("pieces", "tile", "split", "steps", "grouping", "pattern"):
        explorer.at(f"wb-sweep-{axis}").click()
    explorer.wait_words("wb-plan", "1,120 decomposed schedules")
    return explorer.words("wb-plan")


def measure(explorer: ExplorerPage, rounds: int = ROUNDS) -> dict[str, Any]:
    """While a run goes on: rounds of `1+1`, of the slider, and the age of what was drawn meanwhile."""
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
    judged = {name: judgement(name, summary(values)) for name, values in found.items()}
    return {**judged, "still_running": still_running, "progress": progress}


def judgement(name: str, found: dict[str, float]) -> dict[str, Any]:
    """*found* with the target of *name*, and whether it is met; of nothing measured nothing is said to be met."""
    p95 = found.get("p95")
    return {**found, "target_p95": TARGETS[name], "met": p95 is not None and p95 <= TARGETS[name]}


def ages(told: list[tuple[int, float]], drawn: list[tuple[int, float]]) -> list[float]:
    """How old the newest row was when it was drawn for the first time, in milliseconds."""
    when, first = dict(told), {}
    for end, at in drawn:
        first.setdefault(end, at)
    return [1000 * (at - when[end]) for end, at in first.items() if end in when]


def main() -> int:
    path = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium was found")
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium(path) as browser,
        explorer_server(Path(folder), browser) as (lab, runs),
    ):
        began = time.monotonic()
        with opened_explorer(lab, runs) as explorer:
            opened_s = round(time.monotonic() - began, 1)
            explorer.wait_words("wb-cluster", "ranks")
            at_rest = explorer.page.evaluate(_TIMELINE, [ROUNDS, "wb-ratio"])
            first = {"opened_s": opened_s, "timeline_at_rest_ms": judgement("timeline_at_rest_ms", summary(at_rest))}
            planned = ask_for_a_thousand(explorer)
            print(json.dumps({**first, "planned": planned, **measure(explorer)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
