"""What a person touches in a notebook: the explorer, and the live chart that it is made of."""

from __future__ import annotations

from typing import Any

__all__ = ["Explorer", "LiveChart", "explorer"]

_HOMES = {"Explorer": "explorer", "LiveChart": "live_chart", "explorer": "explorer"}


def __getattr__(name: str) -> Any:
    """Each name brings its own libraries when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from workbench.quick_start import import_jsonschema

    import_jsonschema()
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)  # a module may have its name
    return value
