"""What gives way where a terminal is narrow, and in which order."""

import sys
import time

import pytest

from workbench.cli import history, output
from workbench.cli.output import (
    Axes,
    TableColumn,
    cut,
    few,
    shape_in_short,
    show_failures,
    show_outcomes,
    show_table,
    wrapped,
)
from workbench.results.rows import alike_tiles


def test_cut_texts_keep_numbers_whole_or_not_at_all() -> None:
    text = "decomposed pieces=16, steps=uniform, tile=256x512x768"
    for columns in range(3, len(text)):
        found = cut(text, columns)
        assert len(found) <= columns
        assert found.endswith("…")
        words = found[:-1].split(" ")
        assert set(words[1:-1]) <= {*text.split(" ")}
        assert words[-1] in {*text.split(" "), ""} or words[-1].startswith("steps=") or len(words) == 1
    assert cut(text, 30) == "decomposed pieces=16, steps=u…"
    assert cut(text, len(text)) == text
    assert cut("4096x1024x768 GEMM -> all-to-all", 25) == "4096x1024x768 GEMM -> al…"
    assert cut("16x100000x128x4096x16 uniform", 12) == "…"


def test_sentences_end_their_lines_between_words_and_never_between_number_and_unit() -> None:
    sentence = "The link was set to 207 MB/s and 4 ranks took 12.5 ms, which is 30 % more than before."
    for columns in range(12, 90):
        lines = wrapped(sentence, columns).splitlines()
        assert max(map(len, lines)) <= columns
        assert " ".join(line.strip() for line in lines) == sentence
        assert not any(line.endswith(("207", "12.5", "30", " 4")) for line in lines)
    assert wrapped(sentence, None) == sentence


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: int,
          table: list[TableColumn]) -> list[str]:  # fmt: skip
    monkeypatch.setattr(output, "width", lambda stream: room)
    show_table(table)
    return capsys.readouterr().out.splitlines()


def test_optional_columns_go_before_words_and_numbers_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [TableColumn("time", ["1.25 ms"], "number"), TableColumn("skew", ["146 µs"], "number", goes_below=20),
             TableColumn("schedule", ["fused slice_tiles=4, write=zero_copy"], "cut")]  # fmt: skip
    wide, narrow, tiny = (shown(monkeypatch, capsys, room, table) for room in (80, 31, 12))
    assert wide == ["   time    skew  schedule", "1.25 ms  146 µs  fused slice_tiles=4, write=zero_copy"]
    assert narrow == ["   time  schedule", "1.25 ms  fused slice_tiles=4, …"]
    assert "1.25 ms" in tiny[1]


def test_a_list_whose_words_would_be_narrow_becomes_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "every rank computes its share and sends it to all others"
    table = [
        TableColumn("name", ["one"], "name"),
        TableColumn("ranks", [8], "number", inline="{} ranks"),
        TableColumn("idea", [f"{words}."]),
        TableColumn("where", [None]),
        TableColumn("more", [words]),
    ]
    assert shown(monkeypatch, capsys, 200, table)[1] == f"one       8  {words}.  {words}"
    assert " ".join("\n".join(shown(monkeypatch, capsys, 60, table)).split()) == (
        f"name one 8 ranks; {words}; {words}")  # fmt: skip


def row(source: str = "measured", time_s: float = 1e-3, **values: object) -> dict[str, object]:
    axes = {"tile": "8x8x8", "pieces": values.pop("pieces", 1)}
    return {"outcome": "measurement", "source": source, "key": f"{axes}", "operator": "gemm_all_to_all",
            "shape": {"m": 64, "n": 32, "k": 16}, "dtype": "float32", "world": 2, "scheme": "decomposed", "axes": axes,
            "backend": "cpu", "machine": "laptop_cpu", "fabric": "shared_memory", "protocol": "quick", "part": "whole",
            "time_s": time_s, "calibrated": None, "floor_s": 1e-3, "sequential_s": 2e-3, "correct": True,
            "skew_s": 1e-6, "stage": None, "message": None} | values  # fmt: skip


