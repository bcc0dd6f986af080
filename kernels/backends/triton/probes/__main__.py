"""`python3 -m kernels.backends.triton.probes`: not `host`, since a spawned process cannot import a `__main__`."""

import sys

from kernels.backends.triton.probes.host import main

if __name__ == "__main__":
    sys.exit(main())
