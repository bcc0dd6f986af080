"""Load for trials of a busy computer: `python -m tests.load 8` keeps eight processes busy until Ctrl-C."""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 3600.0


def burn(until: float, parent: int) -> None:
    """Computes until the moment *until* of the monotonic clock, or until the *parent* has ended, however it did."""
    while time.monotonic() < until and os.getppid() == parent:
        sum(range(100_000))


@contextmanager
def load(processes: int, seconds: float = LONGEST_S) -> Iterator[None]:
    """Keeps *processes* busy inside the `with`, for *seconds* at most."""
    until = time.monotonic() + seconds
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    busy = [spawn.Process(target=burn, args=(until, os.getpid()), daemon=True) for _ in range(processes)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.join(5)


def main() -> None:
    """Keeps processes busy until Ctrl-C, or the end of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processes", type=int, help="number of busy processes")
    parser.add_argument(
        "--seconds", type=float, default=LONGEST_S, help=f"after which all end (default: {LONGEST_S:g})"
    )
    options = parser.parse_args()
    with load(options.processes, options.seconds):
        print(
            f"{options.processes} processes are busy for {options.seconds:g} s at most; Ctrl-C ends them.", flush=True
        )
        try:
            time.sleep(options.seconds)
        except KeyboardInterrupt:
            print("All have ended.")


if __name__ == "__main__":
    main()
