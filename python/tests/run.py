"""Runs the tests of this folder over the hoop that is installed, and counts them.

    python run.py [MODULE...]      the last line: N passed, N failed, N skipped
"""

import pathlib
import sys
import unittest

here = pathlib.Path(__file__).resolve().parent
names = sys.argv[1:] or sorted(path.stem for path in here.glob("test_*.py"))
sys.path.insert(0, str(here))
result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromNames(names))
failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
for test, reason in result.skipped:
    print(f"skip {test}: {reason}")
print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
