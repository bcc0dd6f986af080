"""The notebook about caches runs headless from top to bottom, and its sentences are true of what it shows."""

import re

import nbformat
import pytest

from workbench.reports.export import executed
from workbench.reports.pictures import CHART
from workbench.resources import notebooks_directory

FOLDER = notebooks_directory()
NAME = "appendix_cache_policies.ipynb"


@pytest.mark.slow
def test_it_runs_and_shows_three_charts_and_a_table() -> None:
    notebook = executed(nbformat.read(FOLDER / NAME, as_version=4), FOLDER, deadline_s=240.0)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    charts = [output.data[CHART] for output in outputs if CHART in output.get("data", {})]
    assert len(charts) == 3
    points = [row for rows in charts[2]["datasets"].values() for row in rows if row["l2_mib"] == 50]
    read = {(row["label"], row["source"]): row["read"] for row in points}
    measured = [(label, read_mb) for (label, source), read_mb in read.items() if source == "measured"]
    assert len(measured) == 3
    assert all(read_mb == pytest.approx(read[label, "estimated"], rel=0.03) for label, read_mb in measured)
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    (table,) = (html for output in outputs if "BwSoft" in (html := output.get("data", {}).get("text/html", "")))
    static = dict(re.findall(r"<th>(\w+)</th>\s*<td>(\w+)</td>", table))
    assert static["FwAct"] == "uncached"
    assert static["BwSoft"] == "cache_r"
    assert len(set(static.values())) > 1
