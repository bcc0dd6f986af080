"""Check of what people take away: a run becomes a report, a trace, a table and a recording."""

from __future__ import annotations

import json
from importlib import util

from tests.release.commands import require
from tests.release.measuring import QUICK, RUN_S
from tests.release.questions import GEMM
from tests.release.site import Figures, Site
from tests.release.summary import NO_GPU

WRITE_S = 60.0
NEEDED = ("altair", "vl_convert", "nbformat", "nbconvert", "nbclient", "bleach", "tinycss2", "bs4", "soupsieve")
"""What reports are written with; a GPU host that only measures may lack it."""


def report_and_trace(site: Site) -> Figures:
    """Measured for this, so that it does not depend on other checks."""
    store = str(site.store("report"))
    words = ("--world", str(site.world), "--protocol", QUICK, "--store", store)
    site.commands.ask("run", GEMM, *site.sizes(GEMM), *words, "--json", within_s=RUN_S)
    return {**_reports(site, store), **_exports(site, store)}


def _reports(site: Site, store: str) -> Figures:
    if absent := [name for name in NEEDED if util.find_spec(name) is None]:
        return {"report": f"skipped: {', '.join(absent)} not installed"}
    sizes = {}
    for name, sign in (("report.html", "<html"), ("report.md", "# ")):
        path = site.commands.folder / name
        site.commands.ask("report", "last", "-o", str(path), "--store", store, within_s=WRITE_S)
        text = path.read_text()
        require(sign in text, f"{name} does not look like a report.")
        require("fused" in text, f"{name} names no fused schedule.")
        sizes[name] = len(text)
    return {"report_characters": sizes}


def _exports(site: Site, store: str) -> Figures:
    folder = site.commands.folder
    for kind, name in (("perfetto", "trace.json"), ("recording", "run.jsonl"), ("parquet", "rows.parquet")):
        words = ("--to", kind, "-o", str(folder / name), "--store", store)
        site.commands.ask("export", "last", *words, within_s=WRITE_S)
    recorded = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    require(recorded, "The recording is empty.")
    return {**_trace(site, (folder / "trace.json").read_text()), "recorded": len(recorded)}


def _trace(site: Site, text: str) -> Figures:
    """Of the measured fused schedule all ranks are there, and on GPUs their SMs."""
    events = json.loads(text)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    steps = [event for event in events if event["ph"] == "X"]
    ranks = {name.rpartition(" ")[2] for name in names if name.startswith("fused(") and ", measured, rank " in name}
    require(len(ranks) == site.world, f"The trace has {len(ranks)} ranks of the measured fused schedule.")
    sms = {name for name in names if name.startswith("SM ")}
    require(sms or not site.on_gpus, "The trace has no track of an SM.")
    require(steps and all(event["dur"] >= 0 for event in steps), "A step of the trace ends before it begins.")
    return {"trace_steps": len(steps), "trace_sms": len(sms) if site.on_gpus else NO_GPU}
