"""Renders a notebook as an HTML page, as PDF, or as Markdown with a folder of pictures."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import bleach
import vl_convert
from bleach.css_sanitizer import CSSSanitizer
from jinja2 import pass_context
from jinja2.runtime import Context
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter, MarkdownExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from traitlets.config import Config

from kernels.files import Failed
from workbench.reports.pictures import (
    ALT_TEXT,
    CHART,
    KEPT,
    LIBRARY_VERSION,
    PAGE,
    PAPER,
    PICTURE,
    alt_text,
    for_paper,
    inked,
    picture,
    plain,
    wrapped,
)
from workbench.reports.tables import PAPER as PAPER_HTML
from workbench.reports.tables import markdown_text
from workbench.results.files import SIGNATURE

# HTML from a cell's output is made safe: no script, nothing fetched, unknown markup shown as text.

_NAMES = (
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 "
    "hr i img ins kbd li mark ol p pre q s samp section small span strong sub summary sup table tbody td tfoot th "
    "thead tr u ul var"
)
_TAGS = frozenset(_NAMES.split())
_EVERYWHERE = frozenset({"class", "id", "title", "style", "colspan", "rowspan", "scope", "align", "open", "start"})
_FETCHED_PICTURE = re.compile(r"<(?=img\b(?![^>]*\bsrc\s*=\s*[\"']?data:image/))", re.IGNORECASE)
_STYLE_BLOCK = re.compile(r"<style\b[^>]*>.*?</style\s*>", re.IGNORECASE | re.DOTALL)


def clean_html(markup: object) -> str:
    """*markup* with tables, text and embedded pictures; anything that could run or fetch becomes text or is removed."""
    text = markup.decode() if isinstance(markup, bytes) else str(markup)
    # A style block would affect the whole report and may fetch; pandas writes one before each table.
    return _cleaner().clean(_FETCHED_PICTURE.sub("&lt;", _STYLE_BLOCK.sub("", text)))


@cache
def _cleaner() -> bleach.Cleaner:
    return bleach.Cleaner(
        tags=_TAGS,
        attributes=_allowed,
        protocols=frozenset({"http", "https", "mailto", "data"}),
        css_sanitizer=CSSSanitizer(),
    )


def _allowed(tag: str, name: str, value: str) -> bool:
    """Whether an attribute is kept: pictures must be embedded, links may lead out of the page."""
    if tag == "img":
        embedded = name == "src" and value.startswith("data:image/")
        return embedded or name in {"alt", "width", "height", "class", "style"}
    if tag == "a" and name == "href":
        return not value.lower().startswith("data:")
    return name in _EVERYWHERE


# A frozen notebook needs no kernel: every chart has its picture, and live widgets are removed.

WIDGET = "application/vnd.jupyter.widget-view+json"
SCRIPT = "application/javascript"
_ANY_CHART = re.compile(r"application/vnd\.vega(lite)?\.v\d+(\.\d+)*\+json")
_PAGE_ARGUMENTS = re.compile(r"\}\)\((?=\{)")
KEEP_CODE = "keep-code"
"""Tag of a cell whose code is shown even if other code is omitted."""
FOLDED = "folded"
"""Metadata of a code cell that a page shows closed: the words to open it by."""


def frozen(notebook: NotebookNode, *, show_code: bool = False) -> NotebookNode:
    """A copy of *notebook* with static outputs only; its metadata `dropped_widgets` counts the removed ones.

    Code is omitted, unless *show_code* or the cell's tag `keep-code` keeps it.
    """
    copy = deepcopy(notebook)
    copy.metadata.pop("widgets", None)
    dropped = 0
    for cell in copy.cells:
        if cell.cell_type != "code":
            continue
        # nbconvert's templates obey this flag
        cell.metadata["transient"] = {"remove_source": not (show_code or KEEP_CODE in cell.metadata.get("tags", ()))}
        # of a live chart the drawing is kept in an output of its own, so that its widget is not missed
        kept_charts = sum(KEPT in output.get("data", {}) for output in cell.outputs)
        outputs = [_frozen_output(output) for output in cell.outputs]
        cell.outputs = [output for output in outputs if output is not None]
        dropped += max(0, outputs.count(None) - kept_charts)
    copy.metadata["dropped_widgets"] = dropped
    return copy


def _frozen_output(output: NotebookNode) -> NotebookNode | None:
    """*output* without the parts that need a kernel, or None if nothing remains."""
    data = output.get("data")
    if data is None:
        return output
    chart = _chart(data)
    if chart is not None:
        output.data = NotebookNode(_with_picture(chart, data))
        return output
    was_live = data.pop(WIDGET, None) is not None or data.pop(SCRIPT, None) is not None
    return None if was_live and set(data) <= {ALT_TEXT} else output


def _chart(data: NotebookNode) -> dict[str, Any] | None:
    """The specification of a chart in an output: under its mime type, or inside the page that Altair writes."""
    specification = next((value for mime, value in data.items() if mime == KEPT or _ANY_CHART.fullmatch(mime)), None)
    if specification is not None:
        return plain(json.loads(specification) if isinstance(specification, str) else specification)
    page = data.get("text/html", "")
    start = _PAGE_ARGUMENTS.search(page) if "altair-viz-" in page else None
    if start is None:
        return None
    try:
        return plain(json.JSONDecoder().raw_decode(page, start.end())[0])
    except json.JSONDecodeError:
        return None


def _with_picture(spec: dict[str, Any], data: NotebookNode) -> dict[str, Any]:
    """The bundle of *spec*, drawn again for paper, as the cell's picture may be for a dark screen."""
    paper, spec, kept = wrapped(for_paper(spec)), wrapped(spec), data.get(ALT_TEXT, "")
    described = kept if kept and not kept.startswith(("alt.", "<VegaLite")) else alt_text(spec)
    try:
        return {CHART: spec, PICTURE: picture(inked(paper, PAPER)), ALT_TEXT: described}
    except ValueError as error:
        return {PICTURE: data[PICTURE], ALT_TEXT: described} if PICTURE in data else {ALT_TEXT: str(error)}


