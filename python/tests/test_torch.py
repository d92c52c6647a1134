"""Tests of hoop as torch's backend: each job of torch_jobs.py, torch_edges.py,
torch_ends.py and torch_training.py runs in several processes.

These are forked from this one, which imports torch once for all of them, and never hoop. torch before 2.14
(TORCH=2.13.0 torch_test.sh) does not find hoop by itself, and does not support all of it.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import multiprocessing
import multiprocessing.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TORCH = importlib.util.find_spec("torch") and importlib.metadata.version("torch")
OLD = bool(TORCH) and tuple(int(part) for part in TORCH.split(".")[:2]) < (2, 14)
HERE = pathlib.Path(__file__).resolve().parent


def rank_of(module, name, folder, size, rank):
    os.chdir(folder)
    said = os.open(f"said{rank}", os.O_CREAT | os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(said, 2)
    if OLD:
        importlib.import_module("hoop.torch")
    module.run(name, f"file://{folder}/store", size, rank)


def raises_in_one(rank, folder):
    torch = importlib.import_module("torch")
    if OLD:
        importlib.import_module("hoop.torch")
    torch.distributed.init_process_group("hoop", f"file://{folder}/store", rank=rank, world_size=3)
    torch.distributed.barrier()
    if rank == 1:
        # Its process takes a while to end after it has left the group.
        multiprocessing.util.Finalize(None, time.sleep, (0.2,), exitpriority=-1000)
        raise ValueError("this rank has had enough")
    torch.distributed.barrier()


def training_script():
    spec = importlib.util.spec_from_file_location("mnist_ddp", HERE.parent / "examples" / "mnist_ddp.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_backend = unittest.skipIf(OLD, f"torch {TORCH} does that with its own backends only")


@unittest.skipUnless(TORCH, "no torch in this environment")
class Torch(unittest.TestCase):
    def job(self, module, name, size, dies=()):
        os.environ["OMP_NUM_THREADS"] = "1"
        module = importlib.import_module(module)
        fork = multiprocessing.get_context("fork")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [fork.Process(target=rank_of, args=(module, name, folder, size, r)) for r in range(size)]
            try:
                for rank in ranks:
                    rank.start()
                for rank in ranks:
                    rank.join(240)
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.join()
            said = "\n".join((pathlib.Path(folder) / f"said{r}").read_text() for r in range(size))
        ended = [rank.exitcode for rank in ranks]
        self.assertEqual(ended, [-9 if r in dies else 0 for r in range(size)], said[-6000:])

    def test_a_script_of_processes(self):
        # Ordinary processes, from their start to their exit.
        said = subprocess.run([sys.executable, HERE.parent / "examples" / "check_env.py", "--ranks", "2"],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertIn("PyTorch over hoop works here", said.stdout)

    def test_a_script_that_takes_too_long(self):
        said = subprocess.run([sys.executable, HERE.parent / "examples" / "check_env.py", "--limit", "0.001"],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(said.returncode, 1, said.stdout + said.stderr)
        self.assertEqual(said.stdout.count("rank 1: not finished after 0.001 s (--limit)"), 1, said.stdout)
        self.assertEqual(said.stdout.count("not finished"), 2, said.stdout)

    def test_what_the_script_refuses(self):
        for options in (["--ranks", "0"], ["--ranks", "-1"], ["--limit", "0"], ["--limit", "nan"]):
            said = subprocess.run([sys.executable, HERE.parent / "examples" / "check_env.py", *options],
                                  capture_output=True, text=True, timeout=240)
            self.assertEqual((said.returncode, said.stdout), (2, ""))
            self.assertIn("expected at least 1 rank, and more than 0 seconds", said.stderr)

    @unittest.skipIf(OLD, "the script does not import hoop.torch, which an older torch needs")
    def test_what_the_training_script_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            for options, why in ((["--resume"], "--resume needs a --checkpoint that exists"),
                                 (["--fsdp", "--checkpoint", "x"], "--fsdp goes without --checkpoint"),
                                 (["--checkpoint", f"{folder}/no/x"], f"there is no folder {folder}/no"),
                                 (["--epochs", "0"], "--epochs 0 --batch 64: expected at least 1"),
                                 (["--batch", "0"], "--epochs 1 --batch 0: expected at least 1")):
                said = io.StringIO()
                with unittest.mock.patch.object(sys, "argv", ["mnist_ddp.py", *options]), \
                        contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                    training_script().main()
                self.assertIn(why, said.getvalue())
            for options, why in ((["--batch", "5000"], "each of 1 ranks has only 4096 images"),
                                 (["--data", folder], f"{folder} has no train-images*")):
                said = subprocess.run(
                    ["hooprun", sys.executable, HERE.parent / "examples" / "mnist_ddp.py", *options],
                    capture_output=True, text=True, timeout=240)
                self.assertNotEqual(said.returncode, 0)
                self.assertIn(why, said.stderr)

    def test_a_checkpoint_is_replaced_as_a_whole(self):
        save = training_script().save
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "checkpoint"
            save({"epoch": 1}, path)
            before = path.read_bytes()
            with self.assertRaises(Exception):
                save({"epoch": 2, "not to be pickled": lambda: 0}, path)
            self.assertEqual(path.read_bytes(), before)
            save({"epoch": 2}, path)
            self.assertEqual([other.name for other in path.parent.iterdir()], ["checkpoint"])

    def test_exit_with_futures_under_way(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, HERE / "torch_exit.py", f"file://{folder}/store", str(r)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for r in range(2)]
            said = [rank.communicate(timeout=240)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], "".join(said)[-6000:])

    def test_a_rank_that_raises_takes_the_others_along(self):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, HERE / "torch_raise.py", f"file://{folder}/store", str(r)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for r in range(2)]
            try:
                said = [rank.communicate(timeout=90)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
        self.assertEqual([rank.returncode for rank in ranks], [1, 1], "".join(said)[-6000:])
        self.assertIn("this rank has had enough", said[0])
        self.assertIn("rank 0", said[1])
        self.assertLess(time.monotonic() - begun, 60)

    def test_the_rank_that_raised_is_named(self):
        spawn = importlib.import_module("torch.multiprocessing.spawn")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(spawn.ProcessRaisedException, "this rank has had enough"):
                spawn.start_processes(raises_in_one, (folder,), 3, start_method="fork")

    def test_collectives(self):
        self.job("torch_jobs", "collectives", 3)

    def test_asynchronous(self):
        self.job("torch_jobs", "asynchronous", 3)

    @needs_backend
    def test_groups(self):
        self.job("torch_jobs", "groups", 3)

    @needs_backend
    def test_death(self):
        self.job("torch_jobs", "death", 3, dies=[1])

    def test_death_before_a_message(self):
        self.job("torch_jobs", "death_before_a_message", 2, dies=[1])

    def test_failed_messages(self):
        self.job("torch_jobs", "failed_messages", 3, dies=[1])

    def test_unmatched(self):
        self.job("torch_jobs", "unmatched", 2)

    def test_death_in_training(self):
        self.job("torch_jobs", "death_in_training", 2, dies=[1])

    def test_signals(self):
        self.job("torch_jobs", "signals", 2)

    def test_mismatch(self):
        self.job("torch_jobs", "mismatch", 2)

    def test_skipped_step(self):
        self.job("torch_jobs", "skipped_step", 2)

    def test_forked(self):
        self.job("torch_jobs", "forked", 2)

    @needs_backend
    def test_ends(self):
        self.job("torch_jobs", "ends", 2)

    @needs_backend
    def test_strangers(self):
        self.job("torch_jobs", "strangers", 2)

    @needs_backend
    def test_compiled(self):
        self.job("torch_jobs", "compiled", 2)

    @needs_backend
    def test_refused_batch(self):
        self.job("torch_edges", "refused_batch", 2)

    @needs_backend
    def test_lengths(self):
        self.job("torch_edges", "lengths", 2)

    @needs_backend
    def test_sizes_that_differ(self):
        self.job("torch_edges", "other_sizes", 2)

    @needs_backend
    def test_meshes(self):
        self.job("torch_edges", "meshes", 2)

    def test_first_uses(self):
        self.job("torch_edges", "first_uses", 2)

    @needs_backend
    def test_timeouts(self):
        self.job("torch_edges", "timeouts", 2)

    @needs_backend
    def test_forked_with_a_lock(self):
        self.job("torch_edges", "forked_with_a_lock", 2)

    @needs_backend
    def test_limits(self):
        self.job("torch_ends", "limits", 2)

    @needs_backend
    def test_aborted(self):
        self.job("torch_ends", "aborted", 2)

    @needs_backend
    def test_hooks_that_call_back(self):
        self.job("torch_ends", "hooks_that_call_back", 2)

    @needs_backend
    def test_callbacks_at_the_end(self):
        self.job("torch_ends", "callbacks_at_the_end", 2)

    @needs_backend
    def test_two_models(self):
        self.job("torch_ends", "two_models", 2)

    @needs_backend
    def test_refused_in_part(self):
        self.job("torch_ends", "refused_in_part", 2)

    def test_import_with_our_nccl(self):
        # All symbols are bound at once, so that a missing one fails.
        said = subprocess.run(
            ["hooprun", "--nccl", sys.executable, "-c",
             "import ctypes, torch; v = ctypes.c_int(); ctypes.CDLL(None).ncclGetVersion(ctypes.byref(v));"
             "print(v.value, torch.distributed.is_nccl_available())"],
            capture_output=True, text=True, timeout=120, env={**os.environ, "LD_BIND_NOW": "1"},
        )
        self.assertEqual(said.stdout, "23007 True\n", said.stderr)

    def test_training_has_the_bits_of_gloo(self):
        self.job("torch_training", "all", 2)


if __name__ == "__main__":
    unittest.main()
