"""Runs the tests of this folder with the installed hoop, and counts them.

    python run.py [MODULE...]      the last line: N passed, N failed, N skipped

Each module runs in a process of its own: the tests of test_torch fork, which must happen before hoop is used.
"""

import multiprocessing
import pathlib
import sys
import unittest
from concurrent.futures import ProcessPoolExecutor

here = pathlib.Path(__file__).resolve().parent


def run(name):
    """Passed, failed, skipped."""
    sys.path.insert(0, str(here))
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName(name))
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    for test, reason in result.skipped:
        print(f"skip {test}: {reason}", flush=True)
    return result.testsRun - failed - skipped, failed, skipped


if __name__ == "__main__":
    counts = [0, 0, 0]
    for name in sys.argv[1:] or sorted(path.stem for path in here.glob("test_*.py")):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            counts = [a + b for a, b in zip(counts, process.submit(run, name).result())]
    print("{} passed, {} failed, {} skipped".format(*counts))
    sys.exit(counts[1] > 0)
