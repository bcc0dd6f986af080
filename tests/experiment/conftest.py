"""A small machine, a fake cluster and trials: what tests/workbench/conftest.py makes."""

from tests.workbench.conftest import *  # noqa: F403
