"""The explorers of this kernel: the same words show the same one, with all that goes on in it."""

from __future__ import annotations

from pathlib import Path

from workbench.charts import theme
from workbench.store import Store
from workbench.widgets.exploring import LAST, Explorer
from workbench.widgets.finding import LOOKING_MOST

_explorers: dict[tuple[str, Path | None, str | None], Explorer] = {}
"""Of this kernel, by what they were asked for."""


def explorer(
    run: str = LAST, *, store: str | Path | None = None, cluster: str | None = None, wait_s: float | None = None
) -> None:
    """The explorer in this cell. *run* is the run to show first: an id, the beginning of one, or `last`.

    *store* is a file of runs other than this person's own; *cluster* is a scheduler's address other than the lab's.
    *wait_s* is how long a run waits for ranks, in seconds, before it gives up: a choice under Advanced, which may be
    changed there. ValueError where it is less than a second.
    The same words show the same explorer again, with all that goes on in it; a restarted kernel begins afresh.
    """
    made = explorer_of(run, None if store is None else Path(store), cluster)
    if wait_s is not None:
        made.question.wait_at_most(wait_s)
    made.show()


def prepare() -> None:
    """What `explorer()` will show is made before its page is there; the lab has its kernel do so."""
    explorer_of().frozen.can_wait = True


def explorer_of(run: str = LAST, store: Path | None = None, cluster: str | None = None) -> Explorer:
    """This kernel's one explorer for these words: a page that is loaded anew joins it instead of beginning another."""
    words = run, store and store.resolve(), cluster
    for closed in [other for other, made in _explorers.items() if made.page.view.comm is None]:
        _explorers.pop(closed).close()  # somebody closed all widgets
    if words not in _explorers:
        theme.enable()
        for older in list(_explorers.values())[: 1 - LOOKING_MOST]:
            older.finder.close()
        _explorers[words] = Explorer(run=run, store=None if store is None else Store(store), cluster=cluster)
    return _explorers[words]
