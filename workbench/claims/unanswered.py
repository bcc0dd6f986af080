"""Published numbers that can be asked here, and that nothing of ours answers yet: why, in a sentence."""

from __future__ import annotations

from kernels.schemes import SCHEMES
from workbench.claims.answers import Ours
from workbench.published import Published


def not_built(reported: Published) -> Ours:
    """A scheme that refuses everywhere has no measurement, and no estimate either."""
    idea = SCHEMES[reported.scheme].idea.rstrip(".")
    return Ours(value=None, why=f"No measurement yet: `{reported.scheme}` ({idea}) refuses until it is built. "
                                "Nothing is estimated for it, so there is nothing to compare.")  # fmt: skip
