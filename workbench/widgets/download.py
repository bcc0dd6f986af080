"""A button that makes a file and puts it into the browser's downloads, in one click; nothing is made before."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

_ESM = """
// A button of the page's own look; the file comes as bytes in a message, and is offered as a link that is clicked here.
function save({ name, type }, bytes) {
  const address = URL.createObjectURL(new Blob([bytes], { type }));
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

function render({ model, el, signal }) {
  const button = Object.assign(document.createElement("button"), {
    className: "lm-Widget jupyter-widgets jupyter-button widget-button",
    type: "button",
  });
  const icon = Object.assign(document.createElement("i"), { className: "fa fa-download" });
  const status = Object.assign(document.createElement("span"), { className: "wb-download-status" });
  status.setAttribute("role", "status");
  const write = () => {
    button.replaceChildren(icon, ` ${model.get("description")}`);
    button.title = model.get("tooltip");
    button.disabled = model.get("disabled") || model.get("busy");
    status.textContent = model.get("message");
  };
  let isClicked = false; // of several pages that show this button, the one that was clicked saves the file
  button.addEventListener("click", () => {
    isClicked = true;
    model.send({ kind: "make" });
  });
  const take = (content, buffers) => {
    if (content.kind === "file" && isClicked) save(content, buffers[0]);
    isClicked = false;
  };
  model.on("msg:custom", take);
  model.on("change", write);
  signal.addEventListener("abort", () => {
    model.off("msg:custom", take);
    model.off("change", write);
  });
  write();
  el.append(button, status);
}

export default { render };
"""


class Download(anywidget.AnyWidget):
    """A button; *make* gives the name and the bytes of its file when it is pressed, in a thread of its own.

    The text of a ValueError of *make* is shown next to the button.
    """

    _esm = _ESM
    description = traitlets.Unicode().tag(sync=True)
    tooltip = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)

    def __init__(self, description: str, tooltip: str, make: Callable[[], tuple[str, bytes]]) -> None:
        super().__init__(description=description, tooltip=tooltip)
        self._make = make
        self.on_msg(self._receive)

    def _receive(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        if content.get("kind") == "make" and not self.busy:
            self.busy = True
            threading.Thread(target=self.offer, name="workbench download", daemon=True).start()

    def offer(self) -> None:
        """Makes the file and sends it to the page."""
        try:
            name, content = self._make()
            self.send({"kind": "file", "name": name, "type": "application/octet-stream"}, [content])
            self.message = ""
        except ValueError as refused:
            self.message = str(refused)
        finally:
            self.busy = False


def file_stem(title: str) -> str:
    """A name of a file from the *title* of a schedule: `fused-tiles-per-slice-8`."""
    return re.sub(r"\W+", "-", title).strip("-")
