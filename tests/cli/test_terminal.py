"""Every command on terminals of several widths, and through a pipe; and README's examples are what is printed."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress

from kernels.operators import OPERATORS
from kernels.schemes import SCHEMES
from kernels.units import seconds_text
from tests.cli.readme_examples import COLUMNS, examples
from tests.cli.readme_examples import printed as readme_printed
from tests.cli.terminals import PLACES, WORKERS, Command, Printed, run_on
from workbench.cli.measuring import bar_columns
from workbench.cli.output import FEW, LONG, end_progress, say_progress
from workbench.experiment.sources import WaitReport
from workbench.machines import names as machine_names
from workbench.machines import shipped_machine
from workbench.machines.presets import presets
from workbench.naming import operator_title
from workbench.results.comparison import leading
from workbench.results.rows import by_problem

# Every command on terminals of several widths, and through a pipe: each number whole on its row's line.

WIDTHS = (60, 80, None)
"""The narrowest that is promised, the usual one, and a pipe."""

RUN = ("run", "gemm_all_to_all", "--preset", "tiny", "--protocol", "quick")
GPUS = ("predict", "gemm_all_to_all", "--preset", "mixtral_8x7b_experts_2048", "--machine", "h200_nvl8")
TABLES = ("predict", "embedding_all_to_all", "--preset", "dlrm_dcnv2", "--machine", "h200_nvl8")
TUNED = ("recommend", "gemm_all_to_all", "--shape", "m=8192", "--shape", "n=4096", "--shape", "k=1792",
         "--machine", "h200_nvl2", "--world", "2", "--scheme", "fused", "--set", "tile=128x256x64")  # fmt: skip

MANY = """
operator = "gemm_all_to_all"
preset = "tiny"
protocol = "quick"
[scheme.sequential]
[scheme.decomposed]
pieces = [1, 2, 4, 8]
steps = "all"
[scheme.fused]
slice_tiles = "all"
write = "all"
"""
SEVERAL = """
title = "Four problems"
operator = ["gemm_all_to_all", "gemm_reduce_scatter"]
protocol = "quick"
[shape]
m = [256, 512]
n = 256
k = 256
[scheme.sequential]
[scheme.decomposed]
pieces = [1, 2, 4, 4096]
"""


class Case(NamedTuple):
    """A command, and what of its document is to be found on the terminal."""

    words: tuple[str, ...]
    times: tuple[str, ...]
    """Keys of a row's times that stand on one line."""
    rows: Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]] = lambda rows: rows


