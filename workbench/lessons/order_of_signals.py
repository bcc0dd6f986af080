"""Exercises of the appendix about operators: where the signal belongs, and which check a wrong kernel fails."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.lesson import recorded
from workbench.lessons.questions import Exercise, Unreadable, Wrong

if TYPE_CHECKING:
    import pandas as pd

RECORDED = "lesson_6_interpreted"
"""The recorded rows of what ranks show, for where Triton is missing."""
LIMIT_S = 2.0
"""Longest wait inside a kernel; in the right one rank 1 waits 0.4 s."""

KERNEL = '''"""Rank 0 sends a message in two pieces; rank 1 waits for it, and copies what is there then."""

import torch
import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.playground import Rank

PIECES, SIZE, PIECE_NS = 2, 8, 200_000_000


@triton.jit(do_not_specialize=["call", "rank"])
def send(message, inbox_at, counters_at, result, call, error, limit_ns, rank,
         PIECES: tl.constexpr, SIZE: tl.constexpr, PIECE_NS: tl.constexpr):
    """The *message* [PIECES * SIZE] of rank 0, in *result* of rank 1; *call* counts from 1."""
    deadline, at = device.deadline_after(limit_ns), tl.arange(0, SIZE)
    if rank == 0:
        # place 1
        for piece in range(PIECES):
            # place 2
            time = device.now()
            ready = time + PIECE_NS  # a slow rank computes the piece
            while time < ready:
                time = device.now()
            theirs = device.peer(inbox_at, 1, tl.float32) + piece * SIZE + at
            device.put(theirs, tl.load(message + piece * SIZE + at))
            # place 3
        # place 4
    else:
        # place 5
        counter = device.peer(counters_at, rank, tl.int32)
        device.wait(counter, call, deadline, error, rank, device.SIGNAL, 0)
        for piece in range(PIECES):
            came = device.peer(inbox_at, rank, tl.float32) + piece * SIZE + at
            tl.store(result + piece * SIZE + at, tl.load(came))
        # place 6


def calls(rank: Rank) -> list[tuple[list[int], str | None]]:
    """What rank 1 has after each of two calls, and the sentence of a wait that ended without its signal."""
    inbox, came = rank.tensor(PIECES * SIZE), rank.signals(1)
    message, result = torch.zeros(PIECES * SIZE), torch.zeros(PIECES * SIZE)
    shown = []
    for call in (1, 2):
        message.fill_(10.0 * call)
        ends = (call, rank.error, rank.limit_ns, rank.rank)
        rank.launcher(send, message, inbox.addresses, came.addresses, result, *ends,
                      PIECES=PIECES, SIZE=SIZE, PIECE_NS=PIECE_NS)()
        shown.append((result[::SIZE].int().tolist(), rank.failure()))
        rank.barrier()
    return shown
'''
"""The kernel with a gap: no line signals. Ranks import it from a file."""
SIGNAL = "device.signal(device.peer(counters_at, 1, tl.int32))"
SENT = [[10, 10], [20, 20]]
"""The first number of each piece of the message, by call."""
PLACES = (1, 2, 3, 4, 5, 6)

FIRST, SECOND, DEADLINE, NOTHING = "first call", "second call", "deadline", "nothing"
CHECKS: Mapping[str, str] = {
    FIRST: "the values of the first call are compared with what was sent",
    SECOND: "those of the second call, where the first ones are right",
    DEADLINE: "a wait ends without its signal, and says so",
    NOTHING: "all three pass, although the kernel is wrong",
}
"""What the checks of a variant are, in the order in which a failure ends them."""

MUTANTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "the signal comes before the data": (("# place 1", SIGNAL),),
    "nobody signals": (),
    "data go to the sender": (("peer(inbox_at, 1,", "peer(inbox_at, rank,"), ("# place 4", SIGNAL)),
    "the signal goes to the sender": (("# place 4", SIGNAL.replace("counters_at, 1,", "counters_at, rank,")),),
    "every call waits for signal 1": (("wait(counter, call,", "wait(counter, 1,"), ("# place 4", SIGNAL)),
    "the signal is relaxed": (
        ("# place 4", SIGNAL.replace("device.signal(", "tl.atomic_add(")[:-1] + ', 1, sem="relaxed", scope="sys")'),
    ),
}
"""Wrong kernels by what is wrong with them: what is replaced in KERNEL, and by what."""


def numbered() -> str:
    """The kernel with its six places, as Markdown."""
    _, _, kernel = KERNEL.partition("\n\n\n")
    return f"```python\n{kernel.partition('def calls')[0].rstrip()}\n```"


def changed(changes: tuple[tuple[str, str], ...]) -> str:
    """KERNEL after *changes*; each text to replace is there once."""
    text = KERNEL
    for here, there in changes:
        assert text.count(here) == 1, here
        text = text.replace(here, there)
    return text


@dataclass(frozen=True, slots=True)
class Shown:
    """What a variant of the kernel has shown on two ranks."""

    values: tuple[tuple[int, ...], ...]
    """The first number of each piece at rank 1, after each call; none where a wait ended without its signal."""
    late: str = ""
    """The sentence of a wait that ended without its signal."""

    @property
    def fails(self) -> str:
        """The name of the check that fails."""
        if self.late:
            return DEADLINE
        wrong = [list(came) != sent for came, sent in zip(self.values, SENT, strict=True)]
        return FIRST if wrong[0] else SECOND if wrong[1] else NOTHING

    @property
    def sentence(self) -> str:
        """What is to be seen of it."""
        if self.late:
            return self.late
        return ", ".join(f"call {number} has {list(came)}" for number, came in enumerate(self.values, 1))


def variants() -> dict[str, str]:
    """The text of each variant by name: the signal at each place, and the mutants."""
    return {f"place {place}": changed(((f"# place {place}", SIGNAL),)) for place in PLACES} | {
        name: changed(changes) for name, changes in MUTANTS.items()
    }


@cache
def shown() -> dict[str, Shown]:
    """What each variant shows: interpreted on two ranks of this computer, or recorded where Triton is missing."""
    if find_spec("triton") is None:
        return {name: Shown(tuple(map(tuple, values)), late) for name, values, late in recorded(RECORDED)["signals"]}
    texts = list(dict.fromkeys(variants().values()))  # the first mutant is also a place
    by_text = dict(zip(texts, _run(texts), strict=True))
    return {name: by_text[text] for name, text in variants().items()}


def _run(texts: list[str]) -> list[Shown]:
    """What kernels of these *texts* show, one after another on one gang."""
    from kernels.backends.triton.playground import ranks

    outcomes = []
    with tempfile.TemporaryDirectory(prefix="overlap-workbench-") as folder:
        sys.path.insert(0, folder)
        names = [f"variant_{number}_of_{Path(folder).name.replace('-', '_')}" for number in range(len(texts))]
        try:
            for name, text in zip(names, texts, strict=True):
                Path(folder, f"{name}.py").write_text(text)
            with ranks(2, interpreted=True, limit_s=LIMIT_S) as gang:
                for name in names:
                    _, calls = gang.run(importlib.import_module(name).calls)
                    late = next((sentence for _, sentence in calls if sentence), "")
                    values = () if late else tuple(tuple(came) for came, _ in calls)
                    outcomes.append(Shown(values, late))
        finally:
            sys.path.remove(folder)
            for name in names:
                sys.modules.pop(name, None)
    return outcomes


def table() -> pd.DataFrame:
    """What each variant has shown, and the check that it fails."""
    import pandas as pd

    rows = [(name, each.fails, each.sentence) for name, each in shown().items()]
    return pd.DataFrame(rows, columns=["variant", "fails", "what it showed"]).set_index("variant")


# What is checked.


def _place_rule(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or value not in PLACES:
        raise Unreadable(f"{str(value)[:40]!r} is no place. Accepted: a whole number from {PLACES[0]} to {PLACES[-1]}.")
    seen = shown()[f"place {value}"]
    if seen.late:
        raise Wrong(f"Two ranks ran it: {seen.late}")
    if seen.fails != NOTHING:
        raise Wrong(f"Two ranks ran it: {seen.sentence}, where {SENT[0]} and {SENT[1]} were sent.")
    return f"Two ranks ran it: {seen.sentence}."


def _mutants_rule(value: Any) -> str:
    if not isinstance(value, Mapping) or set(value) != set(MUTANTS):
        raise Unreadable(f"The answer is a dictionary with a check for each of these: {', '.join(MUTANTS)}.")
    if unknown := [str(check)[:40] for check in value.values() if check not in tuple(CHECKS)]:
        raise Unreadable(f"{unknown[0]!r} is no check. Accepted: {', '.join(CHECKS)}.")
    for name, check in value.items():
        if (seen := shown()[name]).fails != check:
            raise Wrong(f"It is not {check!r} for {name!r}. Two ranks ran it: {seen.sentence.rstrip('.')}.")
    return f"Two ranks ran each of the {len(MUTANTS)}, and that is what failed."


def right_place() -> int:
    """The place at which the kernel passes all checks."""
    (place,) = [place for place in PLACES if shown()[f"place {place}"].fails == NOTHING]
    return place


EXERCISES = {
    "place_of_the_signal": Exercise(
        f"**The missing signal.** Rank 1 waits for a signal that no line above gives. At which of the six places does "
        f"`{SIGNAL}` belong? Answer with the number of the place.",
        _place_rule,
        ("who knows that the message is there? And after which line does that rank know it?",
         "one signal for the whole message, by rank 0, after the last piece."),
        "place 4: rank 0 signals once, behind the loop, when all pieces are put.",
        right_place,
    ),
    "which_check_fails": Exercise(
        "**Six wrong kernels.** Each has one mistake. Which check fails first? Give a dictionary from kernel to check. "
        "The kernels:\n\n" + "\n".join(f"- `\"{name}\"`" for name in MUTANTS) + "\n\nThe checks:\n\n"
        + "\n".join(f"- `\"{name}\"`: {what}" for name, what in CHECKS.items()),
        _mutants_rule,
        ("a rank that gets no signal waits until its deadline, and one that gets it too early reads too early.",
         "counters are never set back: see what a wait for 1 does in call 2. And an interpreter has one thread only."),
        "signal before data and data to the sender: first call. No signal and signal to the sender: deadline. Every "
        "call waits for signal 1: second call. Relaxed: nothing fails here; a test that reads the compiled code finds "
        "it.",
        lambda: {name: shown()[name].fails for name in MUTANTS},
    ),
}  # fmt: skip
