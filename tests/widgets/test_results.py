"""What a person reads while a run goes on: how much, how fast, how long still, and what failed and why."""

import shlex
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nbformat.v4 import new_notebook

from tests.widgets.conftest import row
from workbench.experiment.run import Progress
from workbench.results.comparison import verdict_note
from workbench.results.filters import Filters
from workbench.results.store import Store, store_path
from workbench.widgets.exploration import row_id
from workbench.widgets.results import SHOWN_MOST, ReportButton, Results, report_command
from workbench.widgets.session import RunNews


def news(done: int = 0, total: int = 4, **more: Any) -> RunNews:
    counts = {name: more.pop(name, 0) for name in ("failed", "known", "refused")}
    so_far = Progress(total=total, done=done, samples=more.pop("count", 0), left=more.pop("left", None),
                      started_at=time.monotonic() - 10, **counts)  # fmt: skip
    return RunNews(**{"run": "r", "rows": (), "samples": (), "progress": so_far, "ended": False, **more})


@pytest.fixture
def results() -> Results:
    made = Results()
    made.begin(sweeping=True)
    return made


def test_progress_says_how_much_and_how_long_still(results: Results) -> None:
    results.add(news(done=2))
    assert "2 of 4 schedules" in results.text.value
    assert "about 10 s left" in results.text.value
    assert results.bar.value == 0.5


def test_of_a_run_that_measures_blocks_and_samples_are_told(results: Results) -> None:
    left = SimpleNamespace(block=2, blocks=25, seconds=lambda: 50.0, share=lambda: 0.1)
    results.add(news(done=12, total=200, count=340, known=3, left=left))
    assert "12 of 200 schedules, block 2 of 25, 340 samples, 3 known from before, about 50 s left." in (
        results.text.value
    )
    assert results.bar.value == 0.1


def test_the_end_is_said(results: Results) -> None:
    results.add(news(done=4, ended=True, rows=[row()]))
    assert "4 of 4 schedules" in results.text.value
    assert "done after 10 s" in results.text.value
    assert results.bar.value == 1.0


def test_coverage_of_the_estimates_stands_beside_their_error(results: Results) -> None:
    estimate = {"outcome": "estimate", "source": "estimated", "time_s": 1.8e-3, "low_s": 1.5e-3, "high_s": 1.9e-3}
    estimated = [row(key=key, **estimate) for key in "ab"]
    timed = [
        row(key="a", time_s=2e-3),
        row(key="b", time_s=1.6e-3),
        row(key="c"),
        row(key="d", others_share=0.9, others="make"),
    ]
    results.add(news(done=4, ended=True, rows=[*estimated, *timed]))
    assert "Of 3 trials 67 % could be estimated at all. Of their times 50 % lie inside" in results.estimates.value
    assert "80 % are promised. Their median error is 11 %." in results.estimates.value
    results.begin(sweeping=False)
    assert results.estimates.value == ""
    results.add(news(done=1, ended=True, rows=[row()]))
    assert "None of 1 trial could be estimated." in results.estimates.value
    results.begin(sweeping=False)
    results.add(news(done=1, ended=True, rows=estimated))
    assert results.estimates.value == "", "nothing was measured"


def test_a_stopped_run_says_what_it_has_and_counts_nothing_as_failed(results: Results) -> None:
    cancelled = row(key="b", outcome="failure", stage="cancelled", message="Cancelled.", time_s=None)
    results.add(news(done=1, ended=True, stopped=True, rows=[row(), cancelled]))
    assert "1 of 4 schedules" in results.text.value
    assert "stopped" in results.text.value
    assert "failed" not in results.text.value
    assert "Cancelled." not in results.others.value


def test_a_failure_is_in_the_table_with_its_sentence(results: Results) -> None:
    failed = row(key="b", outcome="failure", stage="hang", message="rank 1 said nothing for 30 s", time_s=None)
    results.add(news(done=2, failed=1, ended=True, rows=[row(), failed]))
    assert "1 failed" in results.text.value
    assert "rank 1 said nothing for 30 s" in results.others.value
    assert results.bar.bar_style == "warning"


def test_what_a_sweep_passes_over_is_counted_and_each_reason_said_once(results: Results) -> None:
    refused = [row(key=str(n), outcome="failure", stage="refused", message="a < b", time_s=None) for n in range(3)]
    results.add(news(done=2, total=4, refused=3, rows=[row(), *refused], ended=True))
    assert "2 of 4 schedules, 3 combinations refused, done" in results.text.value
    assert results.others.value.count("a &lt; b") == 1
    assert "3 of them" in results.others.value
    assert results.failures == []


