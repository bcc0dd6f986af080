"""Reports: a notebook or a stored run as one file. `export` is the entry point; the other modules are its steps."""

from workbench.charts.quick_start import import_jsonschema

import_jsonschema()
