"""The entry points of a wheel for hooprun, hoopinfo and the benchmarks, which replace this process."""

import os
import sys

from ._native import HERE


def run() -> None:
    """Executes the program that has the name of the calling script."""
    name = os.path.basename(sys.argv[0])
    program = HERE / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: {program} does not exist: this hoop was not installed from a wheel")
    os.execv(program, [str(program), *sys.argv[1:]])