def test_markup_in_a_sentence_is_text(results: Results) -> None:
    failed = row(outcome="failure", stage="wrong", message="<script>alert(1)</script>", time_s=None)
    results.add(news(done=1, failed=1, ended=True, rows=[failed]))
    assert "<script>" not in results.others.value


def test_the_baseline_stands_in_the_table_once_with_the_time_of_the_best_schedules_block(results: Results) -> None:
    def timed(scheme: str, seconds: float, block: str) -> dict[str, Any]:
        axes = {} if scheme == "sequential" else {"slice_tiles": int(seconds * 1000)}
        return dict(row(key=f"{scheme}{axes}", scheme=scheme, axes=axes, time_s=seconds, block=block,
                        rounds_s=[seconds] * 15))  # fmt: skip

    rows = [timed("sequential", 0.02, "r.1"), timed("fused", 0.008, "r.1")]
    rows += [timed("sequential", 0.01, "r.2"), timed("fused", 0.006, "r.2")]
    results.add(news(done=1, ended=True, rows=rows))
    (part,) = results.outcomes.parts
    assert [line["cells"][0]["text"] for line in part["rows"]] == ["fused", "fused", "sequential"]
    (line,) = [line for line in part["rows"] if line["cells"][0]["text"] == "sequential"]
    assert "20 ms" in [cell["text"] for cell in line["cells"]]
    # the baseline of the first block is still there after the second: the page says what the terminal says
    assert part["note"].startswith("fused over sequential is faster: 8 ms against 20 ms, 2.50x")
    assert verdict_note(rows) in part["note"]


def test_the_note_at_the_end_counts_the_schedules_that_the_table_leaves_out(results: Results) -> None:
    rows = [row(key=str(n), axes={"slice_tiles": n}, time_s=0.01 + n / 1e4, block="r.1", rounds_s=[0.01 + n / 1e4] * 15)
            for n in range(2 * SHOWN_MOST)]  # fmt: skip
    results.add(news(done=len(rows), ended=True, rows=rows))
    assert len(results.outcomes.parts[0]["rows"]) == SHOWN_MOST
    assert f"The fastest of {len(rows)} is " in results.outcomes.parts[0]["note"]


def test_the_table_keeps_the_newest_schedules_of_a_long_run(results: Results) -> None:
    rows = [row(key=str(n), axes={"tile": "32x64x64", "slice_tiles": n}) for n in range(500)]
    results.add(news(done=500, ended=True, rows=rows))
    assert len(results.outcomes.parts[0]["rows"]) == SHOWN_MOST


def test_each_problem_has_a_table_and_a_best_of_its_own(results: Results) -> None:
    def timed(key: str, m: int, scheme: str, time_s: float) -> dict[str, Any]:
        sequential_s = 3e-3 if m == 64 else 3e-6
        return dict(row(key=key, scheme=scheme, shape={"m": m, "n": 64, "k": 64}, time_s=time_s,
                        sequential_s=sequential_s, rounds_s=[time_s] * 15))  # fmt: skip

    rows = [timed("a", 64, "sequential", 3e-3), timed("b", 64, "fused", 2e-3)]
    rows += [timed("c", 8, "sequential", 3e-6), timed("d", 8, "fused", 4e-6)]
    results.add(news(done=4, ended=True, rows=rows))
    large, small = results.outcomes.parts
    assert (large["title"], small["title"]) == ("m = 64, n = 64, k = 64", "m = 8, n = 64, k = 64")
    assert "1.50x faster than the best sequential schedule. fused over sequential is faster: 2 ms" in large["note"]
    assert small["note"].startswith("Fastest: sequential, ")
    for part, ratios in ((large, {"1.50x", "1.00x"}), (small, {"0.75x", "1.00x"})):
        (place,) = [index for index, column in enumerate(part["columns"]) if "Speed-up" in column["heading"]]
        assert {line["cells"][place]["text"] for line in part["rows"]} == ratios
        assert len([line for line in part["rows"] if line["best"]]) == 1
    assert [column["heading"] for column in large["columns"]][place] == "Speed-up over sequential, by paired rounds"


