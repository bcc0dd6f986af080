"""Reads PTX and SASS by the rules of memory order of kernels/backends/triton/device.py: what breaks them, as sentences.

An address is followed back to the arguments that it comes from, and every path through the kernel is walked with the
few facts that the rules are about. No rule is about one compiler's way to put things.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

SIGNALS = {"counters_at", "credits_at", "done_at"}
"""Tables of counters on all ranks."""
COUNTED = {"arrived", "handed", "pushed"}
"""Words in which blocks count themselves in, so that one of them signals for all."""
OWN = {*COUNTED, "added", "tickets", "error", "epoch_at", "violations", "stored"}
"""Words that only this rank's GPU touches."""
STAYS = {"out", "result_at", "stamp", "stamps"}
"""Data that this rank keeps. Other stores are taken for peers', also where an address came through shared memory."""
PACKETS, ARRIVES = {"packets"}, {"operand", "landed", "leaving", "sums_here", "ours"}
VECTOR_BITS, WORD_BITS = 128, 64
BULK = ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement of PTX."""

    line: int
    text: str
    predicate: str
    name: str
    """With all of its suffixes."""
    operands: str

    @property
    def suffixes(self) -> list[str]:
        return self.name.split(".")

    @property
    def address(self) -> str:
        """The register between the brackets: of copies to global memory the first, of those from there the second."""
        found = re.findall(r"\[\s*(%\w+)", self.operands)
        return str(found[1 if self.is_bulk_load else 0]) if found else ""

    @property
    def bits(self) -> int:
        """Of a load or store, by one thread."""
        count = next((int(each[1:]) for each in self.suffixes if re.fullmatch(r"v\d", each)), 1)
        return count * int(re.sub(r"\D", "", self.suffixes[-1]))

    @property
    def is_store(self) -> bool:
        return self.suffixes[0] == "st" and "global" in self.suffixes

    @property
    def is_bulk_store(self) -> bool:
        return self.name.startswith(BULK) and "global.shared::cta" in self.name

    @property
    def is_bulk_load(self) -> bool:
        return self.name.startswith(BULK) and not self.is_bulk_store

    @property
    def is_bulk_add(self) -> bool:
        return self.is_bulk_store and self.name.startswith("cp.reduce")

    @property
    def is_atomic(self) -> bool:
        """Also a read of what others write meanwhile."""
        ordered = {"relaxed", "acquire", "release", "acq_rel"} & set(self.suffixes)
        return self.suffixes[0] in ("atom", "red") or (self.suffixes[0] in ("ld", "st") and bool(ordered))

    @property
    def is_release(self) -> bool:
        return bool({"release", "acq_rel"} & set(self.suffixes))


STATEMENT = re.compile(r"^\s*(@!?%?\w+\s+)?([a-z][\w.:]*)\s*(.*?);?\s*$", re.IGNORECASE)
LABEL = re.compile(r"^\s*(\$L\w+):")
TARGET = re.compile(r"\$L\w+")
ADDRESS_OF = {"mov", "cvta", "add", "sub", "or", "selp", "mad"}
"""What makes an address from others; products and conversions make offsets."""


class Kernel:
    """PTX of one kernel, whose arguments have the names *arguments*."""

    def __init__(self, text: str, arguments: Sequence[str]) -> None:
        self.text, self.arguments = text, arguments
        entry, body = text.split(".entry", 1)[1].split(")", 1)
        assert entry.count(".param") == len(arguments), f"{entry.count('.param')} arguments, not {arguments}"
        self._first = text[: text.index(body)].count("\n")
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        for number, line in enumerate(body.split(".section", 1)[0].splitlines(), self._first):
            self._read(number, line.split("//")[0])

    def _read(self, number: int, line: str) -> None:
        if label := LABEL.match(line):
            self.labels[label[1]] = len(self.instructions)
        # inline PTX has several statements a line
        for statement in re.split(r"(?<=;)\s+(?=@|[a-z])", line.strip()):
            found = STATEMENT.match(statement.strip("{ \t"))
            if found and not statement.startswith((".", "$")):
                predicate, name, operands = found.groups()
                self.instructions.append(Instruction(number + 1, statement, predicate or "", name, operands))

    @cached_property
    def _definitions(self) -> dict[str, list[Instruction]]:
        found: dict[str, list[Instruction]] = defaultdict(list)
        for each in self.instructions:
            if register := re.match(r"[{\s]*(%\w+)", each.operands):
                found[register[1]].append(each)
        return found

    def comes_from(self, register: str) -> set[str]:
        """Names of the arguments that an address in *register* begins with, or is looked up in."""
        names: set[str] = set()
        known: set[str] = set()
        ahead = [register]
        while ahead:
            if (here := ahead.pop()) in known:
                continue
            known.add(here)
            for each in self._definitions[here]:
                names.update(self.arguments[int(n)] for n in re.findall(r"_param_(\d+)", each.operands))
                kind = each.suffixes[0]
                used = re.findall(r"%\w+", each.operands)[1:]
                if kind == "mad":
                    used = used[-1:]
                if kind in ADDRESS_OF or (kind == "ld" and each.suffixes[-1] == "b64"):
                    ahead += [other for other in used if other.startswith("%rd")]
        return names

    def words(self, instruction: Instruction) -> set[str]:
        """Names that the address of *instruction* comes from."""
        return self.comes_from(instruction.address)

    def successors(self, at: int) -> list[int]:
        here = self.instructions[at]
        if here.name in ("ret", "exit", "trap"):
            return []
        # a loop of its own label inside inline PTX waits for a load: nothing happens there
        target = TARGET.search(here.operands) if here.suffixes[0] == "bra" else None
        if not target:
            return [at + 1] if at + 1 < len(self.instructions) else []
        return [self.labels[target[0]], *([at + 1] if here.predicate else [])]


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds on one path, as far as the rules ask."""

    unmet: bool = False
    """Threads have stored and not met since (rule 1)."""
    bulk: str = ""
    """Of this block's bulk stores: "" none or all in order, "sent", "written", "fenced" (rule 2)."""
    last_may_fly: bool = False
    unfenced: bool = False
    """Rows were waited for, and the bulk copy engine was not told (rule 3)."""
    unseen: bool = False
    """The block has counted itself in without seeing what others had stored before they did (rule 4)."""

    def after(self, here: Instruction, words: set[str]) -> Facts:
        if here.suffixes[0] == "atom" and "add" in here.suffixes and words & COUNTED:
            return replace(self, unseen="acq_rel" not in here.suffixes)
        match [] if here.predicate else here.suffixes:  # what only some threads do orders nothing
            case ["bar" | "barrier", "sync", *_]:
                return replace(self, unmet=False, bulk="" if self.bulk == "fenced" else self.bulk)
            case ["fence", "proxy", "async"] | ["fence", "proxy", "async", "global"]:
                return replace(self, unfenced=False, bulk="fenced" if self.bulk == "written" else self.bulk)
            case ["cp", "async", "bulk", "wait_group"] if self.bulk or self.last_may_fly:
                left = int(here.operands)
                if left == 0 or (left == 1 and self.bulk == "sent"):
                    return replace(self, bulk="written", last_may_fly=left == 1)
        if here.is_bulk_store:
            return replace(self, bulk="sent", last_may_fly=True)
        if here.is_store and "error" not in words:
            return replace(self, unmet=True)
        if "acquire" in here.suffixes and "counters_at" in words:
            return replace(self, unfenced=True)
        return self


