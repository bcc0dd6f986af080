"""A notebook as one HTML page: charts to explore, light, dark and print, and no request ever leaves it."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import pass_context
from jinja2.runtime import Context
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from traitlets.config import Config

from workbench.file_kinds import MADE
from workbench.reports.bundle import ALT_TEXT, CHART, LIBRARY_VERSION, PICTURE
from workbench.reports.clean import clean_html
from workbench.reports.frozen import frozen
from workbench.reports.ink import PAGE, inked

TEMPLATES = Path(__file__).with_name("templates")
_SHOWN_FIRST = [CHART, "text/html", "text/markdown", PICTURE, "image/png", "image/jpeg", "text/latex", "text/plain"]
_FIGURE = Markup(
    '<figure class="wb-chart"><img class="wb-still" alt="{alt}" src="data:image/svg+xml;base64,{picture}">'
    '<div class="wb-live" role="img" aria-label="{alt}"></div><p class="wb-note"></p>'
    '<script type="application/json">{spec}</script></figure>'
)


def page(
    notebook: NotebookNode, *, interactive: bool = True, show_code: bool = False, directory: Path | None = None
) -> str:
    """*notebook* as a page. Not *interactive*: the frozen pictures and no script at all, for paper.

    *directory* is where the pictures that its text mentions are looked for.
    """
    still = frozen(notebook, show_code=show_code)
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


def title(notebook: NotebookNode) -> str:
    """What *notebook* calls itself: its metadata, else its first heading, else nothing special."""
    if notebook.metadata.get("title"):
        return str(notebook.metadata.title)
    lines = (line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines())
    return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), "Report")


@cache
def drawing_script() -> str:
    """Vega, Vega-Lite and our few lines that draw with them: 0.9 MB, once a page."""
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
        config=Config({"NbConvertBase": {"display_data_priority": _SHOWN_FIRST}}),
        sanitize_html=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )


class _Beside(IPythonRenderer):
    """Pictures that lie beside the notebook become part of the page; what a link leads to elsewhere is not read."""

    def _src_to_base64(self, src: str) -> str | None:
        # nbconvert itself refuses paths that lead out by their letters
        try:
            place = Path(self.path).resolve() / src
            beside = place.is_file() and place.resolve() == Path(os.path.normpath(place))
        except (OSError, ValueError):  # an address, or what no file can be called
            return None
        return super()._src_to_base64(src) if beside else None


@pass_context
def _html_of(context: Context, source: str) -> str:
    """A markdown cell as HTML."""
    renderer = _Beside(
        escape=False,
        attachments=context.get("cell", {}).get("attachments", {}),
        embed_images=True,
        path=context["resources"]["metadata"]["path"],
        exclude_anchor_links=True,
    )
    return str(MarkdownWithMath(renderer=renderer).render(source))


def _figure(output: NotebookNode) -> Markup:
    """A chart's picture, a place to draw it live, and its specification, which no markup in a name can leave."""
    encoded = base64.b64encode(output.data[PICTURE].encode()).decode()
    spec = htmlsafe_json_dumps(inked(output.data[CHART], PAGE))
    return _FIGURE.format(alt=" ".join(output.data[ALT_TEXT].split()), picture=encoded, spec=spec)


def _embedded(output: NotebookNode, mime: str) -> Markup:
    """A picture that a cell made, inside the page: as an image, where even an SVG can neither run nor fetch."""
    data = output.data[mime]
    encoded = base64.b64encode(data.encode()).decode() if mime == PICTURE else "".join(data.split())
    image = Markup('<img class="wb-picture" alt="{}" src="data:{};base64,{}">')
    return image.format(" ".join(output.data.get(ALT_TEXT, "a picture").split()), mime, encoded)


def _policy(script: str) -> str:
    """What the browser is told to allow: our own script, known by its hash, and pictures inside the page."""
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
    return f"{MADE} This file needs no network.{left_out}"