def test_baseline_and_fastest_stay_in_the_table_of_a_long_sweep(results: Results) -> None:
    """The baseline is timed again in every block; once it was the first row to be dropped, and with it the speed-up."""
    best = row(key="best", axes={"tile": "32x64x64", "slice_tiles": 999}, time_s=1e-3)
    results.add(news(done=1, rows=[best]))
    for block in range(200):
        plain = row(key="s", scheme="sequential", axes={}, time_s=3e-3, block=f"r.{block}")
        fused = [row(key=f"{block}.{n}", axes={"tile": "32x64x64", "slice_tiles": 8 * block + n}) for n in range(7)]
        results.add(news(done=7 * block, rows=[plain, *fused], ended=block == 199))
    (part,) = results.outcomes.parts
    assert len(part["rows"]) == SHOWN_MOST
    (place,) = [index for index, column in enumerate(part["columns"]) if "Speed-up" in column["heading"]]
    (fastest,) = [line for line in part["rows"] if line["best"]]
    assert fastest["cells"][place]["text"] == "3.00x"
    assert any("sequential" in line["cells"][0]["text"] for line in part["rows"])


def test_a_pinned_row_stays_the_baseline_of_rows_that_come_later(results: Results) -> None:
    def timed(scheme: str, seconds: float) -> dict[str, Any]:
        return row(key=scheme, scheme=scheme, axes={}, time_s=seconds, block="r.1", rounds_s=[seconds] * 15)

    def differences() -> list[str | None]:
        (part,) = results.outcomes.parts
        places = [number for number, column in enumerate(part["columns"]) if "Difference" in column["heading"]]
        return [line["cells"][place]["text"] for place in places for line in part["rows"]]

    results.add(news(done=1, rows=[timed("sequential", 0.02)]))
    assert differences() == []
    results.pin(timed("sequential", 0.02))
    results.add(news(done=2, ended=True, rows=[timed("fused", 0.01), timed("decomposed", 0.03)]))
    assert differences() == ["-50 %", "baseline", "+50 %"]
    results.pin(None)
    assert differences() == []
    with pytest.raises(ValueError, match="cannot be the baseline: it has no time"):
        results.pin(row(time_s=None, stage="hang"))


def test_a_report_goes_without_a_baseline_that_does_not_fit_and_an_error_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored_runs(*_: Any, baseline: str | None, **__: Any) -> Any:
        if baseline is not None:
            raise ValueError("of <another> problem")
        return new_notebook()

    monkeypatch.setattr("workbench.widgets.results.stored_runs", stored_runs)
    monkeypatch.setattr("workbench.widgets.results.remember", lambda *_: None)
    button = ReportButton(store, lambda: "a", lambda: "b/key")
    button._wanted = ("a",)
    button._write(("a",), "")
    assert "Download the report" in button.link.value
    assert "The report is without the pinned baseline. of &lt;another&gt; problem" in button.link.value
    monkeypatch.setattr("workbench.widgets.results.stored_runs", lambda *_, **__: 1 // 0)
    button._write(("a",), "")
    assert "could not be written, and the log says why" in button.link.value
    assert not button.button.disabled


def test_the_table_has_the_kept_rows_alone_and_says_how_many_are_left_out(results: Results) -> None:
    rows = [row(id=number, key=f"k{number}", axes={"slice_tiles": 2**number}) for number in range(3)]
    results.add(news(done=3, ended=True, rows=rows))
    lines = len(results.outcomes.parts[0]["rows"])
    assert (lines, results.left_out.value) == (3, "")
    filters = Filters().with_range("slice_tiles", (1.0, 2.0))
    results.keep(frozenset(map(row_id, rows[:2])), filters)
    assert len(results.outcomes.parts[0]["rows"]) == 2
    assert "The filter leaves out 1 of 3 rows." in results.left_out.value
    results.keep(frozenset(), Filters(text="nothing"))
    assert results.outcomes.parts == []
    results.keep(None, Filters())
    assert len(results.outcomes.parts[0]["rows"]) == 3
    assert results.left_out.value == ""


def test_the_command_of_a_report_is_whole_and_can_be_pasted(tmp_path: Path) -> None:
    words = shlex.split(report_command(("one", "two"), "one two.html", "A 'note' of mine", tmp_path / "store.sqlite"))
    assert words == ["workbench", "report", "one", "two", "-o", "one two.html", "--note", "A 'note' of mine", "--store",
                     str(tmp_path / "store.sqlite")]  # fmt: skip
    assert report_command(("one",), "one.html", " ", store_path()) == "workbench report one -o one.html"
