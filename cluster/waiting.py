"""For whom a request waits, in words: who is before it, who holds the workers, which of them are starting or away."""

from __future__ import annotations

from cluster.gang import Gang
from cluster.members import Member
from cluster.seating import may

_NAMED_MOST = 3


def words(gang: Gang, client: str, stream: str, at: float) -> str:
    """Of a request that is not granted yet; nothing where there is no such request."""
    request = gang.requests.get((client, stream))
    if request is None:
        return ""
    line = gang.queue(at)
    before = line.index(request) if request in line else len(line)
    able = [worker for worker in gang.workers.values() if may(worker, request.backend)]
    missed = (client, stream) in gang.unmet_since
    gone = [each for each in gang.away.values() if may(each, request.backend) and (missed or not each.lost)]
    said = [
        f"{before} {'request is' if before == 1 else 'requests are'} before",
        _held(gang, able),
        *(_starting(worker) for worker in able if worker.incarnation is None and not worker.silent_s),
        *(f"{worker.name} has not answered for {worker.silent_s:.0f} s" for worker in able if worker.silent_s),
        *(f"{worker.name} left {at - worker.left_at:.0f} s ago and may come back" for worker in gone),
    ]
    reasons = [each for each in said if each]
    return "; ".join(reasons[: 2 + _NAMED_MOST]) + ("; ..." if len(reasons) > 2 + _NAMED_MOST else "")


def _held(gang: Gang, able: list[Member]) -> str:
    """How many of the workers that could serve are in use, and by how many."""
    places = {worker.address for worker in able}
    held = {place.worker: client for (client, _), grant in gang.grants.items() for place in grant.places}
    busy = [held[worker] for worker in places & held.keys()]
    if not busy:
        return ""
    clients = len(set(busy))
    return f"{clients} {'client holds' if clients == 1 else 'clients hold'} {len(busy)} of {len(able)} workers"


def _starting(worker: Member) -> str:
    failed = "1 start" if worker.deaths == 1 else f"{worker.deaths} starts"
    return f"{worker.name} is starting" + (f" ({failed} failed)" if worker.deaths else "")
