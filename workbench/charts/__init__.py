"""Altair charts of the rows of a run: one question per file."""

from workbench.charts.quick_start import import_jsonschema

import_jsonschema()
