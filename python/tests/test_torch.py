"""hoop as torch's backend: each job of torch_jobs.py and torch_training.py over several processes."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


@unittest.skipUnless(importlib.util.find_spec("torch"), "no torch in this environment")
class Torch(unittest.TestCase):
    def job(self, script, name, size, dies=()):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, str(HERE / script), name, f"file://{folder}/store", str(size), str(r)],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
                for r in range(size)
            ]
            try:
                said = [rank.communicate(timeout=240)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
        for r in range(size):
            self.assertEqual(ranks[r].returncode, -9 if r in dies else 0, "\n".join(said)[-6000:])
            if r not in dies:
                self.assertIn("fine", said[r])

    def test_collectives(self):
        self.job("torch_jobs.py", "collectives", 3)

    def test_groups(self):
        self.job("torch_jobs.py", "groups", 3)

    def test_death(self):
        self.job("torch_jobs.py", "death", 3, dies=[1])

    def test_death_in_training(self):
        self.job("torch_jobs.py", "death_in_training", 2, dies=[1])

    def test_mismatch(self):
        self.job("torch_jobs.py", "mismatch", 2)

    def test_ends(self):
        self.job("torch_jobs.py", "ends", 2)

    def test_training_has_the_bits_of_gloo(self):
        self.job("torch_training.py", "all", 2)


if __name__ == "__main__":
    unittest.main()
