"""The check before a release, on a host with GPUs and as users do: `python -m tests.gpu.through_dask [-o FILE]`.

Every operator, a sweep, Ctrl-C, a rank killed and one stopped in mid-sweep, two clients and two gangs at once, bad
input, report and trace, on a cluster of its own. One JSON summary is printed; the status is 1 where a check failed.
`--backend cpu` makes the same checks with CPU ranks, `--share-gpu` with ranks that share one GPU: order and results are
real then, times are not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from cluster import hosts
from kernels import files
from kernels.operators import OPERATORS
from tests.release import checks, summary
from tests.release.checks import QUICK
from tests.release.commands import Commands
from tests.release.site import Site
from tests.release.summary import FAILED, Result

WITHIN_S = 480.0
"""All checks together; on two H200s they are to take less than 300 s."""
WORLD = 2


def main(arguments: list[str] | None = None) -> int:
    chosen = _options(arguments)
    num_gpus = len(hosts.visible_gpus())
    if chosen.share_gpu and (message := hosts.sharing_refusal("world", chosen.world, num_gpus)) is not None:
        print(message, file=sys.stderr)
        return 2
    if chosen.backend == hosts.TRITON and num_gpus < chosen.world and not chosen.share_gpu:
        print(f"backend = triton needs {chosen.world} GPUs, and this host has {num_gpus}. Accepted: a "
              "host with as many, --share-gpu, or --backend cpu.", file=sys.stderr)  # fmt: skip
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    facts = summary.circumstances(chosen.backend, chosen.world, QUICK)
    found = summary.document(_run(chosen), facts)
    print(summary.text(found), end="")
    if chosen.output is not None:
        files.write(chosen.output, summary.text(found))
    return 1 if found[FAILED] else 0


def _run(chosen: argparse.Namespace) -> list[Result]:
    """The results of what was *chosen*, with whatever stopped them; afterwards nothing runs that they started."""
    every = checks.table(tuple(OPERATORS))
    names = [name for name in every if not chosen.only or name in (*chosen.only, checks.FIRST, checks.LAST)]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="through-dask-", ignore_cleanup_errors=True) as folder:
        commands = Commands(Path(folder), chosen.within)
        site = Site(commands, chosen.backend, chosen.world, share_gpu=chosen.share_gpu)
        began_at = time.monotonic()
        try:
            for result in checks.results(site, {name: every[name] for name in names}):
                results.append(result)
                checks.tell(result)
        except KeyboardInterrupt:
            results.append(Result("stopped", FAILED, time.monotonic() - began_at, "A person or the system stopped it."))
        finally:
            site.close()
    return results


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.through_dask", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="The summary as a file, too.")
    parser.add_argument("--backend", choices=(hosts.TRITON, hosts.CPU), default=hosts.TRITON)
    parser.add_argument("--share-gpu", action="store_true", help="All ranks on one GPU.")
    parser.add_argument("--world", type=int, default=WORLD, help="Ranks of the cluster, 2 or more.")
    parser.add_argument("--within", type=float, default=WITHIN_S, help="Seconds for all checks.")
    parser.add_argument("--only", nargs="+", choices=tuple(checks.table(tuple(OPERATORS))), metavar="CHECK",
                        help="These checks, the first and the last.")  # fmt: skip
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