def order(kernel: Kernel) -> list[str]:
    """Rules 1 to 4 on every path: what was stored is there before it is signalled, and seen before it is loaded."""
    broken: dict[str, None] = {}
    words = {
        at: kernel.words(each) if each.address else set[str]() for at, each in enumerate(kernel.instructions)
        if each.is_store or each.is_atomic or each.is_bulk_load
    }  # fmt: skip
    known: set[tuple[int, Facts]] = set()
    ahead = [(0, Facts())]
    while ahead:
        at, facts = state = ahead.pop()
        if state in known:
            continue
        known.add(state)
        here = kernel.instructions[at]
        broken |= dict.fromkeys(_breaks(here, words.get(at, set()), facts))
        after = facts.after(here, words.get(at, set()))
        ahead += [(following, after) for following in kernel.successors(at)]
    return list(broken)


def _breaks(here: Instruction, words: set[str], facts: Facts) -> Iterator[str]:
    where = f"line {here.line}: {here.text}"
    if here.is_atomic and here.is_release and words != {"error"}:
        if facts.unmet:
            yield f"{where} -- threads have stored and not met (bar.sync) before this signal"
        if facts.bulk:
            yield f"{where} -- bulk stores are only {facts.bulk}; then come written, fenced, and bar.sync"
        if facts.unseen and words & SIGNALS:
            yield f"{where} -- this block has counted itself in relaxed, and signals for others"
        if facts.last_may_fly and not facts.bulk and not words <= {"counters_at"}:
            yield f"{where} -- the last bulk store may still be on its way"
    if here.is_bulk_load and facts.unfenced and words & ARRIVES:
        yield f"{where} -- rows were waited for, without fence.proxy.async before the bulk copy engine reads them"


