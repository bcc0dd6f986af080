"""The events of a large Plan, compiled: what `play` does step by step, to the last bit the same.

All that changes lies in two arrays, *n* of whole numbers and *x* of seconds, at the places that `large.py` deals out in
*at*: to hand many arrays from function to function would cost more than an event does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

QUEUE, UNITS, CREW, LINK, LAUNCH, PLACE = range(6)
NUMBERS = 6
"""Of each step, in a row: a step's numbers lie together, since events take steps out of order."""
ISSUE, TRANSIT, AHEAD, DELAY, START, ISSUED, LEFT, FINISH = range(8)
SECONDS = 8
"""The same of its seconds: what it costs, then when it began and ended."""


class ColumnPlaces(NamedTuple):
    """Where each column begins in *n*, and of the last four in *x*. Rows have bounds: theirs are absolute."""

    steps: int
    """NUMBERS of each step."""
    order: int
    """By place: the step."""
    followers: int
    """Bounds by step: the gates at which somebody waits for it."""
    opens: int
    """Bounds by gate: the steps that wait there."""
    behind: int
    """By launch: the one behind it on its stream, -1 for none."""
    gates: int
    """Bounds by launch: the gates of its steps."""
    ready: int
    """Bounds by queue: room for the places of all its steps, a heap whose first `waiting` are in use."""
    aside: int
    """Bounds by launch: the same of puts whose crew is busy, `standing` of them."""
    missing: int
    """By gate: how much is waited for."""
    unissued: int
    """By launch: steps."""
    free: int
    """By queue: units."""
    waiting: int
    standing: int
    busy: int
    """By launch: whether its crew moves a put."""
    touched: int
    """Queues that may choose."""
    is_touched: int
    events: int
    """What happens, a heap: twice the step, and 1 more when others see it."""
    waited_for: int
    """By step."""
    seconds: int
    """SECONDS of each step."""
    free_at: int
    """By link."""
    times: int
    """When the events happen."""


@njit(cache=True, nogil=True)
def run(at: Any, n: Any, x: Any, queues: int, begin: float) -> int:
    """Plays from *begin*, when all *queues* may choose; how many steps finish.

    Events of one moment go by step, and all of them before pools choose.
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
            step, seen = n[at.events] >> 1, n[at.events] & 1
            _pop_event(at, n, x, pending)
            pending -= 1
            if not seen:
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
    """Starts the first of a queue as long as its share is free; how many events are pending then."""
    first, waiting, free = n[at.ready + queue], n[at.waiting + queue], n[at.free + queue]
    while waiting and free:
        step = n[at.order + n[first]]
        row = at.steps + NUMBERS * step
        crew, units = n[row + CREW], n[row + UNITS]
        is_busy = crew >= 0 and n[at.busy + crew]
        if units > free and not is_busy:
            break
        _pop(n, first, waiting)
        waiting -= 1
        if is_busy:
            _push(n, n[at.aside + crew], n[at.standing + crew], n[row + PLACE])
            n[at.standing + crew] += 1
            continue
        free -= units
        if crew >= 0:
            n[at.busy + crew] = 1
        x[at.seconds + SECONDS * step + START] = now
        _push_event(at, n, x, pending, now + x[at.seconds + SECONDS * step + ISSUE], 2 * step)
        pending += 1
    n[at.waiting + queue], n[at.free + queue] = waiting, free
    return pending


@njit(cache=True, nogil=True)
def _leave(at: Any, n: Any, x: Any, step: int, now: float, touched: int) -> int:
    """The step gives its share back, and its bytes queue for the link; how many queues are touched then."""
    row, its = at.steps + NUMBERS * step, at.seconds + SECONDS * step
    queue, crew, link, launch = n[row + QUEUE], n[row + CREW], n[row + LINK], n[row + LAUNCH]
    x[its + ISSUED] = left = now
    n[at.free + queue] += n[row + UNITS]
    touched = _touch(at, n, queue, touched)
    if crew >= 0:
        n[at.busy + crew] = 0
        if n[at.standing + crew]:
            place = _pop(n, n[at.aside + crew], n[at.standing + crew])
            n[at.standing + crew] -= 1
            _push(n, n[at.ready + queue], n[at.waiting + queue], place)
            n[at.waiting + queue] += 1
    n[at.unissued + launch] -= 1
    after = n[at.behind + launch]
    if after >= 0 and not n[at.unissued + launch]:
        for i in range(n[at.gates + after], n[at.gates + after + 1]):
            touched = _open(at, n, n[i], step, touched)
    if link >= 0:
        left = max(now - x[its + AHEAD], x[at.free_at + link]) + x[its + TRANSIT]
        x[at.free_at + link] = left
    x[its + LEFT] = left
    return touched


@njit(cache=True, nogil=True)
def _open(at: Any, n: Any, gate: int, step: int, touched: int) -> int:
    """*gate* has one thing less to wait for since *step*; how many queues are touched then."""
    n[at.missing + gate] -= 1
    if n[at.missing + gate]:
        return touched
    for i in range(n[at.opens + gate], n[at.opens + gate + 1]):
        row = at.steps + NUMBERS * n[i]
        queue = n[row + QUEUE]
        n[at.waited_for + n[i]] = step
        _push(n, n[at.ready + queue], n[at.waiting + queue], n[row + PLACE])
        n[at.waiting + queue] += 1
        touched = _touch(at, n, queue, touched)
    return touched


@njit(cache=True, nogil=True)
def _touch(at: Any, n: Any, queue: int, touched: int) -> int:
    """Notes that *queue* may choose; how many are noted then."""
    if n[at.is_touched + queue]:
        return touched
    n[at.is_touched + queue] = 1
    n[at.touched + touched] = queue
    return touched + 1


@njit(cache=True, nogil=True)
def _push(n: Any, first: int, count: int, value: int) -> None:
    """Adds *value* to the heap of *count* numbers that begins at *first*."""
    hole = count
    while hole > 0 and n[first + ((hole - 1) >> 1)] > value:
        n[first + hole] = n[first + ((hole - 1) >> 1)]
        hole = (hole - 1) >> 1
    n[first + hole] = value


@njit(cache=True, nogil=True)
def _pop(n: Any, first: int, count: int) -> int:
    """Takes the smallest number out of the same."""
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
    """Adds an event to the heap of *count*: the earliest first, of one moment the smallest number."""
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
    """Takes the first event out of the same."""
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
