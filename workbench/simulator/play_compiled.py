"""The events of a large Plan in compiled code, bit-equal to what `play` does step by step.

All state is in two arrays, *n* of whole numbers and *x* of seconds, at the places that `play.laid_out` assigns in *at*:
passing many arrays from function to function would cost more than an event does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

QUEUE, UNITS, CREW, LINK, LAUNCH, PLACE = range(6)
NUMBERS = 6
"""Whole numbers per step. They are next to each other, because events take steps out of order."""
ISSUE, TRANSIT, OVERLAP, DELAY, START, ISSUED, LEFT, FINISH = range(8)
SECONDS = 8
"""Seconds per step: what it costs, then when it began and ended."""


class ColumnPlaces(NamedTuple):
    """Index at which each column begins: in *n*, or in *x* for the last three. Bounds of rows are absolute indices."""

    steps: int
    """NUMBERS of each step."""
    order: int
    """By place in the priority order: the step."""
    followers: int
    """Bounds by step: the gates at which other steps wait for it."""
    opens: int
    """Bounds by gate: the steps that wait there."""
    next_launch: int
    """By launch: the next one on its stream, -1 for none."""
    gates: int
    """Bounds by launch: the gates of its steps."""
    ready: int
    """Bounds by queue: room for the places of all its steps, a heap whose first `ready_count` are in use."""
    aside: int
    """Bounds by launch: a heap of puts whose crew is busy, `aside_count` of them."""
    missing: int
    """By gate: how many steps and launches it still waits for."""
    unissued: int
    """By launch: its steps that have not been issued."""
    free: int
    """By queue: free units."""
    ready_count: int
    aside_count: int
    busy: int
    """By launch: whether its crew moves a put."""
    touched: int
    """Queues that may start steps now."""
    is_touched: int
    events: int
    """Heap of events: 2 x step when a step gives its share back, 2 x step + 1 when others see that it is done."""
    waited_for: int
    """By step: the one that made it ready."""
    seconds: int
    """SECONDS of each step."""
    free_at: int
    """By link: when it is free."""
    times: int
    """Times of the events, in the order of their heap."""


@njit(cache=True, nogil=True)
def run(at: Any, n: Any, x: Any, queues: int, begin: float) -> int:
    """Play from *begin*, when all *queues* may start steps; return how many steps finish.

    Events of one moment are handled in the order of steps, and all of them before queues start new steps.
    """
    now, finished, pending, touched = begin, 0, 0, queues
    while True:
        for i in range(touched):
            queue = n[at.touched + i]
            n[at.is_touched + queue] = 0
            pending = _choose(at, n, x, queue, now, pending)
        if not pending:
            return finished
        now, touched = x[at.times], 0
        while pending and x[at.times] == now:
            step, is_visible = n[at.events] >> 1, n[at.events] & 1
            _pop_event(at, n, x, pending)
            pending -= 1
            if not is_visible:
                touched = _leave(at, n, x, step, now, touched)
                visible = x[at.seconds + SECONDS * step + LEFT] + x[at.seconds + SECONDS * step + DELAY]
                if visible > now:
                    _push_event(at, n, x, pending, visible, 2 * step + 1)
                    pending += 1
                    continue
            x[at.seconds + SECONDS * step + FINISH] = now
            finished += 1
            for i in range(n[at.followers + step], n[at.followers + step + 1]):
                touched = _open(at, n, n[i], step, touched)


@njit(cache=True, nogil=True)
def _choose(at: Any, n: Any, x: Any, queue: int, now: float, pending: int) -> int:
    """Start the first steps of a queue as long as their shares are free; return how many events are pending then."""
    first, ready_count, free = n[at.ready + queue], n[at.ready_count + queue], n[at.free + queue]
    while ready_count and free:
        step = n[at.order + n[first]]
        row = at.steps + NUMBERS * step
        crew, units = n[row + CREW], n[row + UNITS]
        is_busy = crew >= 0 and n[at.busy + crew]
        if units > free and not is_busy:
            break
        _pop(n, first, ready_count)
        ready_count -= 1
        if is_busy:
            _push(n, n[at.aside + crew], n[at.aside_count + crew], n[row + PLACE])
            n[at.aside_count + crew] += 1
            continue
        free -= units
        if crew >= 0:
            n[at.busy + crew] = 1
        x[at.seconds + SECONDS * step + START] = now
        _push_event(at, n, x, pending, now + x[at.seconds + SECONDS * step + ISSUE], 2 * step)
        pending += 1
    n[at.ready_count + queue], n[at.free + queue] = ready_count, free
    return pending


@njit(cache=True, nogil=True)
def _leave(at: Any, n: Any, x: Any, step: int, now: float, touched: int) -> int:
    """Give the step's share back and queue its bytes for the link; return how many queues are touched then."""
    row, seconds = at.steps + NUMBERS * step, at.seconds + SECONDS * step
    queue, crew, link, launch = n[row + QUEUE], n[row + CREW], n[row + LINK], n[row + LAUNCH]
    x[seconds + ISSUED] = left = now
    n[at.free + queue] += n[row + UNITS]
    touched = _touch(at, n, queue, touched)
    if crew >= 0:
        n[at.busy + crew] = 0
        if n[at.aside_count + crew]:
            place = _pop(n, n[at.aside + crew], n[at.aside_count + crew])
            n[at.aside_count + crew] -= 1
            _push(n, n[at.ready + queue], n[at.ready_count + queue], place)
            n[at.ready_count + queue] += 1
    n[at.unissued + launch] -= 1
    after = n[at.next_launch + launch]
    if after >= 0 and not n[at.unissued + launch]:
        for i in range(n[at.gates + after], n[at.gates + after + 1]):
            touched = _open(at, n, n[i], step, touched)
    if link >= 0:
        left = max(now - x[seconds + OVERLAP], x[at.free_at + link]) + x[seconds + TRANSIT]
        x[at.free_at + link] = left
    x[seconds + LEFT] = left
    return touched


