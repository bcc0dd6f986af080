"""A notebook as page, PDF and Markdown: harmless HTML is kept, nothing fetches or runs, charts need no kernel."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path, PurePosixPath

import altair as alt
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench.reports.pictures import ALT_TEXT, CHART, PICTURE, bundle, specification
from workbench.reports.render import SCRIPT, WIDGET, browser, clean_html, frozen, markdown, page, pdf, title

# A page read as text: nothing in it can fetch, no name in it can run, every chart is in it twice.

FETCHING = ("src", "srcset", "poster", "data", "action", "background", "formaction")


@pytest.fixture(scope="module")
def parsed() -> Callable[..., BeautifulSoup]:
    return lambda notebook, **options: BeautifulSoup(page(notebook, **options), "html.parser")


def foreign(markup: str) -> NotebookNode:
    """A notebook of somebody who knew nothing of reports."""
    outputs = [
        new_output(
            "display_data", {"text/html": f"<table><tr><td>{markup}</td></tr></table><link href=http://e.org/a>"}
        ),
        new_output("display_data", {"application/javascript": "alert(1)"}),
        new_output("display_data", {"image/svg+xml": f"<svg>{markup}</svg>"}),
        new_output("display_data", {"image/png": "AA==\n"}),
        new_output("display_data", {"text/markdown": f"![p](http://e.org/p.png) {markup}"}),
        new_output("display_data", {"text/latex": f"${markup}$"}),
        new_output("stream", name="stderr", text=markup),
        new_output("error", ename="E", evalue=markup, traceback=[f"\x1b[31m{markup}\x1b[0m"]),
    ]
    text = (
        f"# Title\n\n{markup} ![p](http://e.org/p.png)\n\n<iframe src=http://e.org></iframe>\n\n```mermaid\ngraph\n```"
    )
    metadata = {"widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}}}
    return new_notebook(cells=[new_markdown_cell(text), new_code_cell(markup, outputs=outputs)], metadata=metadata)


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("options", [{}, {"interactive": False}, {"show_code": True}])
@pytest.mark.parametrize("whose", ["ours", "foreign"])
def test_nothing_in_a_page_fetches(
    whose: str, options: dict, report: NotebookNode, markup: str, parsed: Callable[..., BeautifulSoup]
) -> None:
    soup = parsed(report if whose == "ours" else foreign(markup), **options)
    assert not soup.find_all(["link", "iframe", "object", "embed", "base", "form", "audio", "video", "source"])
    loads = {value for tag in soup.find_all() for name, value in tag.attrs.items() if name in FETCHING}
    assert all(value.startswith("data:image/") for value in loads), loads
    styles = " ".join(tag.get_text() for tag in soup.find_all("style")) + " ".join(
        t.get("style", "") for t in soup.find_all()
    )
    assert not re.search(r"@import|url\(", styles)
    assert "default-src 'none'" in soup.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]


@pytest.mark.parametrize("whose", ["ours", "foreign"])
def test_only_our_script_is_in_a_page_and_its_policy_knows_it(
    whose: str, report: NotebookNode, markup: str, parsed: Callable[..., BeautifulSoup]
) -> None:
    soup = parsed(report if whose == "ours" else foreign(markup))
    running = [tag for tag in soup.find_all("script") if tag.get("type") != "application/json"]
    policy = soup.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    hashes = [base64.b64encode(hashlib.sha256(tag.string.encode()).digest()).decode() for tag in running]
    assert re.findall(r"'sha256-(.+?)'", policy) == hashes
    assert "unsafe-eval" not in policy
    assert len(hashes) == (1 if whose == "ours" else 0)
    assert not [name for tag in soup.find_all() for name in tag.attrs if name.startswith("on")]


def test_every_chart_is_a_picture_and_a_specification(
    report: NotebookNode, markup: str, parsed: Callable[..., BeautifulSoup]
) -> None:
    figures = parsed(report).select("figure.wb-chart")
    assert len(figures) == 3
    for figure in figures:
        spec = json.loads(figure.find("script").string)
        assert [entry["host"] for rows in spec["datasets"].values() for entry in rows] == [markup, "other"]
        assert figure.find("img")["alt"] == f"Times on {markup}: bar chart of host over Time (ms), 2 rows"


def test_names_with_markup_are_shown_as_they_are_written(
    report: NotebookNode, markup: str, parsed: Callable[..., BeautifulSoup]
) -> None:
    soup = parsed(report)
    assert soup.title.get_text() == soup.h1.get_text() == f"A run on {markup}"
    assert f"{markup} was asked for. Accepted: fused." in soup.get_text()
    assert soup.find("th", string="Host").find_next("td").get_text() == markup


def test_a_page_for_paper_has_no_script_that_runs(report: NotebookNode, parsed: Callable[..., BeautifulSoup]) -> None:
    soup = parsed(report, interactive=False)
    assert {tag.get("type") for tag in soup.find_all("script")} == {"application/json"}
    assert "script-src 'none'" in soup.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]


def test_code_is_hidden_until_asked_for(parsed: Callable[..., BeautifulSoup]) -> None:
    notebook = new_notebook(cells=[new_code_cell("answer = 41 + 1", outputs=[])])
    assert "41" not in parsed(notebook).get_text()
    assert "answer = 41 + 1" in parsed(notebook, show_code=True).get_text()


@pytest.mark.parametrize("written", [page, lambda notebook: markdown(notebook, "pictures")[0]])
def test_code_that_is_the_lesson_stays(written: Callable[[NotebookNode], str]) -> None:
    lesson = new_code_cell("answer = 41 + 1", metadata={"tags": ["keep-code"]})
    text = BeautifulSoup(written(new_notebook(cells=[lesson, new_code_cell("import os")])), "html.parser").get_text()
    assert "answer = 41 + 1" in text
    assert "import os" not in text


def test_live_controls_that_are_left_out_are_counted(parsed: Callable[..., BeautifulSoup]) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "text/plain": "Button()"}
    soup = parsed(new_notebook(cells=[new_code_cell(outputs=[new_output("display_data", view)])]))
    assert "1 live control of the notebook cannot be part of it" in soup.footer.get_text()


def test_a_page_is_called_by_its_metadata_else_by_its_first_heading() -> None:
    cells = [new_markdown_cell("text\n# Heading\n# Second")]
    assert title(new_notebook(cells=cells)) == "Heading"
    assert title(new_notebook(cells=cells, metadata={"title": "Told"})) == "Told"
    assert title(new_notebook()) == "Report"


def test_a_picture_beside_the_notebook_is_part_of_its_report_and_what_a_link_leads_to_is_not(tmp_path: Path) -> None:
    folder, secret = tmp_path / "notebooks", tmp_path / "secrets" / "key.png"
    for place in (folder / "beside", secret.parent):
        place.mkdir(parents=True)
    for picture in (folder / "own.png", folder / "beside" / "own.png", secret):
        picture.write_bytes(picture.parent.name.encode())
    (folder / "link.png").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    os.mkfifo(folder / "fifo.png")
    names = ("own.png", "beside/own.png", "link.png", "linked/key.png", "fifo.png", "../secrets/key.png", str(secret))
    texts = [f"![p]({name}) <img src='{name}'>" for name in names]
    html = page(new_notebook(cells=[new_markdown_cell("\n\n".join(texts))]), directory=folder)
    shown = {base64.b64decode(data).decode() for data in re.findall(r"data:image/png;base64,([\w+/=]+)", html)}
    assert shown == {"notebooks", "beside"}


# Somebody's HTML: kept where it is harmless, text where it is not.


@pytest.mark.parametrize(
    "harmful",
    [
        "<script>alert(1)</script>",
        "<img src=http://example.org/x.png onerror=alert(1)>",
        "<img onerror=alert(1)>",
        "<iframe src=http://example.org></iframe>",
        "<link rel=stylesheet href=http://example.org/a.css>",
        "<svg onload=alert(1)></svg>",
        "<object data=http://example.org></object>",
        "<form action=http://example.org><button>x</button></form>",
        '<meta http-equiv="refresh" content="0;url=http://example.org">',
    ],
)
def test_what_could_run_or_fetch_shows_as_text(harmful: str) -> None:
    cleaned = BeautifulSoup(clean_html(f"<table><tr><td>{harmful}</td></tr></table>"), "html.parser")
    assert {element.name for element in cleaned.find_all()} <= {"table", "tbody", "tr", "td"}
    assert harmful.split(">", maxsplit=1)[0] in cleaned.get_text()


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,<script>alert(1)</script>"])
def test_a_link_that_would_run_is_no_link(link: str) -> None:
    assert "href" not in BeautifulSoup(clean_html(f'<a href="{link}">x</a>'), "html.parser").a.attrs


def test_tables_styles_of_one_element_and_embedded_pictures_are_kept() -> None:
    kept = '<table class="dataframe"><thead><tr><th style="color: red;">a</th></tr></thead></table>'
    assert clean_html(kept) == kept
    assert 'src="data:image/png;base64,AA=="' in clean_html('<img alt="a" src="data:image/png;base64,AA==">')


def test_a_style_block_goes_and_an_address_in_a_style_too() -> None:
    assert clean_html("<style>@import url(http://example.org/a.css)</style><p>x</p>") == "<p>x</p>"
    assert "example" not in clean_html('<p style="background: url(http://example.org/a.png); color: red">x</p>')


# What of a notebook needs no kernel is kept; charts are found in every form that Altair gives them.

VIEW = {WIDGET: {"model_id": "a", "version_major": 2, "version_minor": 0}, ALT_TEXT: "VBox()"}


def notebook(*outputs: dict) -> NotebookNode:
    return new_notebook(cells=[new_code_cell(outputs=[new_output("display_data", data) for data in outputs])])


def kept(*outputs: dict) -> list[NotebookNode]:
    return [output.data for output in frozen(notebook(*outputs)).cells[0].outputs]


def test_a_bundle_stays_a_bundle(chart: alt.Chart) -> None:
    (data,) = kept(bundle(chart))
    assert set(data) == {CHART, PICTURE, ALT_TEXT}


def test_the_page_that_altair_writes_by_default_becomes_a_bundle(chart: alt.Chart) -> None:
    with alt.renderers.enable("default"):
        (data,) = kept({**chart._repr_mimebundle_(), ALT_TEXT: "alt.Chart(...)"})
    assert data[CHART]["mark"] == {"type": "bar"}
    assert data[ALT_TEXT].startswith("Times on")


@pytest.mark.parametrize("mime", ["application/vnd.vegalite.v5+json", "application/vnd.vegalite.v6.json+json"])
def test_a_chart_without_a_picture_gets_one(chart: alt.Chart, mime: str) -> None:
    (data,) = kept({mime: specification(chart)})
    assert (PICTURE in data) is mime.endswith("v5+json")


def test_a_chart_that_cannot_be_drawn_becomes_its_sentence() -> None:
    (data,) = kept({CHART: {"data": {"url": "https://example.org/a.csv"}, "mark": "bar"}})
    assert set(data) == {ALT_TEXT}
    assert "example.org/a.csv" in data[ALT_TEXT]


def test_live_widgets_are_counted_and_gone() -> None:
    live = notebook(VIEW, {SCRIPT: "alert(1)", ALT_TEXT: "<Javascript>"}, {ALT_TEXT: "3"})
    live.metadata["widgets"] = {"state": {}}
    still = frozen(live)
    assert [output.data for output in still.cells[0].outputs] == [{ALT_TEXT: "3"}]
    assert still.metadata["dropped_widgets"] == 2
    assert "widgets" not in still.metadata


def test_what_a_widget_also_is_on_paper_is_kept() -> None:
    assert kept({**VIEW, "image/png": "AA=="}) == [{ALT_TEXT: "VBox()", "image/png": "AA=="}]


def test_the_notebook_itself_is_not_changed(chart: alt.Chart) -> None:
    original = notebook(VIEW, bundle(chart))
    before = deepcopy(original)
    frozen(original)
    assert original == before


# Printing: a PDF where Chromium is, one sentence where it is not, never a wait without end.


def program(folder: Path, script: str) -> None:
    fake = folder / "chromium"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)


def test_without_chromium_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs Chromium or Chrome.*apt install chromium.*html"):
        browser()


def test_a_chromium_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    began = time.monotonic()
    with pytest.raises(ValueError, match="did not print the report within 2 s"):
        pdf("<p>x</p>", deadline_s=2)
    assert time.monotonic() - began < 60, "of the 600 s that it would take"
    assert _gone(int((tmp_path / "child").read_text()))


def test_a_chromium_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo no display >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ValueError, match=r"wrote no PDF.*no display.*html"):
        pdf("<p>x</p>")


@pytest.mark.browser
def test_a_page_is_printed() -> None:
    assert pdf("<h1>Printed</h1>").startswith(b"%PDF-")


def _gone(pid: int) -> bool:
    """Whether the process has ended; an orphan that nobody reaps stays as a zombie."""
    for _ in range(300):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


# Markdown of a notebook: pictures beside it under our names, text unharmed.


def test_each_chart_is_a_picture_with_a_line_of_text(report: NotebookNode) -> None:
    text, pictures = markdown(report, "run_files")
    assert len(pictures) == 3
    assert all(content.startswith(b"<svg") and b"<script" not in content for content in pictures.values())
    assert all(f"]({name})" in text for name in pictures)
    assert text.count("bar chart of host over Time (ms), 2 rows](run_files/") == 3


def test_no_name_becomes_markup(report: NotebookNode) -> None:
    assert "<script" not in markdown(report, "run_files")[0]


def test_a_notebook_cannot_choose_where_its_pictures_go(chart: alt.Chart) -> None:
    output = new_output("display_data", bundle(chart), metadata={"filename": "../../escaped.svg"})
    _, pictures = markdown(new_notebook(cells=[new_code_cell(outputs=[output])]), "../up/run_files")
    assert [PurePosixPath(name).parent.as_posix() for name in pictures] == ["run_files"]


def test_code_is_hidden_in_markdown_until_asked_for() -> None:
    notebook = new_notebook(cells=[new_code_cell("1 + 41", outputs=[])])
    assert "1 + 41" not in markdown(notebook, "f")[0]
    assert "1 + 41" in markdown(notebook, "f", show_code=True)[0]


def test_what_is_folded_stays_folded_with_its_markdown() -> None:
    folded = "<details><summary>Guess first</summary>\n\nThe **answer** is\n\n- 4\n\n</details>\n\nAfter it."
    written = BeautifulSoup(page(new_notebook(cells=[new_markdown_cell(folded)])), "html.parser")
    (details,) = written.find_all("details")
    assert "answer" in details.get_text()
    assert details.find("li") is not None
    assert "After it." not in details.get_text()