# The HTML page: interactive charts, light, dark and print colours, and no requests.

TEMPLATES = Path(__file__).with_name("templates")
PAGE_MIME_ORDER = [CHART, "text/html", "text/markdown", PICTURE, "image/png", "image/jpeg", "text/latex", "text/plain"]
_FIGURE = Markup(
    '<figure class="wb-chart"><img class="wb-still" alt="{alt}" src="data:image/svg+xml;base64,{picture}">'
    '<div class="wb-live" role="img" aria-label="{alt}"></div><p class="wb-note"></p>'
    '<script type="application/json">{spec}</script></figure>'
)


def page(
    notebook: NotebookNode, *, interactive: bool = True, show_code: bool = False, directory: Path | None = None
) -> str:
    """*notebook* as a page. Without *interactive* it has pictures and no script, for paper.

    *directory* is where the pictures that its text refers to are searched.
    """
    still = frozen(notebook, show_code=show_code)
    if not interactive:
        _put_on_paper(still)
    script = drawing_script() if interactive and _has_chart(still) else ""
    resources: dict[str, Any] = {
        "metadata": {"name": "report", "path": str(directory or "")},
        "report": {"title": title(still), "policy": _policy(script), "foot": _foot(still)},
    }
    body, _ = _exporter().from_notebook_node(still, resources)
    if not interactive:
        body = body.replace("<details>", "<details open>")  # paper cannot be unfolded
    if not script:
        return body
    before, after = body.rsplit("</body>", 1)
    return f'{before}<script type="module">{script}</script></body>{after}'


def _put_on_paper(notebook: NotebookNode) -> None:
    """Replaces the HTML of outputs that have another one for paper, where nothing scrolls."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if PAPER_HTML in output.get("metadata", {}) and "text/html" in output.data:
                output.data["text/html"] = output.metadata[PAPER_HTML]


def title(notebook: NotebookNode) -> str:
    """The title of *notebook*: from its metadata, or its first heading, or `Report`."""
    if notebook.metadata.get("title"):
        return str(notebook.metadata.title)
    lines = (line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines())
    return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), "Report")


@cache
def drawing_script() -> str:
    """The script with Vega, Vega-Lite and our drawing code: 0.9 MB, once per page."""
    drawing = (TEMPLATES / "report" / "charts.js").read_text("utf-8")
    script = vl_convert.javascript_bundle(drawing, vl_version=LIBRARY_VERSION)
    assert "</script" not in script.lower(), "the bundle would end its own element"
    assert "<!--" not in script, "the bundle would open a comment"
    return script


def _exporter() -> HTMLExporter:
    return HTMLExporter(
        template_name="report",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"clean_html": clean_html, "figure": _figure, "picture": _embedded, "markdown2html": _html_of},
        config=Config({"NbConvertBase": {"display_data_priority": PAGE_MIME_ORDER}}),
        sanitize_html=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )


class _PictureInliner(IPythonRenderer):
    """Embeds pictures from the notebook's folder; files that a symbolic link leads to elsewhere are not read."""

    def _src_to_base64(self, src: str) -> str | None:
        # nbconvert itself refuses paths whose text leads out of the folder
        try:
            place = Path(self.path).resolve() / src
            is_inside = place.is_file() and place.resolve() == Path(os.path.normpath(place))
        except (OSError, ValueError):  # an address, or no valid file name
            return None
        return super()._src_to_base64(src) if is_inside else None

    def block_html(self, html: str) -> str:
        """A block of HTML; one without pictures as it is, since nbconvert would close what a later block closes."""
        return str(super().block_html(html)) if "<img" in html.lower() else html