def scopes(kernel: Kernel) -> list[str]:
    """Rules 1, 3 and 4: words of several ranks by `.sys`, raised with release, polled, and read with acquire."""
    broken = []
    acquired: set[str] = set()
    polled: set[str] = set()
    for each in kernel.instructions:
        touches = each.is_atomic or (each.suffixes[0] in ("ld", "st") and "global" in each.suffixes)
        words = kernel.words(each) if touches else set[str]()
        where = f"line {each.line}: {each.text} ({', '.join(sorted(words)) or 'unknown'})"
        if each.is_atomic:
            if not words <= SIGNALS | OWN or not words:
                broken.append(f"{where} -- nobody says whose word this is")
            if words & SIGNALS and "sys" not in each.suffixes:
                broken.append(f"{where} -- peers touch this word: sys")
            if words & SIGNALS and each.suffixes[0] in ("atom", "red") and not each.is_release:
                broken.append(f"{where} -- a signal is a release")
            acquired |= words if "acquire" in each.suffixes else set()
            polled |= words if "ld" in each.suffixes and "relaxed" in each.suffixes else set()
        elif words & SIGNALS and (each.is_store or each.suffixes[-1] != "b64"):  # b64: the table itself
            broken.append(f"{where} -- a signal that is not atomic")
    polled.discard("error")  # it ends waits and hands no data over
    return broken + [f"{word} is polled and never read with acquire" for word in sorted(polled - acquired)]


# What rests on how one version of Triton puts things: bulk groups, adds behind their wait, barriers of whole blocks.


def groups(kernel: Kernel) -> list[str]:
    """One commit group a bulk store: else a wait for all groups but one waits for another number of stores."""
    broken: dict[str, None] = {}
    known: set[tuple[int, str]] = set()
    ahead = [(0, "")]  # the target of stores that no group holds yet
    while ahead:
        at, target = state = ahead.pop()
        if state in known:
            continue
        known.add(state)
        here = kernel.instructions[at]
        where = f"line {here.line}: {here.text}"
        if here.is_bulk_store:
            if target not in ("", here.address):
                broken[f"{where} -- two bulk stores share a group"] = None
            target = here.address
        elif here.name.startswith("cp.async.bulk.commit_group"):
            if not target:
                broken[f"{where} -- a group without a store"] = None
            target = ""
        elif target and here.name.startswith("cp.async.bulk.wait_group"):
            broken[f"{where} -- a bulk store is in no group, so that nobody waits for it"] = None
        ahead += [(following, target) for following in kernel.successors(at)]
    return list(broken)


def waits_before_adds(kernel: Kernel) -> list[str]:
    """On every path to a bulk add stands a place from which its wait may come first: never the add, then the wait."""
    before: dict[int, list[int]] = defaultdict(list)
    for at in range(len(kernel.instructions)):
        for following in kernel.successors(at):
            before[following].append(at)
    waited: set[int] = set()
    ahead = [at for at, each in enumerate(kernel.instructions)
             if "acquire" in each.suffixes and kernel.words(each) & SIGNALS]  # fmt: skip
    while ahead:
        if (at := ahead.pop()) not in waited and not kernel.instructions[at].is_bulk_add:
            waited.add(at)
            ahead += before[at]
    broken: dict[str, None] = {}
    known: set[tuple[int, bool]] = set()
    paths = [(0, False)]
    while paths:
        at, asked = state = paths.pop()
        if state in known:
            continue
        known.add(state)
        here, asked = kernel.instructions[at], asked or at in waited
        if here.is_bulk_add:
            if not asked:
                broken[f"line {here.line}: {here.text} -- it adds before what it adds to was waited for"] = None
            asked = False
        paths += [(following, asked) for following in kernel.successors(at)]
    return list(broken)


