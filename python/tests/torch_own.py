"""Runs torch's own distributed tests, which are in its wheel, with a backend, as torch's repository does.

    BACKEND=hoop WORLD_SIZE=2 python torch_own.py [-v] [TestDistBackendWithSpawn.test_broadcast ...]
"""

import os
import sys
import tempfile

# The tests refer to gloo by name in many places, so they are told that this backend is gloo.
BACKEND = os.environ.get("BACKEND", "hoop")
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("WORLD_SIZE", "2")
_folder = tempfile.TemporaryDirectory()
os.environ["TEMP_DIR"] = _folder.name
os.environ["INIT_METHOD"] = f"file://{_folder.name}/init"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in ("barrier", "test_dir"):
    os.makedirs(os.path.join(_folder.name, _name), exist_ok=True)

import torch  # noqa: E402
from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)

_init, _new = torch.distributed.init_process_group, torch.distributed.new_group


def _init_process_group(backend=None, *arguments, **options):
    _init(BACKEND if backend == "gloo" else backend, *arguments, **options)


def _new_group(*arguments, backend=None, **options):
    return _new(*arguments, backend=BACKEND if backend == "gloo" else backend, **options)


torch.distributed.init_process_group, torch.distributed.new_group = _init_process_group, _new_group
torch.set_num_threads(1)


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Forks instead of spawning, so that torch is not imported each time.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    common_utils.run_tests(sys.argv)
