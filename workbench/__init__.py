"""Experiments, their results and their display, for notebooks and the command line.

`workbench.recommend` is the one question that needs no more than this import.
"""

import sys

TYPE_CHECKING = False  # typing would be loaded before a command can take Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from workbench.experiment.answer import Answer


def recommend(operator: str, shape: "dict[str, Any] | None" = None, **fields: "Any") -> "Answer":
    """Which schedule to take, why, and how sure that is: `workbench.experiment.answer.recommend`.

    Such as `recommend("gemm_all_to_all", {"m": 4096, "n": 7168, "k": 2048}, machine="h200_nvl2")`.
    """
    from workbench.experiment import answer

    return answer.recommend(operator, shape, **fields)


class _OldNames:
    """Finder of modules by their old names; it comes last, and so costs nothing (workbench.old_names)."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if not name.startswith("workbench."):
            return None
        from workbench import old_names

        return old_names.spec(name)


sys.meta_path.append(_OldNames)  # type: ignore[arg-type]
