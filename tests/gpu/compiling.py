"""What a rank compiles of a trial in two lists, the second with another deadline: counted by Triton's own listener."""

from __future__ import annotations

from typing import Any

from triton import knobs

from kernels.backends.base import Seat
from kernels.bench import Bench
from kernels.trial import Trial


def twice(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """By list: kernels that were compiled or read from files, the reports of compilation, and results."""
    kernels: list[bool] = []
    events: list[dict[str, Any]] = []
    knobs.compilation.listener = lambda **facts: kernels.append(facts["cache_hit"])
    bench, lists = Bench(seat, events.append), []
    for deadline_s in (20.0, 13.000000001):
        kernels.clear()
        events.clear()
        bench.wait_at_most(deadline_s)
        bench.run([Trial.from_json(entry)])
        reports = [(one["number"], one["of"]) for one in events if one.get("stage") == "compile"]
        lists.append({"kernels": len(kernels), "reports": reports,
                      "results": sum(one["kind"] == "result" for one in events)})  # fmt: skip
    bench.close()
    return {"lists": lists}
