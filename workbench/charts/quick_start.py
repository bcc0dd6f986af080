"""The import of jsonschema without an unused grammar, which takes most of the import time of Altair."""

from __future__ import annotations

import sys
from importlib import import_module

_GRAMMAR = "rfc3987_syntax"
"""The module that checks internationalised addresses, which takes 1.5 s of processor time to import."""


def import_jsonschema() -> None:
    """Imports jsonschema, which Altair and JupyterLab need, as if the grammar were not installed.

    Only jsonschema lacks the grammar: an import of it by name, before or after, works.
    """
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules:
        return
    sys.modules[_GRAMMAR] = None  # type: ignore[assignment]
    try:
        import_module("jsonschema")
    finally:
        del sys.modules[_GRAMMAR]
