"""Experiments: what is requested, which schedules that makes, how a run measures them, how long it takes."""

from typing import Any

OLD_NAMES = ("RESOLVING", "Experiment", "Search")
"""Names of the former module workbench.experiment, which answer until the next release."""


def __getattr__(name: str) -> Any:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernels.old_names import warn
    from workbench.experiment import experiment

    warn(f"workbench.experiment.{name}", f"workbench.experiment.experiment.{name}")
    return getattr(experiment, name)