def whole(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The measurements that a sweep was asked for: parts and estimates have no row of their own.

    The baseline is timed in every block; the one beside the best is shown.
    """
    measured = [row for row in rows if row["outcome"] == "measurement"]
    first: dict[str, dict[str, Any]] = {}
    for row in (row for same in by_problem(measured).values() for row in leading(same)):
        first.setdefault(row["key"], dict(row))
    return list(first.values())


def fastest(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return whole(rows)[:FEW]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs of one problem, of four, and one that was broken off."""
    made = tmp_path_factory.mktemp("terminal")
    (made / "many.toml").write_text(MANY)
    (made / "several.toml").write_text(SEVERAL)
    sweeps = [("sweep", str(made / f"{name}.toml")) for name in ("several", "many")]
    *_, runs = run_on([Command(words=words) for words in (RUN, (*RUN, "--fresh"), *sweeps, ("runs", "--json"))], made)
    (made / "runs.json").write_text(runs.out)
    return made


@pytest.fixture(scope="module")
def cases(folder: Path) -> dict[str, Case]:
    runs = json.loads((folder / "runs.json").read_text())["rows"]
    first, second = runs[-1]["run"], runs[-2]["run"]
    many, several = str(folder / "many.toml"), str(folder / "several.toml")
    return {
        "runs": Case(("runs", "--all"), ("best_s",), lambda rows: [row for row in rows if row["best_s"]]),
        "compare": Case(("compare", first, second, "--all"), ("first_s", "second_s")),
        "validate": Case(("validate", "--all"), ("measured_s", "estimated_s")),
        "run": Case(RUN, ("time_s",)),
        "run one": Case((*RUN, "--scheme", "fused"), ("time_s",)),
        "run fresh": Case((*RUN, "--fresh"), ("time_s",)),
        "predict": Case(GPUS, ("time_s",)),
        "predict lookups": Case(TABLES, ("time_s",)),
        "recommend": Case(("recommend", "gemm_all_to_all", "--preset", "tiny", "--all"), ("time_s",)),
        "recommend winners": Case((*TUNED, "--all"), ("time_s",)),
        "sweep": Case(("sweep", many), ("time_s",), fastest),
        "sweep all": Case(("sweep", many, "--all"), ("time_s",), whole),
        "sweep several": Case(("sweep", several, "--all"), ("time_s",), whole),
    }


class Printing(dict[Any, Printed]):
    """What commands print, by command and width: of all at once, or of each command when a test first looks."""

    def __init__(self, commands: Mapping[Any, Command], folder: Path, known: Mapping[Any, Printed] | None) -> None:
        super().__init__(known or {})
        self._commands, self._folder = commands, folder
        if known is None:
            self.update(zip(commands, run_on(list(commands.values()), folder), strict=True))

    def __missing__(self, key: Any) -> Printed:
        same = [other for other in self._commands if other[0] == key[0]]  # of one moment: runs become more
        self.update(zip(same, run_on([self._commands[each] for each in same], self._folder), strict=True))
        return self[key]


@pytest.fixture(scope="module")
def known(request: pytest.FixtureRequest, cases: dict[str, Case], folder: Path) -> dict[Any, Printed] | None:
    """With --quick, what its tests look at, by one process; None: all is run at once."""
    if not request.config.getoption("--quick"):
        return None
    commands = {**of_cases(cases), **of_lists(), **of_screens()}
    return dict(zip(QUICK, run_on([commands[each] for each in QUICK], folder), strict=True))


def of_cases(cases: dict[str, Case]) -> dict[Any, Command]:
    """By name and width; a width of "json": the document."""
    commands: dict[Any, Command] = {}
    commands |= {(name, "json"): Command(words=(*case.words, "--json")) for name, case in cases.items()}
    commands |= {(name, width): Command(words=case.words, columns=width) for name, case in cases.items()
                 for width in WIDTHS}  # fmt: skip
    return commands


@pytest.fixture(scope="module")
def printed(cases: dict[str, Case], folder: Path, known: dict[Any, Printed] | None) -> dict[tuple[str, Any], Printed]:
    return Printing(of_cases(cases), folder, known)


NAMES = ("runs", "compare", "validate", "run", "run one", "run fresh", "predict", "predict lookups", "recommend",
         "recommend winners", "sweep", "sweep all", "sweep several")  # fmt: skip


def rows_of(printed: Printed) -> list[dict[str, Any]]:
    document = json.loads(printed.out)
    return list(document.get("rows", [document]))


def holds(line: str, text: str) -> bool:
    """Whether *text* stands whole in *line*, as no part of another number or word."""
    return re.search(rf"(?<![\w.]){re.escape(text)}(?![\w.])", line) is not None


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_time_stands_whole_on_its_line(
    name: str, width: int | None, printed: dict[tuple[str, Any], Printed], cases: dict[str, Case]
) -> None:
    shown, case = printed[name, width], cases[name]
    assert shown.status == 0, shown.err
    rows = case.rows(rows_of(printed[name, "json"]))
    assert rows
    for row in rows:
        texts = [*(seconds_text(row[key]) for key in case.times), row["scheme"]]
        lines = [line for line in shown.lines if all(holds(line, text) for text in texts)]
        assert lines, f"{texts} in\n{shown.out}"


@pytest.mark.slow(keeps=6)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_lines_fit_and_no_number_is_parted(
    name: str, width: int | None, printed: dict[tuple[str, Any], Printed]
) -> None:
    shown = printed[name, width]
    assert max(map(cell_len, shown.lines)) <= (width or 10_000), shown.out
    assert not re.search(r"\d…", shown.out), "a number is cut"
    assert not re.search(r"\d\n\s*(?:[nµm]?s|[kMGT]?B/s|x)\b", shown.out), "a number is parted from its unit"
    assert not any(line != line.rstrip() for line in shown.lines), "blanks at the end"
    if width is None:
        assert "…" not in shown.out, "a pipe has room for everything"


@pytest.mark.parametrize("name", ["run", "predict", "sweep", "sweep several", "compare"])
def test_what_all_rows_share_stands_once(name: str, printed: dict[tuple[str, Any], Printed]) -> None:
    shown = printed[name, 80].out
    for row in rows_of(printed[name, "json"])[:1]:
        title = f"{operator_title(row['operator'])} ({row['operator']})"
        assert shown.count(title) == (2 if name == "sweep several" else 1)
        assert shown.count(f"{row['dtype']}, {row['world']} ranks") == 1
    tables = [line for line in shown.splitlines() if line.endswith(" schedule")]
    assert len(tables) == (4 if name == "sweep several" else 1)


def test_a_ratio_names_its_baseline_and_a_time_its_source(printed: dict[tuple[str, Any], Printed]) -> None:
    fresh, known, guessed = (printed[name, 80].out for name in ("run fresh", "run", "predict"))
    for shown in (fresh, known, guessed):
        assert re.search(r"of the +speed-up over\n.* floor +sequential +", shown)
    assert "● measured  ○ estimated" in fresh
    assert "■ recorded  ○ estimated" in known
    assert "○ estimated" in guessed
    assert "● measured" not in guessed
    assert "second /" in printed["compare", 80].out
    assert re.match(r"Of \d+ schedules in the second run: ", printed["compare", 80].lines[0])


def test_the_fastest_stand_first(printed: dict[tuple[str, Any], Printed]) -> None:
    rows = fastest(rows_of(printed["sweep", "json"]))
    shown = printed["sweep", 80].lines
    places = [next(number for number, line in enumerate(shown) if holds(line, seconds_text(row["time_s"])))
              for row in rows]  # fmt: skip
    assert places == sorted(places)


def test_a_sweep_says_how_many_more_there_are(printed: dict[tuple[str, Any], Printed]) -> None:
    count = len(whole(rows_of(printed["sweep", "json"])))
    assert f"and {count - FEW} more: --all prints them" in printed["sweep", 80].lines
    assert "more: --all" not in printed["sweep all", 80].out


def test_ratios_of_several_blocks_say_what_they_are_to(printed: dict[tuple[str, Any], Printed]) -> None:
    blocks = {row["block"] for row in whole(rows_of(printed["sweep", "json"]))}
    assert len(blocks) > 1
    assert "Each speed-up is over the best sequential schedule of its own block" in " ".join(
        printed["sweep", 80].out.split()
    )
    assert "own block" not in printed["run", 80].out


def test_problems_are_never_ranked_together(printed: dict[tuple[str, Any], Printed]) -> None:
    summary = json.loads(printed["sweep several", "json"].out)["summary"]
    assert summary["best"] is None
    rows = whole(rows_of(printed["sweep several", "json"]))
    shapes = {json.dumps([row["operator"], row["shape"]]) for row in rows}
    assert len(summary["bests"]) == len(shapes) == 4
    parts = printed["sweep several", 80].out.split("\n\n")[1:5]
    assert [part.count("speed-up") for part in parts] == [1] * 4
    for best, part in zip(summary["bests"], parts, strict=True):
        first = next(line for line in part.splitlines() if re.match(r" *\d", line))
        assert holds(first, seconds_text(best["time_s"]))


def test_failures_are_sentences_between_whose_words_lines_end(printed: dict[tuple[str, Any], Printed]) -> None:
    failed = [row for row in rows_of(printed["sweep several", "json"]) if row["outcome"] == "failure"]
    assert failed
    for width in (60, 80):
        text = " ".join(printed["sweep several", width].out.split())
        assert all(row["message"] in text for row in failed)


@pytest.mark.slow
def test_what_cannot_be_asked_is_said_in_lines_that_fit(folder: Path) -> None:
    words = (*RUN, "--scheme", "decomposed", "--set", "pieces=4096")
    wide, narrow = run_on([Command(words=words), Command(words=words, columns=60)], folder)
    assert (wide.status, narrow.status) == (2, 2)
    assert wide.err.count("\n") == 1
    assert max(map(len, narrow.err.splitlines())) <= 60
    assert " ".join(narrow.err.split()) == wide.err.strip()


CALIBRATED = shipped_machine("h200_nvl2")
"""What `calibrate` answers there."""
LISTS: dict[str, Sequence[str]] = {
    "operators": list(OPERATORS),
    "schemes": list(SCHEMES),
    "machines": machine_names(),
    "presets": [preset.name for preset in presets()],
    "cluster status": [str(worker["name"]) for worker in WORKERS],
    "benchmark": ["21.4 ms", "5.05e+05 points/s", "0.56"],
    "calibrate": [
        *(seconds_text(getattr(CALIBRATED.costs, f"{name}_seconds")) for name in ("launch", "signal")),
        "rate.gather",
        "collective.all_reduce",
    ],
    "doctor": [*(str(place["place"]) for place in PLACES), *(str(p["address"]) for p in PLACES if "address" in p)],
}


def of_lists() -> dict[Any, Command]:
    return {(name, width): Command(words=tuple(name.split()), columns=width) for name in LISTS for width in WIDTHS}


@pytest.fixture(scope="module")
def lists(folder: Path, known: dict[Any, Printed] | None) -> dict[tuple[str, int | None], Printed]:
    return Printing(of_lists(), folder, known)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LISTS)
