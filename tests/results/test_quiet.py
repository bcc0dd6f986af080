"""One sentence on a busy computer, and which of two timings of a trial counts."""

from __future__ import annotations

from typing import Any

from cluster.cpu_use import HostUse
from workbench.results import quiet
from workbench.results.metrics import same_compute


def row(block: str, share: float | None, key: str = "k", scheme: str = "fused") -> dict[str, Any]:
    others = None if share is None else f"{2 * share:.1f} of 2 cores, mostly other programs"
    return {"run": "r", "key": key, "scheme": scheme, "block": block, "others_share": share, "others": others}


def test_nothing_is_said_of_a_quiet_computer_or_where_nobody_read() -> None:
    assert quiet.busy_sentence([row("1", 0.02), row("1", None)]) == ""
    assert quiet.busy_host_sentence([HostUse("h", 2.0, 0.1)]) == ""


def test_the_sentence_names_who_used_most_and_how_much_of_what() -> None:
    sentence = quiet.busy_sentence([row("1", 0.2), row("1", 0.65, "other")])
    assert sentence == (
        "Others used the cores meanwhile (1.3 of 2 cores, mostly other programs): these times are not trustworthy."
    )
    now = quiet.busy_host_sentence([HostUse("h", 2.0, 1.3, {"another gang": 1.0, "other programs": 0.3})])
    assert now.startswith("This computer is busy: others use 1.3 of 2 cores, mostly another gang.")


def test_of_two_timings_of_a_trial_the_quieter_counts() -> None:
    rows = [row("1", 0.6), row("2", 0.01), row("1", 0.5, "other")]
    assert quiet.busy_sentence(rows[:2]) == "", "it was timed again on a quiet computer"
    assert "1.0 of 2 cores" in quiet.busy_sentence(rows)
    assert quiet.least_disturbed(rows) == [rows[1], rows[2]]
    assert quiet.least_disturbed([row("1", 0.3), row("2", 0.6)]) == [row("1", 0.3)]


def test_the_share_is_that_of_the_times_that_are_shown_whatever_parts_had() -> None:
    """A report had 1.5 of 2 cores and a sentence on the same times 1.2: a part of the shown block was busier."""
    shown, again = row("1", 0.6), row("2", 0.75)
    parts = [{**row("1", 0.9, "p"), "part": "compute"}, {**row("2", 0.7, "p"), "part": "compute"}]
    assert quiet.busy_sentence([shown, again, *parts]) == quiet.busy_sentence([shown, again])
    assert "1.2 of 2 cores" in quiet.busy_sentence([shown, again, *parts])
    calm = row("1", 0.01)
    assert "1.8 of 2 cores" in quiet.busy_sentence([calm, parts[0]]), "a disturbed part alone is named, too"


def test_a_baseline_stays_in_each_block_of_which_a_schedule_stays() -> None:
    """It is one trial in all blocks: where only its quietest timing stayed, the others' schedules had no speed-up."""
    first, again = (
        [row(block, share, "base", "sequential"), row(block, share, "k")] for block, share in (("1", 0.6), ("2", 0.4))
    )
    later = [row("3", 0.01, "base", "sequential"), row("3", 0.01, "other")]
    assert quiet.least_disturbed([*first, *again, *later]) == [*again, *later]


def test_a_disturbed_schedule_keeps_the_baseline_that_it_was_timed_with() -> None:
    """Another block had a quieter baseline: the fastest of three had none left to be compared with."""
    timed = ("1", 0.6, "fused"), ("2", 0.5, "fused"), ("3", 0.3, "decomposed")
    blocks = [[{**row(block, share, key), "scheme": key} for key in ("sequential", other)]
              for block, share, other in timed]  # fmt: skip
    assert quiet.least_disturbed([each for block in blocks for each in block]) == [*blocks[1], *blocks[2]]


def test_of_a_block_that_was_timed_twice_one_stays_whole() -> None:
    """Of one repetition fused was quieter, of the other decomposed: they were "timed in two blocks, not in turns"."""
    shares = {"1": (0.83, 0.80, 0.78), "2": (0.82, 0.79, 0.79)}
    first, second = ([{**row(block, share, key), "scheme": key}
                      for key, share in zip(("sequential", "decomposed", "fused"), each, strict=True)]
                     for block, each in shares.items())  # fmt: skip
    assert quiet.least_disturbed([*first, *second]) == second
    other_run = [{**each, "run": "another"} for each in second]
    assert quiet.least_disturbed([*first, *other_run]) == [*first, *other_run]


def test_one_sentence_stands_with_times_of_ranks_that_share_a_gpu() -> None:
    shared = {**row("1", None), "fabric": "shared_gpu", "source": "measured"}
    assert quiet.caution([shared]) == "Ranks share a GPU: order and results are real, times are not."
    assert quiet.caution([{**shared, "fabric": "nvlink"}]) == ""
    of_hosts = {"model": "NVIDIA H100", "link": "one GPU shared by 2 hosts", "memory_bytes": None, "cores": None}
    between = {**shared, "fabric": "network", "hardware": of_hosts}
    assert quiet.caution([between]) == quiet.caution([shared])
    assert quiet.caution([{**between, "hardware": {**of_hosts, "link": "network"}}]) == ""
    assert quiet.distrust([shared, {**shared, "others_share": 0.5}]) == "ranks share a GPU, so times are not real"


def test_a_computation_beside_others_on_one_gpu_is_none_of_ranks_with_a_gpu_each() -> None:
    compute = {"operator": "gemm_all_to_all", "machine": "h200_nvl2", "protocol": "quick", "part": "compute"}
    shared, apart = {**compute, "fabric": "shared_gpu"}, {**compute, "fabric": "nvlink"}
    assert same_compute(shared) != same_compute(apart)
    assert same_compute(apart) == same_compute({**compute, "fabric": "network"})
