"""What a person uses in a notebook: the explorer, and the live chart that it is made of."""

from __future__ import annotations

from typing import Any

from workbench.charts.quick_start import import_jsonschema

import_jsonschema()

__all__ = ["Explorer", "LiveChart", "explorer", "recordings"]

_MODULES = {"Explorer": "explorer_page", "LiveChart": "live_chart", "explorer": "explorers",
            "recordings": "explorers"}  # fmt: skip
"""The module that defines each name. No module may be called like the function `explorer`, which it would replace."""


def __getattr__(name: str) -> Any:
    """Imports the module of *name*, with its libraries, when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
