"""Says whether PyTorch over hoop works here, and if not, what is wrong, in plain words.

    python check_env.py [--ranks 2] [--limit 60]
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time

RANK = """
import os, sys, torch, torch.distributed as dist
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14): import hoop.torch
dist.init_process_group("hoop", init_method=sys.argv[1], world_size=int(sys.argv[2]), rank=int(sys.argv[3]))
for count in (1, 1000, 1000000):
    tensor = torch.full((count,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    assert (tensor == sum(range(1, dist.get_world_size() + 1))).all(), f"wrong sum of {count} elements"
dist.destroy_process_group()
"""


def check(good, text, remedy=""):
    print(("ok    " if good else "WRONG ") + text + ("" if good or not remedy else f"\n      {remedy}"))
    return good


def imports():
    """hoop, its library, torch and the entry point."""
    try:
        import hoop
    except ImportError as error:
        return check(False, f"hoop cannot be imported: {error}", "pip install the wheel of hoop")
    check(True, f"hoop {hoop.__version__}, Python {sys.version.split()[0]}")
    if importlib.util.find_spec("torch") is None:
        return check(False, "torch is not installed in this environment", "pip install torch")
    try:
        import torch
    except (ImportError, OSError) as error:
        return check(False, f"torch cannot be imported: {error}",
                     "its CUDA libraries are missing: pip install torch without --no-deps")
    if before_entry_points(torch):
        return check(True, f"torch {torch.__version__}, where a program must say `import hoop.torch` first")
    check(True, f"torch {torch.__version__}")
    from importlib.metadata import entry_points

    found = any(e.name == "hoop" for e in entry_points(group="torch.distributed.backends"))
    return check(found, "torch finds the backend by its entry point",
                 "hoop's metadata is not there: install the wheel, do not copy the folder")


def before_entry_points(torch):
    """Is torch older than 2.14, which looks for backends by entry points?"""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14)


def machine(ranks):
    cpus = len(os.sched_getaffinity(0))
    check(ranks <= cpus, f"{cpus} CPUs to use, for {ranks} ranks",
          "ranks that outnumber CPUs wait by sleeping: it works, slowly")
    free = shutil.disk_usage("/dev/shm").free >> 20 if os.path.isdir("/dev/shm") else 0
    check(free > 64, f"{free} MiB free in /dev/shm, where torch's data loaders share memory",
          "in a container: --shm-size; hoop itself does not need it")
    odd = [name for name in os.environ if name.startswith("HOOP_")]
    check(True, "settings: " + (", ".join(odd) if odd else "all at their defaults"))


def job(ranks, limit):
    """Runs a job of that many ranks that sums, within limit seconds."""
    until = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen([sys.executable, "-c", RANK, f"file://{folder}/store", str(ranks), str(r)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for r in range(ranks)
        ]
        good = True
        for rank, process in enumerate(processes):
            try:
                said = process.communicate(timeout=max(0, until - time.monotonic()))[0]
            except subprocess.TimeoutExpired:
                process.kill()
                said = process.communicate()[0] + f"\nnot finished after {limit:g} s (--limit)"
            if process.returncode != 0:
                last = (said.strip() or f"ended with {process.returncode}").splitlines()[-1]
                good = check(False, f"rank {rank}: {last}", said if said.strip() != last else "")
        return good and check(True, f"{ranks} ranks add 1, 1000 and 1000000 elements, and get the sum")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60, help="seconds that the ranks may take")
    given = parser.parse_args()
    if given.ranks < 1 or not given.limit > 0:
        parser.error(f"--ranks {given.ranks} --limit {given.limit:g}: expected at least 1 rank, and more than 0 "
                     "seconds")
    good = imports()
    machine(given.ranks)
    good = good and job(given.ranks, given.limit)
    print("PyTorch over hoop works here" if good else "PyTorch over hoop does not work here")
    sys.exit(not good)


if __name__ == "__main__":
    main()
