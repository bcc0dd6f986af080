"""Entry point of `python3 -m kernels.backends.triton.probes`; spawned ranks import `host`, not this `__main__`."""

import sys

from kernels.backends.triton.probes.host import main

if __name__ == "__main__":
    sys.exit(main())
