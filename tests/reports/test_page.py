"""A page read as text: nothing in it can fetch, no name in it can run, every chart is in it twice."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench.reports.render import markdown, page, title

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
