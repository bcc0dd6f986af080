"""Equal rows are recognised in columns of any type."""

import numpy as np
import pytest

from workbench.simulator import columns

COLUMNS = {
    "counts": np.array([4, 1, 4, 2, 1]), "counts far apart": np.array([10**15, 1, 10**15, -7, 1]),
    "shares": np.array([0.5, 0.25, 0.5, 0.125, 0.25]),
    "words": np.array(["a_longer_word", "b", "a_longer_word", "", "b"]),
    "words that begin alike": np.array(["128x128x64", "128x128x32", "128x128x64", "128x128x", "128x128x32"]),
    "other characters": np.array(["ä", "b", "ä", "€", "b"]), "objects": np.array(["x", 1, "x", 2.5, 1], dtype=object),
    "truths": np.array([True, False, True, True, False]),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_its_kinds(name: str) -> None:
    column = COLUMNS[name]
    kinds = columns.distinct_values(column)
    assert (kinds.values[kinds.which] == column).all()
    assert len(kinds.values) == len(set(column.tolist()))


def test_rows_are_alike_where_all_columns_are() -> None:
    random = np.random.default_rng(0)
    far = random.integers(0, 10**12, 40)
    table = [random.integers(0, 50, 5000), far[random.integers(0, 40, 5000)],
             random.choice(["rotated", "natural"], 5000), random.integers(0, 200, 5000) / 7]  # fmt: skip
    one_of_each, which = columns.distinct_rows([columns.distinct_values(column) for column in table])
    assert len(one_of_each) == len(set(zip(*(column.tolist() for column in table), strict=True)))
    for column in table:
        assert (column[one_of_each][which] == column).all()


def test_groups_hold_every_row_once_in_its_order() -> None:
    words = columns.distinct_values(np.array(["b", "a", "b", "a", "c"]))
    assert sorted(map(list, columns.groups_of_equal_rows([words]))) == [[0, 2], [1, 3], [4]]


def test_choices_repeat_and_measured_sizes_do_not() -> None:
    random = np.random.default_rng(0)
    assert columns.has_repeats(random.choice([64, 128, 256], 100_000))
    assert not columns.has_repeats(random.integers(1, 10**6, 100_000))


@pytest.mark.parametrize("rare", [3, 10**12, "a word that no sample meets"])
def test_a_value_that_no_sample_meets_is_a_kind_of_its_own(rare: int | str) -> None:
    usual = [2, 5 * 10**11, "b"][[3, 10**12, "a word that no sample meets"].index(rare)]
    column = np.array([usual] * 5000)
    column = column.astype(np.array([usual, rare]).dtype)
    column[1] = rare
    kinds = columns.distinct_values(column)
    assert (kinds.values[kinds.which] == column).all()
    assert len(kinds.values) == 2


def test_many_values_and_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    far = random.choice(random.integers(0, 2**60, 200), 5000)
    assert len(columns.distinct_values(far).values) == len(set(far.tolist()))
    words = np.array([f"{number:x}" for number in far])
    assert len(columns.distinct_values(words).values) == len(set(far.tolist()))
    monkeypatch.setattr(columns, "_hashed", lambda column: np.zeros(len(column), dtype=np.int64))
    assert len(columns.distinct_values(words).values) == len(set(far.tolist()))
