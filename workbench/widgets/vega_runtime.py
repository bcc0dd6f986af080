"""Vega for the browser, without a network: bundled once per machine, sent once per notebook, shared by its charts."""

from __future__ import annotations

import gzip
from importlib.metadata import version
from pathlib import Path

import altair as alt
import anywidget
import platformdirs
import traitlets
import vl_convert

from kernels import files

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The Vega-Lite that Altair writes for."""

_SNIPPET = "export { vegaEmbed };"


class VegaRuntime(anywidget.AnyWidget):
    """A widget nobody sees: its arrival puts Vega into the page, where live charts wait for it."""

    _esm = Path(__file__).parent / "vega_runtime.js"
    _bundle = traitlets.Bytes().tag(sync=True)
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)


_sent: VegaRuntime | None = None


def send_once() -> None:
    """Have this kernel's page load Vega, unless it was told to before."""
    global _sent
    if _sent is None or _sent.comm is None:
        _sent = VegaRuntime(_bundle=bundle())


def send_again() -> None:
    """A page waits for Vega although it was sent: send it once more."""
    if _sent is not None:
        _sent.close()
    send_once()


def bundle(folder: Path | None = None) -> bytes:
    """The JavaScript module that exports vegaEmbed, gzipped. Bundling takes a second, so it is kept in *folder*."""
    folder = folder or platformdirs.user_cache_path("overlap-workbench")
    kept = folder / f"vega-lite-{VEGA_LITE}-by-{version('vl-convert-python')}.js.gz"
    try:
        return kept.read_bytes()
    except OSError:
        made = gzip.compress(vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE).encode(), mtime=0)
        _keep(kept, made)
        return made


def _keep(path: Path, content: bytes) -> None:
    """Write *path* whole or not at all, as several kernels may start at once. Not being able to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content)
    except OSError:
        return
