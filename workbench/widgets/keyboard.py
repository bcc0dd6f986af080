"""Keys pressed in the explorer are the explorer's: JupyterLab would take an arrow or a letter for itself."""

from __future__ import annotations

import anywidget

KEYS = """
// JupyterLab hears keys when they have bubbled up to the page: what belongs to a control goes no further. Combinations
// such as Ctrl+S, and Escape, stay JupyterLab's.
function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey && event.key !== "Escape") event.stopPropagation();
}

export default {
  render({ el, signal }) {
    const listen = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (page) page.addEventListener("keydown", keep, { signal });
      else requestAnimationFrame(listen); // not yet on the page
    };
    listen();
  },
};
"""


class Keyboard(anywidget.AnyWidget):
    """Nothing to see: it listens where it stands."""

    _esm = KEYS
