"""The entry points of a wheel for hooprun, hoopinfo and the benchmarks, which replace this process."""

import os
import sys

from ._native import HERE


def run() -> None:
    """Executes the program that has the name of the calling script."""
    name = os.path.basename(sys.argv[0])
    program = HERE / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: {program} is not there: this is no hoop from a wheel")
    os.execv(program, [str(program), *sys.argv[1:]])
