"""`python -m workbench.cli` is the command `workbench`."""

from __future__ import annotations

from workbench.cli import main

main()
