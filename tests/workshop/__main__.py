"""A class that presses Run at once: `python -m tests.workshop --clients 30 --seconds 300` prints one JSON document.

Each client is a process of its own, as a laptop is. Trials only sleep; with `--real` ranks compute. With
`--threads` clients are threads of one process, which is how a hundred fit.
"""

from __future__ import annotations

import argparse
import json

from tests.workshop.load import Load, played


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long they keep pressing Run")
    parser.add_argument("--ranks", type=int, default=4, help="workers of the cluster; a gang has two")
    parser.add_argument("--trial-s", type=float, default=0.5, help="how long a stub trial lasts")
    parser.add_argument("--real", action="store_true", help="real trials on CPU ranks instead of stubs")
    parser.add_argument("--threads", action="store_true", help="clients are threads of one process")
    options = parser.parse_args()
    print(json.dumps(played(Load(**vars(options))), indent=1))


if __name__ == "__main__":
    main()