def test_lists_hold_every_name_whole(
    name: str, width: int | None, lists: dict[tuple[str, int | None], Printed]
) -> None:
    shown = lists[name, width]
    assert shown.status == 0, shown.err
    for entry in LISTS[name]:
        assert any(holds(line, entry) for line in shown.lines), f"{entry} in\n{shown.out}"
    too_long = [line for line in shown.lines if cell_len(line) > (width or 10_000)]
    assert all(max(map(len, line.split())) > LONG for line in too_long), too_long


def test_operators_of_presets_are_not_parted(lists: dict[tuple[str, int | None], Printed]) -> None:
    text = set(re.findall(r"\w+", lists["presets", 60].out))
    assert {entry.operator for preset in presets() for entry in preset.entries} <= text


def test_runs_say_what_was_run_and_how_fast_on_one_line_each(
    printed: dict[tuple[str, Any], Printed],
) -> None:
    rows = rows_of(printed["runs", "json"])
    for row in rows:
        line = next(line for line in printed["runs", 80].lines if row["run"] in line)
        assert holds(line, str(row["schedules"]))
        if len(row["problems"]) == 1:
            assert "64x64x64 GEMM -> all-to-all" in line
            assert row["scheme"] in line
        else:
            assert f"{len(row['problems'])} problems" in line
            assert row["best_s"] is None
            assert {problem["operator"] for problem in row["problems"]} == {"gemm_all_to_all", "gemm_reduce_scatter"}
    assert {len(row["problems"]) for row in rows} == {1, 4}