def test_times_of_two_sources_carry_their_signs(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcomes([row(time_s=1e-3, pieces=1), row("recorded", 2e-3, pieces=2)])  # type: ignore[list-item]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:10] for line in lines[-4:]] == ["● measured", "■ recorded", "    ● 1 ms", "    ■ 2 ms"]


def test_what_was_only_estimated_stands_behind_what_was_timed_and_has_no_ratio(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guess = row("estimated", 1e-4, pieces=2, outcome="estimate", calibrated=False, correct=None, skew_s=None)
    show_outcomes([row(), guess])  # type: ignore[list-item]
    timed, guessed = capsys.readouterr().out.splitlines()[-2:]
    assert "1.00x" in timed
    assert ("100 µs" in guessed, " x " in guessed) == (True, False)


def test_a_result_that_was_not_verified_is_not_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcomes([row(), row(pieces=2, correct=None)])  # type: ignore[list-item]
    out = capsys.readouterr().out
    assert "verified" not in out
    assert "correct" in out


def test_a_reason_that_several_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed = [row(outcome="failure", time_s=None, stage="refused", message="pieces are too many.", pieces=pieces)
              for pieces in range(40)]  # fmt: skip
    several = [row(outcome="failure", time_s=None, stage="wrong", message=f"Reason {number}.", pieces=number)
               for number in range(14)]  # fmt: skip
    stopped = row(outcome="failure", time_s=None, stage="cancelled", message="stopped")
    show_failures([*failed, *several, stopped])  # type: ignore[list-item]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["14 failed, 40 refused", "40 schedules (refused): pieces are too many."]
    assert lines[-1] == "and 5 more: --all prints them"


def test_axes_are_said_where_they_hold() -> None:
    rows = [{"scheme": "sequential", "axes": {"tile": 8, "collective": "direct"}},
            {"scheme": "fused", "axes": {"tile": 8, "grid": 0, "write": "staged"}},
            {"scheme": "fused", "axes": {"tile": 8, "grid": 0, "write": "zero_copy"}}]  # fmt: skip
    axes = Axes.of(rows)
    assert axes.lines() == ["all schedules: tile=8", "all fused: grid=0"]
    assert [axes.label(each) for each in rows] == ["sequential collective=direct", "fused write=staged",
                                                  "fused write=zero_copy"]  # fmt: skip
    alone = Axes.of(rows[:1])
    assert (alone.lines(), alone.label(rows[0])) == (["its axes: tile=8, collective=direct"], "sequential")


def test_an_axis_with_one_choice_is_not_named() -> None:
    """CPU ranks that share memory have one transport, and those on emulated hosts have two: there it is named."""
    axes = {"tile": "64x64x64", "transport": "peer"}
    here = row(scheme="fused", axes=axes, shape={"m": 512, "n": 512, "k": 512}, dtype="float32", machine="laptop_cpu",
               backend="cpu")  # fmt: skip
    labels = {fabric: Axes.of([]).label({**here, "fabric": fabric}) for fabric in ("shared_memory", "emulated:hosts=2")}
    assert labels["shared_memory"] == "fused tile=64x64x64"
    assert labels["emulated:hosts=2"] == "fused tile=64x64x64, transport=peer"
    assert Axes.of([{**here, "fabric": "shared_memory"}]).lines() == ["its axes: tile=64x64x64"]
    other = {**here, "fabric": "shared_memory", "axes": {**axes, "transport": "gin"}}
    assert Axes.of([]).label(other).endswith("transport=gin"), "what is not the one choice is named"
    assert Axes.of([]).label({**here, "machine": "of a friend"}).endswith("transport=peer"), "its choices are not known"


def test_texts_that_would_be_cut_where_they_are_still_alike_stand_there_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "width", lambda stream: 40)
    texts = ["fused GEMM, some hundred words and store=tma", "fused GEMM, some hundred words and store=registers",
             "decomposed GEMM, and so many more words behind"]  # fmt: skip
    show_table([TableColumn("time", ["1 s", "2 s", "3 s"], "number"), TableColumn("schedule", texts, "cut")])
    out = capsys.readouterr().out
    assert all(text in " ".join(out.split()) for text in ("and store=tma", "and store=registers"))
    assert "more words" not in out
    assert out.count("…") == 1
    assert max(map(len, out.splitlines())) <= 40


def test_a_command_that_is_longer_than_a_line_goes_on_behind_a_backslash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is copied from the terminal is the same command."""
    words = "workbench predict-step dlrm --machine h200_ib --world 1024 --dense-scale 1 --dense-scale 4"
    monkeypatch.setattr(output, "width", lambda stream: 40)
    output.show_command(words)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    last_words = [line.removesuffix(" \\").split()[-1] for line in out.splitlines()]
    assert [word for word in last_words if word.startswith("--")] == [], "an option stays with its value"
    assert out.replace("\\\n", " ").split() == words.split()
    monkeypatch.setattr(output, "width", lambda stream: None)
    output.show_command(words)
    assert capsys.readouterr().out == f"  {words}\n"


def test_many_problems_have_short_tables() -> None:
    assert [few(count) for count in (1, 2, 3, 5, 10, 100)] == [10, 10, 10, 6, 3, 3]


def test_shapes_in_short_keep_words_behind() -> None:
    assert shape_in_short({"tables": 16, "dim": 128, "indices": "uniform"}) == "16x128 uniform"
    assert shape_in_short({"m": 4}) == "4"


def test_what_takes_long_says_at_once_what_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with output.said_if_slow("Reading all of it."):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "SLOW_S", 0.0)
    with output.said_if_slow("Reading all of it."):
        deadline = time.monotonic() + 10
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said == "Reading all of it.\n"


def test_a_terminal_forgets_what_took_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(output, "SLOW_S", 0.0)
    with output.said_if_slow("Reading all of it."):
        deadline = time.monotonic() + 10
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (said, capsys.readouterr().err) == ("\rReading all of it.\x1b[K", "\r\x1b[K")


# A screen of the output.


def test_a_screen_ends_with_whole_rows_and_says_how_many_lines_are_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "width", lambda stream: 80)
    with output.one_screen(False, ["One remark."]):
        for number in range(20):
            output.show_text(f"Line {number}.")
        print()
        output.show_text("By kind:")
        show_table([TableColumn("a\nheading", ["one", "two"], "name")])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-2:] == ["Line 19.", "and 6 more lines: --all prints them"]
    assert shown.err == "One remark.\n"
    with output.one_screen(False):
        print("\n".join(["a line"] * 23))
        print("the last line")
    assert capsys.readouterr().out.endswith("the last line\n"), "no sentence replaces a single line"
    with output.one_screen(True):
        print("\n" * 50)
    assert "more lines" not in capsys.readouterr().out


def test_links_that_differ_are_named_in_short_where_that_tells_them_apart() -> None:
    first, second = (f"emulated:wire_to_compute=1,bandwidth_bytes_per_second={rate},latency_seconds=0.0001"
                     for rate in ("1e8", "2e8"))  # fmt: skip
    assert history._in_short("fabric", first, second) == (
        "emulated link, wire:compute 1, 100 MB/s", "emulated link, wire:compute 1, 200 MB/s")  # fmt: skip
    later = first.replace("0.0001", "0.0002")
    assert history._in_short("fabric", first, later) == (first, later), "alike in short: the whole texts"
    assert history._in_short("host", "a", "b") == ("a", "b")


def test_tiles_that_are_larger_than_the_problem_are_called_one_schedule() -> None:
    def of(size: str, **more: object) -> dict[str, object]:
        return {
            "operator": "gemm_all_to_all",
            "shape": {"m": 64, "n": 64, "k": 64},
            "dtype": "float32",
            "world": 2,
            "backend": "cpu",
            "scheme": "sequential",
            "axes": {"tile": size, "collective": "direct"},
            **more,
        }

    sentence = "Tiles 128x128x64 and 32x64x64 are one schedule here: a tile ends with its rank's chunk, 32x64x64."
    assert alike_tiles([of("32x64x64"), of("128x128x64"), of("16x64x64")]) == sentence
    assert alike_tiles([of("32x64x64"), of("16x64x64"), of("128x128x64", part="compute")]) == ""
    assert alike_tiles([of("32x64x64", backend="triton"), of("128x128x64", backend="triton")]) == ""
    fused = [of(size, scheme="fused", axes={"tile": size, "slice_tiles": 1}) for size in ("32x64x64", "64x64x64")]
    assert alike_tiles(fused).startswith("Tiles 32x64x64 and 64x64x64 are one schedule here")
