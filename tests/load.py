"""Load for trials of a busy computer: `python -m tests.load 8` keeps eight processes busy until Ctrl-C."""

import argparse
import multiprocessing
import time


def burn() -> None:
    """Computes for ever."""
    while True:
        sum(range(100_000))


def main() -> None:
    """Start the processes, which end with this one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processes", type=int, help="number of busy processes")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which all end (default: 3600)")
    options = parser.parse_args()
    busy = [multiprocessing.Process(target=burn, daemon=True) for _ in range(options.processes)]
    for process in busy:
        process.start()
    print(f"{options.processes} processes are busy for {options.seconds:g} s at most; Ctrl-C ends them.", flush=True)
    try:
        time.sleep(options.seconds)
    except KeyboardInterrupt:
        print("All have ended.")
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
