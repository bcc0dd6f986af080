"""Experiments, their results and their display, for notebooks and the command line."""

import sys


class _OldNames:
    """Finder of modules by their old names; it comes last, and so costs nothing (workbench.old_names)."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if not name.startswith("workbench."):
            return None
        from workbench import old_names

        return old_names.spec(name)


sys.meta_path.append(_OldNames)  # type: ignore[arg-type]