@pass_context
def _html_of(context: Context, source: str) -> str:
    """A markdown cell as HTML."""
    renderer = _PictureInliner(
        escape=False,
        attachments=context.get("cell", {}).get("attachments", {}),
        embed_images=True,
        path=context["resources"]["metadata"]["path"],
        exclude_anchor_links=True,
    )
    return str(MarkdownWithMath(renderer=renderer).render(source))


def _figure(output: NotebookNode) -> Markup:
    """A figure with the chart's picture, a place to draw it live, and its escaped specification."""
    encoded = base64.b64encode(output.data[PICTURE].encode()).decode()
    spec = htmlsafe_json_dumps(inked(output.data[CHART], PAGE))
    return _FIGURE.format(alt=" ".join(output.data[ALT_TEXT].split()), picture=encoded, spec=spec)


def _embedded(output: NotebookNode, mime: str) -> Markup:
    """A cell's picture as an embedded image, in which even an SVG can neither run nor fetch."""
    data = output.data[mime]
    encoded = base64.b64encode(data.encode()).decode() if mime == PICTURE else "".join(data.split())
    image = Markup('<img class="wb-picture" alt="{}" src="data:{};base64,{}">')
    return image.format(" ".join(output.data.get(ALT_TEXT, "a picture").split()), mime, encoded)


def _policy(script: str) -> str:
    """The content security policy: it allows our own script, by its hash, and embedded pictures."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _has_chart(notebook: NotebookNode) -> bool:
    return any(CHART in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))


def _foot(notebook: NotebookNode) -> str:
    dropped = notebook.metadata.get("dropped_widgets", 0)
    left_out = f" {dropped} live control{'s' * (dropped != 1)} of the notebook cannot be part of it." if dropped else ""
    return f"{SIGNATURE} This file needs no network.{left_out}"


# The PDF: Chromium prints the page, within a deadline and without a network.

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Program names of Chromium and Chrome, in the order of the search."""


def browser() -> str:
    """Path of the program that prints; ValueError with what to install if there is none."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise ValueError(
            f"Printing a PDF needs Chromium or Chrome, and the PATH has none of {', '.join(BROWSERS)}. Install one "
            "(Debian, Ubuntu: `apt install chromium`), or ask for html, which any browser prints."
        )
    return program


def pdf(page: str, *, deadline_s: float = 60.0) -> bytes:
    """The self-contained HTML *page* printed as PDF."""
    program = browser()
    with tempfile.TemporaryDirectory(prefix="workbench-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, target = folder / "page.html", folder / "page.pdf"
        source.write_text(page, "utf-8")
        complaint = _run([program, *_flags(folder), f"--print-to-pdf={target}", source.as_uri()], deadline_s)
        if not target.exists():
            raise Failed(f"{program} wrote no PDF. Its last message: {complaint}. Accepted instead: html.")
        return target.read_bytes() + f"% {SIGNATURE}\n".encode()  # readers ignore text after the end


def _flags(folder: Path) -> list[str]:
    flags = [
        "--headless",
        "--disable-gpu",
        "--no-pdf-header-footer",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
    ]
    # Chromium does not run its sandbox as root, as in most containers; the page is ours and has no script.
    return [*flags, "--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else flags


def _run(command: list[str], deadline_s: float) -> str:
    """Runs *command* and returns the last line of its errors; Failed at the deadline. Always ends its process group."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            _, output = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{command[0]} did not print the report within {deadline_s:g} s. Accepted instead: html, which any "
                "browser prints."
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return (output.strip().splitlines() or ["nothing"])[-1]


# Markdown: text and tables in one file, and charts as pictures in a folder next to it.

_MARKDOWN_MIME_ORDER = ["text/markdown", PICTURE, "image/png", "image/jpeg", "text/html", "text/latex", "text/plain"]


def markdown(notebook: NotebookNode, folder: str, *, show_code: bool = False) -> tuple[str, dict[str, bytes]]:
    """*notebook* as Markdown, and its pictures: path relative to the file -> content.

    *folder* is the name of the folder for the pictures, whose file names are never taken from a result.
    """
    exporter = MarkdownExporter(
        template_name="report_markdown",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"clean_html": clean_html, "markdown_text": markdown_text},
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": _MARKDOWN_MIME_ORDER},
                "ExtractOutputPreprocessor": {"output_filename_template": "picture-{cell_index}-{index}{extension}"},
            }
        ),
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    still = frozen(notebook, show_code=show_code)
    for cell in still.cells:
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).pop("filename", None)
    text, resources = exporter.from_notebook_node(still, {"output_files_dir": Path(folder).name})
    pictures = {name: content for name, content in resources["outputs"].items() if isinstance(content, bytes)}
    return f"{text.strip()}\n\n<!-- {SIGNATURE} -->\n", pictures