@njit(cache=True, nogil=True)
def _open(at: Any, n: Any, gate: int, step: int, touched: int) -> int:
    """Note that *gate* has one thing less to wait for since *step*; return how many queues are touched then."""
    n[at.missing + gate] -= 1
    if n[at.missing + gate]:
        return touched
    for i in range(n[at.opens + gate], n[at.opens + gate + 1]):
        row = at.steps + NUMBERS * n[i]
        queue = n[row + QUEUE]
        n[at.waited_for + n[i]] = step
        _push(n, n[at.ready + queue], n[at.ready_count + queue], n[row + PLACE])
        n[at.ready_count + queue] += 1
        touched = _touch(at, n, queue, touched)
    return touched


@njit(cache=True, nogil=True)
def _touch(at: Any, n: Any, queue: int, touched: int) -> int:
    """Note that *queue* may start steps; return how many queues are noted then."""
    if n[at.is_touched + queue]:
        return touched
    n[at.is_touched + queue] = 1
    n[at.touched + touched] = queue
    return touched + 1


@njit(cache=True, nogil=True)
def _push(n: Any, first: int, count: int, value: int) -> None:
    """Add *value* to the heap of *count* numbers that begins at *first*."""
    hole = count
    while hole > 0 and n[first + ((hole - 1) >> 1)] > value:
        n[first + hole] = n[first + ((hole - 1) >> 1)]
        hole = (hole - 1) >> 1
    n[first + hole] = value


@njit(cache=True, nogil=True)
def _pop(n: Any, first: int, count: int) -> int:
    """Take the smallest number out of the heap of *count* numbers that begins at *first*."""
    smallest, last, hole = n[first], n[first + count - 1], 0
    while True:
        below = 2 * hole + 1
        if below + 1 < count and n[first + below + 1] < n[first + below]:
            below += 1
        if below >= count or n[first + below] >= last:
            break
        n[first + hole] = n[first + below]
        hole = below
    n[first + hole] = last
    return smallest


@njit(cache=True, nogil=True)
def _push_event(at: Any, n: Any, x: Any, count: int, time: float, event: int) -> None:
    """Add an event to the heap of *count*: the earliest first, and at one moment the smallest number first."""
    hole = count
    while hole > 0:
        above = (hole - 1) >> 1
        if _is_before(x[at.times + above], n[at.events + above], time, event):
            break
        x[at.times + hole], n[at.events + hole] = x[at.times + above], n[at.events + above]
        hole = above
    x[at.times + hole], n[at.events + hole] = time, event


@njit(cache=True, nogil=True)
def _pop_event(at: Any, n: Any, x: Any, count: int) -> None:
    """Take the first event out of the heap of *count* events."""
    times, events, hole = at.times, at.events, 0
    time, event = x[times + count - 1], n[events + count - 1]
    while True:
        below = 2 * hole + 1
        if below + 1 < count and _is_before(
            x[times + below + 1], n[events + below + 1], x[times + below], n[events + below]
        ):
            below += 1
        if below >= count or not _is_before(x[times + below], n[events + below], time, event):
            break
        x[times + hole], n[events + hole] = x[times + below], n[events + below]
        hole = below
    x[times + hole], n[events + hole] = time, event


@njit(cache=True, nogil=True)
def _is_before(time: float, event: int, other_time: float, other: int) -> bool:
    return time < other_time or (time == other_time and event < other)
