"""A notebook as Markdown: text and tables in one file, each chart as a picture in a folder beside it."""

from __future__ import annotations

from pathlib import Path

from nbconvert.exporters import MarkdownExporter
from nbformat import NotebookNode
from traitlets.config import Config

from workbench.file_kinds import MADE
from workbench.reports.bundle import PICTURE
from workbench.reports.clean import clean_html
from workbench.reports.frozen import frozen
from workbench.reports.page import TEMPLATES
from workbench.reports.values import markdown_text

_SHOWN_FIRST = ["text/markdown", PICTURE, "image/png", "image/jpeg", "text/html", "text/latex", "text/plain"]


def markdown(notebook: NotebookNode, folder: str, *, show_code: bool = False) -> tuple[str, dict[str, bytes]]:
    """*notebook* as Markdown, and the pictures that it names: path relative to the file -> content.

    *folder* is the name of the folder for the pictures; their own names are ours, never taken from a result.
    """
    exporter = MarkdownExporter(
        template_name="report_markdown",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={"clean_html": clean_html, "markdown_text": markdown_text},
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": _SHOWN_FIRST},
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
    return f"{text.strip()}\n\n<!-- {MADE} -->\n", pictures
