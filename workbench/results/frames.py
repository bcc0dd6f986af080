"""Rows as pandas frames, and frames as Parquet and CSV files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.outcome import ROW_KEYS
from workbench.results import files
from workbench.results.files import EXPORTS, FileTarget
from workbench.results.metrics import EXTRA_KEYS, ROUNDS

KINDS = ("parquet", "csv")
_DICTIONARY_COLUMNS = ("shape", "axes", "hardware", "decomposition_loss", "contention_loss", ROUNDS)
"""Columns whose cells are a dictionary, a list or None."""
COLUMNS = (*ROW_KEYS, *EXTRA_KEYS, "origin", "id", "at")


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """*rows* as a frame; shape keys and axes are columns of their own, too, missing for schemes without them."""
    flat = [{**row, **(row.get("shape") or {}), **(row.get("axes") or {})} for row in rows]
    return pd.DataFrame(flat, columns=list(dict.fromkeys([*COLUMNS, *(key for entry in flat for key in entry)])))


def export(table: pd.DataFrame, kind: str, target: FileTarget | Path) -> Path:
    """Write *table* to *target*, whole or not at all; ValueError says what is missing or in the way."""
    if kind not in KINDS:
        raise ValueError(f"There is no export to {kind!r}. Accepted: {', '.join(KINDS)}.")
    # neither format has a column type for dictionaries of any keys
    plain = table.assign(**{name: table[name].map(_text) for name in _DICTIONARY_COLUMNS if name in table})

    def fill(path: Path) -> None:
        if kind == "parquet":
            _mixed_as_text(plain).to_parquet(path, index=False)
        else:
            plain.to_csv(path, index=False)

    try:
        return files.file_target(target).write(EXPORTS[kind], fill)
    except ImportError as error:
        raise ValueError(
            "An export to parquet needs pyarrow, which is not installed. Accepted: pip install pyarrow, or --to csv."
        ) from error


def _text(cell: Any) -> str | None:
    return json.dumps(cell) if isinstance(cell, Mapping | list) else None


def _mixed_as_text(table: pd.DataFrame) -> pd.DataFrame:
    """*table* with columns of both texts and numbers as text: Parquet has no type for them."""
    mixed = {name: table[name].map(lambda value: None if value is None or value != value else str(value))
             for name in table if table[name].map(type).isin((int, float)).any()
             and table[name].map(type).eq(str).any()}  # fmt: skip
    return table.assign(**mixed)
