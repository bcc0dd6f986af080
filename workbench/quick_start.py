"""jsonschema without a grammar that nobody here asks for: building it is most of the time that Altair takes."""

from __future__ import annotations

import sys
from importlib import import_module

_GRAMMAR = "rfc3987_syntax"
"""Checks internationalised addresses, and takes 1.5 s of processor time to be imported."""


def import_jsonschema() -> None:
    """Imports jsonschema, which Altair and JupyterLab need, as if the grammar were not installed.

    It stays out of jsonschema only: whoever imports it by name, before or after, has it.
    """
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules:
        return
    sys.modules[_GRAMMAR] = None  # type: ignore[assignment]
    try:
        import_module("jsonschema")
    finally:
        del sys.modules[_GRAMMAR]