@pytest.mark.parametrize(
    "words", ["8 of 8 schedules, about a second left", str(WaitReport(2, 12.0, "1 request is before; " * 3, 600.0))]
)
def test_progress_goes_on_below_where_a_terminal_ends_and_keeps_its_time(words: str) -> None:
    console = Console(file=StringIO(), width=80)
    with Progress(*bar_columns(), console=console, disable=True) as bar:
        bar.add_task("run", total=1.0, text=words)
        console.print(bar.get_renderable())
    shown = console.file.getvalue()
    assert "0:00:00" in shown
    assert "…" not in shown
    said = re.sub(r"[⠋━╸╺]|-:--:--|0:00:00", "", shown)
    assert " ".join(said.split()) == " ".join(words.split())


# The examples of README and of docs/cli.md are what the commands print.


@pytest.mark.slow
def test_examples_are_what_a_terminal_of_100_columns_prints() -> None:
    known = list(examples().values())
    for stated, shown in zip(known, readme_printed(known), strict=True):
        assert stated == shown, "`python -m tests.cli.readme_examples` writes them"
        assert max(map(len, shown.splitlines()[1:])) <= COLUMNS


# The answer is the first line, and a screen holds what follows; `--all` and a pipe have the rest.

SPACE = ("validate", "--recording", "h200_nvl2_gemm")
CLAIMS = ("claims",)
ANSWERS = {
    ("validate",): r"\d+ trials.*: median error",
    SPACE: r"156 trials, 57 of them a part timed alone: median error",
    (*SPACE, "--machine", "h200_nvl4"): r"156 trials, 57 of them a part timed alone: median error",
    ("runs",): r"\d+ runs, the newest first",
    ("recommend", "gemm_all_to_all", "--preset", "tiny"): r"Take \w+: ",
    # some computers have the processor of a recording
    ("recommend", "gemm_all_to_all", "--preset", "laptop_overlap"): r"(Not known: laptop_cpu is not calib|Take \w+: )",
    CLAIMS: r"Of 18 published results, 16 have the same sign as ours",
    ("cache", "gemm_all_to_all", "--preset", "laptop_overlap"): r"[\d.]+% hit in L2 and 15.7 MB of DRAM move",
    ("cache", "gemm_all_to_all", "--preset", "laptop_overlap", "--l2-sweep"): r"From 8 MiB of L2 to 256 MiB, ",
    ("cache", "gemm_all_to_all", "--shape", "m=128", "--shape", "n=128", "--shape", "k=128", "--policies", "all"):
        r"\w+ takes the fewest cycles of \d+ policies, ",
    ("cache", "--workloads", "FwPool", "--workloads", "BwPool"): r"All optimisations together are within 2 % ",
}  # fmt: skip
"""The words of a command, and how its first line begins."""


