"""What the documents say of the long run is what its recording holds."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "data" / "checks" / "chaos.json").read_text())


def test_the_page_says_what_the_long_run_came_to() -> None:
    page = (ROOT / "docs" / "results" / "faults.md").read_text()
    line = next(text for text in page.split("\n\n") if text.startswith("Faults:"))
    assert f"{FIGURES['faults']:,} of them in {FIGURES['minutes']:.0f} minutes of {FIGURES['date'][:10]}" in line
    assert f"seed {FIGURES['seed']}, commit {FIGURES['commit'][:7]}" in line
    assert f"{FIGURES['recovery_median_s']:.0f} s (median, at most {FIGURES['recovery_most_s']:.0f} s)" in line


def test_the_page_on_tests_says_the_same() -> None:
    note = (ROOT / "docs" / "testing.md").read_text().partition("## Faults of a seed")[2].partition("## ")[0]
    note = " ".join(note.split())
    assert f"{FIGURES['faults']:,} faults in {FIGURES['rounds']} rounds met {FIGURES['clients']} clients" in note
    assert f"{FIGURES['outcomes']['measurement']:,} measurements" in note
