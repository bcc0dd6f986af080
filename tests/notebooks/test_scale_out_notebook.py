"""The notebook about steps on many ranks runs headless, shows its charts, and has the worlds from 8 to 4,096."""

import nbformat
import pytest

from workbench.reports.export import executed
from workbench.reports.pictures import CHART
from workbench.resources import notebooks_directory

FOLDER = notebooks_directory()
NAME = "scale_out.ipynb"


@pytest.mark.slow
def test_it_runs_and_shows_charts_of_steps_and_the_band() -> None:
    notebook = executed(nbformat.read(FOLDER / NAME, as_version=4), FOLDER, deadline_s=240.0)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    charts = [output.data[CHART] for output in outputs if CHART in output.get("data", {})]
    assert len(charts) >= 2
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    tables = [html for output in outputs if "<table" in (html := output.get("data", {}).get("text/html", ""))]
    assert all(any(f"<th>{world}</th>" in table for table in tables) for world in (8, 128, 4096))
    assert any("published: 10 % (v1), 21 % (SC24)" in output.get("text", "") for output in outputs)
    views = [output for output in outputs if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
    assert views, "sliders"