def of_screens() -> dict[Any, Command]:
    """By words, with their width, None for `--all` on a terminal of 80 columns, or "pipe"."""
    commands: dict[Any, Command] = {}
    commands |= {(words, columns): Command(words=words, columns=columns) for words in ANSWERS for columns in (80, 100)}
    commands |= {(words, None): Command(words=(*words, "--all"), columns=80) for words in ANSWERS}
    return commands | {(words, "pipe"): Command(words=words) for words in (SPACE, CLAIMS)}


@pytest.fixture(scope="module")
def screens(folder: Path, known: dict[Any, Printed] | None) -> dict[tuple[tuple[str, ...], Any], Printed]:
    return Printing(of_screens(), folder, known)


QUICK: tuple[Any, ...] = (
    *((name, width) for name in ("runs", "compare") for width in ("json", *WIDTHS)),
    *((name, width) for name in ("run", "predict", "sweep", "sweep several") for width in ("json", 80)),
    ("run fresh", 80), ("sweep all", 80), ("sweep several", 60), ("presets", 60), (SPACE, 80), (SPACE, "pipe"),
)  # fmt: skip
"""What tests look at that `make test` runs; what is missing here takes a process more."""


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_the_answer_comes_first_and_a_screen_holds_it_all(
    words: tuple[str, ...], columns: int, screens: dict[tuple[tuple[str, ...], Any], Printed]
) -> None:
    shown, whole = screens[words, columns], screens[words, None]
    assert shown.status == 0, shown.err
    assert re.match(ANSWERS[words], shown.lines[0]), shown.out
    assert len(shown.lines) + shown.err.count("\n") <= 24, shown.out + shown.err
    assert max(map(cell_len, shown.lines)) <= columns
    assert not re.search(r"\d…", shown.out), "a number is cut"
    assert len(whole.lines) >= len(shown.lines)
    kept_back = re.fullmatch(r"and ([\d,]+) more lines: --all prints them", shown.lines[-1])
    assert (kept_back is None) or len(whole.lines) > len(shown.lines)
    last = shown.lines[-2 if kept_back else -1]
    assert last.strip()
    assert not last.endswith(":"), "it introduces nothing"


def test_progress_is_one_line_of_a_terminal_and_gone_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    err = StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    say_progress("1 of 2 replays have ended.")
    assert err.getvalue() == "1 of 2 replays have ended.\n", "a log has all lines"
    monkeypatch.setattr(err, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    err.truncate(0)
    say_progress("1 of 2 replays have ended.")
    say_progress("2 of 2 replays have ended.")
    end_progress()
    assert "\n" not in err.getvalue()
    assert err.getvalue().endswith("\r\x1b[K")


def test_what_a_screen_keeps_back_goes_into_a_pipe(screens: dict[tuple[tuple[str, ...], Any], Printed]) -> None:
    assert screens[SPACE, 80].lines[-1].endswith(" more lines: --all prints them")
    assert len(screens[SPACE, "pipe"].lines) > 24 >= len(screens[SPACE, 80].lines)


@pytest.mark.slow
def test_claims_go_into_a_pipe_whole(screens: dict[tuple[tuple[str, ...], Any], Printed]) -> None:
    assert len(screens[CLAIMS, "pipe"].lines) > 24
