"""README's examples are what the commands print."""

import re

from tests.gpu.documents import has_blocks, recordings_of
from tests.notebooks.sentences import SECOND
from tests.workbench.readme_examples import COLUMNS, NAMES, README, example, printed
from workbench import recordings


def test_examples_are_what_a_terminal_of_100_columns_prints() -> None:
    text = README.read_text()
    examples = [example(name, text) for name in NAMES]
    for stated, found in zip(examples, printed(examples), strict=True):
        assert stated == found, "`python -m tests.workbench.readme_examples` writes them"
        assert max(map(len, found.splitlines()[1:])) <= COLUMNS


def test_the_ratios_that_are_known_to_be_wrong_are_marked_in_the_table() -> None:
    """`direct` is not in the recordings of the operators whose rows are marked, and the note says so.

    Tables that are written from recordings with blocks (tests/gpu/documents.py) have every baseline, and no such row.
    """
    if "†" not in README.read_text():
        assert any(map(has_blocks, recordings_of(README.parent / "data")))
        return
    rows = re.findall(
        r"^\| `(\w+)` ([^|]+) \|[^|]+\|[^|]+\|[^|]+\| ~~(0\.\d\d)~~ (0\.\d\d) † \|", README.read_text(), re.M
    )
    assert {(operator, sizes): float(right) for operator, sizes, _, right in rows} == SECOND
    assert all(float(wrong) < float(right) for *_, wrong, right in rows)
    trials = [entry.measurement.trial for name in recordings.paths() if name.startswith("h200")
              for entry in recordings.recordings(name)]  # fmt: skip
    direct = {trial.problem.operator for trial in trials if dict(trial.schedule.axes).get("collective") == "direct"}
    (note,) = re.findall(r"\*\*† Known to be wrong\.\*\* Best sequential of ([^.]+?) leaves out", README.read_text())
    assert not direct & set(re.findall(r"`(\w+)`", note))
    assert {operator for operator, *_ in rows} <= set(re.findall(r"`(\w+)`", note))
