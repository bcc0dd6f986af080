"""The menu that copies the question as a command, TOML, Python or a link, and opens links that somebody sent.

A link is the address of the page with `#view=CODE`. The code holds the whole state; the browser hands it to the kernel.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kernels import files
from workbench import machines
from workbench.experiment.form import FormQuestion
from workbench.experiment.written import command_text, python_text, toml_text
from workbench.results.decode import TABLE, TEXT, WrongForm, checked
from workbench.widgets.exploration import Exploration

# The state of the page as JSON, for saved views, and as a code, for links.

CODE_MOST, STATE_MOST = 16_384, 2**20
"""The longest code and the largest state in bytes: a code is compressed, and may say much."""
CODE = re.compile(r"(?:.*[#?&]view=)?([\w-]+=*)", re.DOTALL)
ACCEPTED = "Accepted: a link or a code that Copy as made"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What the page is about, and how it is looked at."""

    exploration: Exploration
    question: FormQuestion
    machine: str
    preset: str

    def to_json(self) -> dict[str, Any]:
        return {"exploration": self.exploration.to_json(), "question": self.question.to_json(),
                "machine": self.machine, "preset": self.preset}  # fmt: skip

    @classmethod
    def from_json(cls, data: Any) -> PageState:
        """The state that `to_json` wrote; ValueError for anything else."""
        try:
            checked(data, {"exploration": TABLE, "question": TABLE, "machine": TEXT, "preset": TEXT}, "a view")
        except WrongForm as error:
            raise ValueError(f"This view cannot be read: {error}, as this page writes it.") from error
        return cls(exploration=Exploration.from_json(data["exploration"]), machine=data["machine"],
                   question=FormQuestion.from_json(data["question"]), preset=data["preset"])  # fmt: skip


def code_of(state: PageState) -> str:
    """*state* as letters, digits, - and _, which need no quotes anywhere."""
    compressed = zlib.compress(json.dumps(state.to_json(), separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(compressed).decode().rstrip("=")


def read_code(text: str) -> PageState:
    """The state in a code, or in a link with one; ValueError in one sentence for any other text."""
    text = text.strip()
    if len(text) > CODE_MOST:
        raise ValueError(f"This is no link to a view: it has {len(text):,} > {CODE_MOST:,} letters. {ACCEPTED}.")
    match = CODE.fullmatch(text)
    try:
        code = match[1].rstrip("=") if match else ""
        packed = zlib.decompressobj()
        content = packed.decompress(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)), STATE_MOST)
        if not packed.eof:
            raise ValueError("it is cut off")
        data = files.parsed(content)
    except (ValueError, zlib.error):
        raise ValueError(f"This is no link to a view, or a part of it is missing: {text:.40}. {ACCEPTED}.") from None
    return PageState.from_json(data)


# The menu.


class CopyMenu(anywidget.AnyWidget):
    """The menu in the browser, which has the clipboard and the page's address."""

    _esm = Path(__file__).parent / "copy_as.js"
    _css = Path(__file__).parent / "copy_as.css"
    texts: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)
    """By `command`, `toml`, `python` and `code` the text; without those that there are not."""
    message = traitlets.Unicode("").tag(sync=True)
    refused = traitlets.Bool(False).tag(sync=True)
    """Whether the message is a refusal."""


class CopyAs:
    """The menu `widget`. *state* returns what the page shows now, *measured* whether its runs measure; *show* opens
    a state that came with a link."""

    def __init__(
        self, state: Callable[[], PageState], measured: Callable[[], bool], show: Callable[[PageState], Any]
    ) -> None:
        self._state, self._measured, self._show = state, measured, show
        self.widget = CopyMenu()
        self.widget.on_msg(self._hear)

    def refresh(self) -> None:
        """Makes the texts of the question as it is now; a refused question has a link alone."""
        state, refused = self._state(), ""
        texts = {"code": code_of(state)}
        try:
            experiment = state.question.experiment(machines.machine(state.machine))
            texts |= {"command": command_text(experiment), "toml": toml_text(experiment),
                      "python": python_text(experiment, measured=self._measured())}  # fmt: skip
        except ValueError as error:
            refused = str(error)
        with self.widget.hold_sync():
            self.widget.texts, self.widget.message, self.widget.refused = texts, refused, bool(refused)

    def open(self, text: str) -> None:
        """Shows the state in a link or a code, or says why there is none."""
        self.widget.message = ""  # the browser hears of the same sentence again
        try:
            self._show(read_code(text))
            message, refused = "This is the view of the link.", False
        except ValueError as error:
            message, refused = str(error), True
        with self.widget.hold_sync():
            self.widget.message, self.widget.refused = message, refused

    def _hear(self, _: Any, content: Mapping[str, Any], buffers: object) -> None:
        match content:
            case {"kind": "texts"}:
                self.refresh()
            case {"kind": "open", "text": str(text)}:
                self.open(text)
