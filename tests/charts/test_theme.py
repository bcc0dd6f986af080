"""The colours can be told apart by everybody, on light and on dark, and nothing happens until the theme is enabled."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations

import altair as alt
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from kernels.schemes import SCHEMES
from workbench.charts import theme
from workbench.charts.theme import INKS, LOSS_COLOURS, SCHEME_COLOURS, SOURCE_LOOKS, SPAN_COLOURS, Mode

Triple = NDArray[np.float64]

TABLES = {"schemes": SCHEME_COLOURS, "spans": SPAN_COLOURS, "losses": LOSS_COLOURS}
BACKGROUNDS = [INKS[Mode.LIGHT].page, INKS[Mode.DARK].page, "#111111"]
"""The last is JupyterLab's darkest, behind a cell's output."""

# How the linear red, green and blue of a screen look without one kind of cone (Machado, Oliveira, Fernandes 2009)
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> Triple:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As the accessibility guidelines (WCAG 2) define it."""
    dark, light = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, sight: Triple) -> Triple:
    """CIE L*a*b*, in which distance is difference as seen."""
    x, y, z = np.cbrt(XYZ @ np.clip(sight @ linear(colour), 1e-3, 1) / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.fixture(autouse=True)
def theme_as_before() -> Iterator[None]:
    before = alt.theme.active
    yield
    alt.theme.enable(before)


@pytest.mark.parametrize("table", TABLES)
def test_every_colour_stands_out_on_light_and_on_dark(table: str) -> None:
    for name, colour in TABLES[table].items():
        for background in BACKGROUNDS:
            assert contrast(colour, background) >= 3, f"{name} {colour} on {background}"


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("sight", SIGHT)
def test_two_colours_of_a_table_differ_for_everybody(table: str, sight: str) -> None:
    for (one, first), (other, second) in combinations(TABLES[table].items(), 2):
        difference = float(np.linalg.norm(lab(first, SIGHT[sight]) - lab(second, SIGHT[sight])))
        assert difference >= 20, f"{one} {first} and {other} {second} look alike with {sight}"


@pytest.mark.parametrize("mode", Mode)
def test_words_and_numbers_can_be_read(mode: Mode) -> None:
    ink = INKS[mode]
    assert contrast(ink.text, ink.page) >= 7
    assert contrast(ink.faint, ink.page) >= 4.5


def test_a_drawn_chart_has_the_ink_of_the_dark_theme_on_a_dark_page_and_data_keep_their_colours() -> None:
    rules, light, dark = theme.dark_page_rules(), INKS[Mode.LIGHT], INKS[Mode.DARK]
    for role in ("text", "faint", "grid", "page"):
        assert f'[fill="{getattr(light, role)}"]{{fill:{getattr(dark, role)}}}' in rules
        assert f'[stroke="{getattr(light, role)}"]{{stroke:{getattr(dark, role)}}}' in rules
    assert not [colour for table in TABLES.values() for colour in table.values() if colour in rules]


def test_every_scheme_has_a_colour() -> None:
    assert SCHEME_COLOURS.keys() == SCHEMES.keys()


def test_no_two_sources_look_the_same() -> None:
    assert len({(look.shape, look.filled) for look in SOURCE_LOOKS.values()}) == len(SOURCE_LOOKS)
    assert len({look.dash for look in SOURCE_LOOKS.values()}) == len(SOURCE_LOOKS)


@pytest.mark.slow
def test_importing_the_theme_enables_nothing() -> None:
    program = "import altair as alt, workbench.charts.theme; print(alt.theme.active)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert shown.stdout.strip() == "default"


@pytest.mark.parametrize("mode", Mode)
def test_an_enabled_theme_is_in_every_chart(mode: Mode) -> None:
    theme.enable(mode)
    spec = alt.Chart(alt.NamedData("rows")).mark_point().to_dict()
    assert spec["config"]["title"]["color"] == INKS[mode].text
    assert alt.theme.active == "workbench"


def test_only_ink_depends_on_the_mode() -> None:
    def without_ink(value: object) -> object:
        if isinstance(value, dict):
            return {
                key: without_ink(item) for key, item in value.items() if not key.lower().endswith(("color", "stroke"))
            }
        return value

    assert without_ink(theme.config(Mode.LIGHT)) == without_ink(theme.config(Mode.DARK))


def test_channels_map_each_name_to_its_look() -> None:
    chart = alt.Chart(pd.DataFrame({"scheme": ["fused"], "source": ["estimated"]})).mark_point()
    encoding = chart.encode(
        theme.scheme_colour(channel=alt.Stroke, title="Scheme"),
        theme.scheme_colour(channel=alt.Fill),
        theme.source_dash(),
    ).to_dict()["encoding"]
    looks = {
        channel: dict(zip(at["scale"]["domain"], map(str, at["scale"]["range"]), strict=True))
        for channel, at in encoding.items()
    }
    assert looks["stroke"] == looks["fill"] == SCHEME_COLOURS
    assert encoding["stroke"]["title"] == "Scheme"
    assert looks["strokeDash"] == {
        "measured": "[1, 0]",
        "recorded": "[8, 2]",
        "estimated": "[4, 3]",
        "published": "[1, 3]",
    }
