"""Rows as pandas frames, and frames as Parquet and CSV files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.outcome import ROW_KEYS
from workbench.metrics import EXTRA_KEYS

KINDS = ("parquet", "csv")
COLUMNS = (*ROW_KEYS, *EXTRA_KEYS, "origin", "id", "at")


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One line per row; every shape key and axis is a column of its own, too, missing where a scheme has none."""
    flat = [{**row, **(row.get("shape") or {}), **(row.get("axes") or {})} for row in rows]
    return pd.DataFrame(flat, columns=list(dict.fromkeys([*COLUMNS, *(key for entry in flat for key in entry)])))


def export(table: pd.DataFrame, kind: str, path: Path) -> Path:
    """Write *table* to *path* whole or not at all; ValueError says what is missing or in the way."""
    if kind not in KINDS:
        raise ValueError(f"An export to {kind!r} was asked for, which is unknown. Accepted: {', '.join(KINDS)}.")
    # a dictionary per cell is no column type of either format
    plain = table.assign(**{name: table[name].map(json.dumps) for name in ("shape", "axes") if name in table})
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        if kind == "parquet":
            _mixed_as_text(plain).to_parquet(unfinished, index=False)
        else:
            plain.to_csv(unfinished, index=False)
        unfinished.replace(path)
    except ImportError as error:
        raise ValueError(
            "An export to parquet was asked for, but pyarrow, which writes it, is not installed. "
            "Accepted: pip install pyarrow, or --to csv."
        ) from error
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ValueError(
            f"The export cannot be written to {path}: {error.strerror or error}. Accepted: a file in a folder that "
            "exists and that you may write."
        ) from error
    return path


def _mixed_as_text(table: pd.DataFrame) -> pd.DataFrame:
    """A column of words and numbers, such as an axis that is a word for one operator, has no Parquet type."""
    mixed = {name: table[name].map(lambda value: None if value is None or value != value else str(value))
             for name in table if table[name].map(type).isin((int, float)).any()
             and table[name].map(type).eq(str).any()}  # fmt: skip
    return table.assign(**mixed)
