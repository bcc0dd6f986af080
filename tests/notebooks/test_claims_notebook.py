"""The notebook about claims runs headless, draws published beside ours, and has a row for each number that is asked."""

import nbformat
import pytest

from workbench.analysis.claims import ClaimSources
from workbench.reports.export import executed
from workbench.reports.pictures import CHART
from workbench.resources import notebooks_directory

FOLDER = notebooks_directory()
NAME = "appendix_claims.ipynb"


@pytest.mark.slow
def test_it_runs_and_shows_every_claim_and_a_chart() -> None:
    notebook = executed(nbformat.read(FOLDER / NAME, as_version=4), FOLDER, deadline_s=240.0)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    charts = [output.data[CHART] for output in outputs if CHART in output.get("data", {})]
    assert charts
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    tables = [html for output in outputs if "<table" in (html := output.get("data", {}).get("text/html", ""))]
    assert len(tables) >= 4
    for name in ClaimSources().ways:
        assert sum(f"<th>{name}</th>" in table for table in tables) >= 2, name
