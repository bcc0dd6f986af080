"""Check of bad input: each command is refused in a sentence, with its status and one document."""

from __future__ import annotations

from tests.release.commands import Answer, require
from tests.release.questions import GEMM, REFUSED, Refused
from tests.release.site import Figures, Site

REFUSE_S = 60.0
ABREAST = 4
"""So many commands at once: each imports for a second."""


def bad_input(site: Site) -> Figures:
    """All of them, several at once."""
    names, slowest_s = list(REFUSED), 0.0
    for first in range(0, len(names), ABREAST):
        some = names[first : first + ABREAST]
        began = [site.commands.begin(*words_of(site, REFUSED[name])) for name in some]
        for name, each in zip(some, began, strict=True):
            answer = each.end(site.commands.left_s(REFUSE_S))
            _require_refused(name, answer, REFUSED[name])
            slowest_s = max(slowest_s, answer.seconds)
    return {"refusals": len(names), "slowest_s": slowest_s}


def words_of(site: Site, refused: Refused) -> list[str]:
    """The command's words, SIZES filled in."""
    return [word for part in refused.words.split() for word in (site.sizes(GEMM) if part == "SIZES" else [part])]


def _require_refused(name: str, answer: Answer, refused: Refused) -> None:
    require(answer.status == refused.status, f"{name}: {answer} Expected: status {refused.status}.")
    require(refused.sentence in answer.err, f"{name}: {answer} Expected: {refused.sentence!r}.")
    require("Traceback" not in answer.err, f"{name}: a traceback was printed.")
    if "--json" not in answer.words:
        require(not answer.out, f"{name}: something is on stdout: {answer.out[:100]}")
        return
    document = answer.document()
    failures = document.get("rows", [document])
    require(failures and all(each["outcome"] == "failure" and each["message"] for each in failures),
            f"{name}: its document is no failure.")  # fmt: skip
