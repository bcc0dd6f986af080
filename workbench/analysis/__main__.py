"""Write the output of `workbench cache --workloads all --policies all --json` as the summary that claims read."""

from __future__ import annotations

import json
import sys

from workbench.analysis.claims import keep, path

path().write_text(json.dumps(keep(json.load(sys.stdin)), indent=1) + "\n")