def roles(kernel: Kernel) -> list[str]:
    """All threads of a block meet at barrier 0: no code that only some of its warps run may hold one."""
    apart: set[str] = {"%tid.x", "%laneid", "%warpid"}
    grown = True
    while grown:  # values by which threads of a block differ, through arithmetic
        new = {first[0] for each in kernel.instructions if each.suffixes[0] not in ("ld", "bra", "bar")
               and (first := re.match(r"[{\s]*(%?\w+)", each.operands)) and first[0] not in apart
               and apart & set(re.findall(r"%[\w.]+", each.operands)[1:])}  # fmt: skip
        grown, apart = bool(new), apart | new
    special = any(each.name.startswith("setmaxnreg") for each in kernel.instructions)
    inside: set[int] = set()
    for at, each in enumerate(kernel.instructions):
        if each.suffixes[0] == "bra" and apart & set(re.findall(r"%\w+", each.predicate)):
            to = next((other for other in kernel.successors(at) if other != at + 1), at)
            inside |= set(range(min(at, to), max(at, to)))
    return [
        f"line {each.line}: {each.text} -- {why}"
        for at, each in enumerate(kernel.instructions)
        if each.suffixes[0] in ("bar", "barrier") and re.search(r"(^|, )0($|,)", each.operands)
        for why in [
            "warps of this block have roles of their own, and barrier 0 is everybody's" if special else
            "only some threads come to this barrier 0" if each.predicate or at in inside else ""
        ] if why
    ]  # fmt: skip


ORDERED = {"lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"}


def distances(kernel: Kernel) -> list[str]:
    """Numbers that wrap: a counter is subtracted from what it is to reach, and never compared with it by size.

    One thread reads a counter and hands it to the others through shared memory.
    """
    values: set[str] = set()
    handed, broken = False, []
    for each in kernel.instructions:
        first = re.match(r"%?\w+", each.operands)
        used = set(re.findall(r"%?\w+", each.operands))
        if each.suffixes[0] == "ld" and first and (each.is_atomic and kernel.words(each) & SIGNALS):
            values.add(first[0])
        elif each.name.startswith("st.shared") and values & used:
            handed = True
        elif each.name.startswith("ld.shared") and first and handed:
            values.add(first[0])
            handed = False
        elif each.suffixes[0] == "setp" and ORDERED & set(each.suffixes) and values & used:
            broken.append(f"line {each.line}: {each.text} -- a counter is compared by size, and it wraps")
    return broken


def widths(kernel: Kernel) -> list[str]:
    """What leaves for peers leaves as 16 bytes a thread, and packets whole and strong (rule 5)."""
    broken = []
    for each in kernel.instructions:
        plain_load = each.suffixes[0] == "ld" and "global" in each.suffixes
        words = kernel.words(each) if each.is_store or plain_load else set[str]()
        where = f"line {each.line}: {each.text}"
        if each.is_store and not words & (STAYS | OWN | PACKETS) and each.bits != VECTOR_BITS:
            broken.append(f"{where} -- {each.bits // 8} bytes of a peer's memory at once, not {VECTOR_BITS // 8}")
        if each.is_store and words & PACKETS and ("wt" not in each.suffixes or each.bits < WORD_BITS):
            broken.append(f"{where} -- a packet is one st.global.wt of 8 bytes or more")
        if plain_load and words & PACKETS and ("volatile" not in each.suffixes or each.bits < WORD_BITS):
            broken.append(f"{where} -- a packet is read volatile, as a whole")
    return broken


def every_rule(kernel: Kernel) -> list[str]:
    """All that breaks a rule of this file."""
    by_versions = [*groups(kernel), *waits_before_adds(kernel), *roles(kernel)]
    return [*order(kernel), *scopes(kernel), *widths(kernel), *distances(kernel), *by_versions]


def spills_in_loops(sass: str, works: str = "HGMMA") -> list[str]:
    """Registers kept in memory while *works* go on: in the innermost loops that hold instructions of that name.

    HGMMA are those of the tensor cores, LDGSTS copies into shared memory.
    """
    found = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", sass)]
    tensor = [at for at, text in found if works in text]
    jumps = [(int(to[1], 16), at) for at, text in found if (to := re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text))]
    # the shortest around each: blocks that seldom run lie at the end and jump back into the middle of a loop
    around = [[jump for jump in jumps if jump[0] <= at <= jump[1]] for at in tensor]
    inner = {min(each, key=lambda jump: jump[1] - jump[0]) for each in around if each}
    assert inner, f"no loop has {works}"
    return [
        f"{at:#x}: {text}" for at, text in found for low, high in inner
        if low <= at <= high and re.search(r"\b(STL|LDL)\b", text)
    ]  # fmt: skip
