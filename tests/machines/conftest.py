"""The small machine of tests/workbench/conftest.py, and those with round numbers of the simulator."""

from tests.simulator.conftest import gpu_pod, laptop  # noqa: F401
from tests.workbench.conftest import *  # noqa: F403
