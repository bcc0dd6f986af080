"""Choices that cannot be taken here, greyed out with their reasons: ipywidgets can disable whole controls only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import anywidget
import traitlets

GREYED = """
// `reasons`: by the class of a control, the reason by the place of the choice. ipywidgets makes options and buttons
// anew when they change, so a control is looked at again whenever something in it was.
function grey(control, reasons) {
  const choices = control.querySelector("select")?.options ?? control.querySelectorAll("button");
  [...choices].forEach((choice, place) => mark(choice, reasons[place]));
}

function mark(choice, reason) {
  if (reason && choice.dataset.wbReason === undefined) choice.dataset.wbTitle = choice.title;
  if (reason) {
    choice.dataset.wbReason = choice.title = reason;
    choice.disabled = true;
  } else if (choice.dataset.wbReason !== undefined) {
    choice.title = choice.dataset.wbTitle;
    delete choice.dataset.wbReason;
    choice.disabled = false;
  }
}

export default {
  render({ model, el, signal }) {
    const seen = new Map();
    const look = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (!page) return requestAnimationFrame(look); // not yet on the page
      const reasons = model.get("reasons");
      for (const name of new Set([...Object.keys(reasons), ...seen.keys()])) {
        const control = page.querySelector("." + CSS.escape(name));
        if (!control) continue;
        if (seen.get(name)?.control !== control) {
          seen.get(name)?.observer.disconnect();
          const observer = new MutationObserver(() => grey(control, model.get("reasons")[name] ?? {}));
          observer.observe(control, { childList: true, subtree: true });
          seen.set(name, { control, observer });
        }
        grey(control, reasons[name] ?? {});
      }
    };
    model.on("change:reasons", () => requestAnimationFrame(look)); // controls that change with it are drawn first
    signal.addEventListener("abort", () => seen.forEach(({ observer }) => observer.disconnect()));
    look();
  },
};
"""


class Unavailable(anywidget.AnyWidget):
    """Nothing to see: it greys out choices of other controls, found by their class names."""

    _esm = GREYED
    reasons = traitlets.Dict().tag(sync=True)
    words: Mapping[str, Mapping[str, Sequence[str]]] = {}
    """By reason, the name of each control with the choices that cannot be taken."""

    def show(self, refused: Mapping[str, Mapping[Hashable, str]], controls: Mapping[str, Any]) -> None:
        """*refused*: by the class name of one of *controls*, the reason of each choice that cannot be taken."""
        reasons: dict[str, dict[str, str]] = {}
        words: dict[str, dict[str, list[str]]] = {}
        for mark, sentences in refused.items():
            control = controls[mark]
            pairs = [option if isinstance(option, tuple) else (str(option), option) for option in control.options]
            name = control.description or mark.removeprefix("wb-").capitalize()
            reasons[mark] = {}
            for place, (label, value) in enumerate(pairs):
                if value in sentences:
                    reasons[mark][str(place)] = sentences[value]
                    words.setdefault(sentences[value], {}).setdefault(name, []).append(label)
        self.words = words
        self.reasons = {mark: by_place for mark, by_place in reasons.items() if by_place}
