"""One rank of a test gang: reads lists of trials from stdin, runs them on a Bench, answers with their events."""

import json
import sys

from kernels.backends.base import Seat
from kernels.bench import Bench
from kernels.trial import Trial


def main() -> None:
    rank, world, session, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    events: list[dict[str, object]] = []
    seat = Seat(
        rank=rank, world=world, session=session, shares_heap=True, rendezvous=("127.0.0.1", port), deadline_s=60
    )
    bench = Bench(seat, events.append)
    for line in sys.stdin:
        events.clear()
        bench.run([Trial.from_json(entry) for entry in json.loads(line)])
        print(json.dumps(events), flush=True)
    bench.close()


if __name__ == "__main__":
    main()
