"""hooprun, hoopinfo and the benchmarks, as a wheel brings them: run in this process's place."""

import os
import sys

from ._native import HERE


def run() -> None:
    """What the scripts of a wheel call: the program of their own name."""
    name = os.path.basename(sys.argv[0])
    program = HERE / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: {program} is not there: this is no hoop from a wheel")
    os.execv(program, [str(program), *sys.argv[1:]])
