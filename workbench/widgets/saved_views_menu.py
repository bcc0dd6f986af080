"""The menu of saved views: a name, and what is done with the view of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from workbench.results.store import Store
from workbench.widgets.controls import button, html, marked, note_html, refusal_html
from workbench.widgets.copy_as import PageState


class SavedViewsMenu:
    """The menu `view`. *state* returns what the page shows now; *show* opens a saved state, and raises ValueError with
    one sentence where it cannot."""

    def __init__(self, store: Store, state: Callable[[], PageState], show: Callable[[PageState], Any]) -> None:
        self._store, self._state, self._show = store, state, show
        self._revisions: dict[str, int] = {}
        """What this page saved or opened last, by name: a newer one of another page is not lost."""
        self.name = marked(
            ipywidgets.Combobox(
                placeholder="name of a view", description="View", ensure_option=False, continuous_update=True,
                style={"description_width": "40px"}, layout=ipywidgets.Layout(width="260px", flex="0 1 260px"),
            ),
            "wb-view-name",
        )  # fmt: skip
        self.save = button("Save", "wb-view-save", "save", "Keep the question, the filters and the open view by name")
        self.load = button("Open", "wb-view-open", "folder-open", "Show the view of this name")
        self.delete = button("Delete", "wb-view-delete", "trash", "Forget the view of this name")
        self.message = html("wb-view-message")
        row = ipywidgets.HBox([self.name, self.save, self.load, self.delete])
        self.view = marked(ipywidgets.VBox([row, self.message]), "wb-saved-views")
        for control, work in ((self.save, self._saved), (self.load, self._loaded), (self.delete, self._deleted)):
            control.on_click(lambda _, work=work: self._do(work))
        self._list()

    def _do(self, work: Callable[[str], str]) -> None:
        """Does *work* with the typed name, and shows its sentence."""
        try:
            text, refused = work(self.name.value), False
        except ValueError as error:
            text, refused = str(error), True
        self.message.value = refusal_html(text) if refused else note_html(text)
        self._list()

    def _saved(self, name: str) -> str:
        name = " ".join(name.split())
        self._revisions[name], replaced = self._store.views.save(
            name, self._state().to_json(), self._revisions.get(name, 0)
        )
        return " ".join(filter(None, [f"{name} is saved.", replaced]))

    def _loaded(self, name: str) -> str:
        saved = self._store.views.load(name)
        self._revisions[saved.name] = saved.revision
        self._show(PageState.from_json(saved.view))
        return f"This is {saved.name}."

    def _deleted(self, name: str) -> str:
        self._store.views.delete(name, self._revisions.get(name, 0))
        self._revisions.pop(name, None)
        self.name.value = ""
        return f"{name} is deleted."

    def _list(self) -> None:
        """Offers the names of all saved views; none where the store cannot be read, whose page says so elsewhere."""
        try:
            self.name.options = self._store.views.names()
        except ValueError:
            self.name.options = []
