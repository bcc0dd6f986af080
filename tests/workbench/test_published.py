"""Published numbers: every row is whole, only abstracts are verified, and a damaged table is refused with its line."""

from pathlib import Path

import pytest

from kernels.operators import OPERATORS
from workbench.analysis.published import COLUMNS, number, published


def test_every_number_says_paper_version_section_machine_and_baseline() -> None:
    numbers = published()
    assert len({one.id for one in numbers}) == len(numbers) > 30
    assert {one.paper for one in numbers} >= {"arXiv:2305.06942", "arXiv:2512.10236", "arXiv:2606.09200",
                                              "arXiv:1910.00134"}  # fmt: skip
    for one in numbers:
        assert one.row()["source"] == "published"
        assert one.operator in {"", *OPERATORS}
        assert one.verified == (one.section == "abstract"), one.id
        assert bool(one.mark) != one.verified


def test_a_speed_up_and_a_reduction_are_told_in_the_same_share() -> None:
    assert number("R09").reduction == pytest.approx(0.2)
    assert number("R21").reduction == pytest.approx(1 - 1 / 1.6)
    assert number("R40").reduction is None
    assert (number("R09").text, number("R05").text) == ("up to 20 %", "20 % on average")


GOOD = "R1,arXiv:1,v1,abstract,work,scope,,,time_reduction,max,20,percent,library,one node,true"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (GOOD.replace("20,percent", "twenty,percent"), "line 2: its value is 'twenty', and a finite number is needed"),
        (GOOD.replace("20,percent", "nan,percent"), "line 2: its value is 'nan'"),
        (GOOD.replace("percent", "miles"), "line 2: its unit is 'miles', and one of percent, x"),
        (GOOD.replace("true", "perhaps"), "line 2: its verified is 'perhaps'"),
        (GOOD.replace("scope,,", "scope,gemm,"), "line 2: its operator is 'gemm'"),
        (GOOD.replace("one node", ""), "line 2: its machine is empty"),
        (GOOD + ",more", "line 2: it has 16 cells, and 15 are needed"),
        (GOOD + "\n" + GOOD, "line 3: its id R1 is in the table already"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(",".join(COLUMNS) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"published\.csv cannot be read as published numbers") as error:
        published(path)
    assert sentence in str(error.value)


def test_a_table_of_other_columns_is_refused_and_so_is_an_unknown_id(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="its first line has the columns a, b"):
        published(path)
    with pytest.raises(ValueError, match=r"no published number 'R99'\. Accepted: R01, "):
        number("R99")
