"""The explorers of a kernel: the same arguments show the same explorer, with its run."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path

from IPython.display import display

from workbench.charts import theme
from workbench.results.store import Store
from workbench.widgets.cluster_watch import LOOKING_MOST
from workbench.widgets.explorer_page import LAST, Explorer

_explorers: dict[tuple[str, Path | None, str | None], Explorer] = {}
"""The explorers of this kernel, by the arguments of `explorer_of`."""


def explorer(
    run: str = LAST, *, store: str | Path | None = None, cluster: str | None = None, wait_s: float | None = None
) -> None:
    """Shows the explorer in this cell. *run* is the run to show first: an id, the beginning of one, or `last`.

    *store* is another file of runs than this person's default; *cluster* is another scheduler's address than the lab's.
    *wait_s* is how long a run waits for ranks, in seconds, before it gives up; it can be changed under Advanced.
    ValueError if it is less than a second.
    The same arguments show the same explorer again, with its run, until the kernel is restarted.
    """
    shown = explorer_of(run, None if store is None else Path(store), cluster)
    if wait_s is not None:
        shown.form.wait_at_most(wait_s)
    shown.show()


def recordings() -> None:
    """Shows recordings alone, for people without a notebook: nothing is measured, and what is played is not kept.

    With the extra `voila`, `voila notebooks/recordings.ipynb` serves it as a page.
    """
    theme.enable()
    folder = tempfile.TemporaryDirectory(prefix="overlap-workbench-")
    shown = Explorer(store=Store(Path(folder.name) / "store.sqlite"), measures=False)
    weakref.finalize(shown, folder.cleanup)
    display(shown.page.view)
    shown.run()


def prepare() -> None:
    """Makes the explorer before its page is open; the lab's kernel does so."""
    explorer_of().frozen.can_wait = True


def explorer_of(run: str = LAST, store: Path | None = None, cluster: str | None = None) -> Explorer:
    """This kernel's one explorer for these arguments, which a reloaded page joins."""
    key = run, store and store.resolve(), cluster
    for closed in [other for other, shown in _explorers.items() if shown.page.view.comm is None]:
        _explorers.pop(closed).close()  # all widgets were closed
    if key not in _explorers:
        theme.enable()
        for older in list(_explorers.values())[: 1 - LOOKING_MOST]:
            older.watcher.close()
        _explorers[key] = Explorer(run=run, store=None if store is None else Store(store), cluster=cluster)
    return _explorers[key]
