"""hoop as torch's backend against gloo: a table of the aims, and whether they are met.

    against_gloo.py [ROUNDS]      run by against_gloo.sh

Ranks of one thread each, on this machine, which run this script as torchrun would have them do. In each
round every case is measured once over either, one right after the other, by the same processes with
tensors of the same kind, for the same time, behind a part of it that does not count: what the other side
leaves is cold caches, and maybe both ranks on one CPU. A ratio is of the fastest rounds, gloo's time over
hoop's, as rank 0 has them; behind it are the medians of both, in microseconds. Training is compared by its
medians and over all ranks, for a step takes now this long and now that, and ranks in step wait for the slower
one: what is left of processes that train alone when they only meet in a barrier after each step stands behind.
Not pinned. With 7 ROUNDS it takes some two minutes.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))
SPAN, BEFORE = 0.04, 0.01  # seconds that a measurement takes, about, and what is called before it
KIB, MIB = 1 << 10, 1 << 20


class Sides:
    """The same ranks with both backends, and the measurements."""

    def __init__(self, rank, size, url, rounds):
        import hoop.torch

        hoop.torch.register()
        dist.init_process_group("hoop", init_method=url, world_size=size, rank=rank)
        self.hoop, self.gloo = dist.group.WORLD, dist.new_group(backend="gloo")
        self.backend = self.hoop._get_backend(torch.device("cpu"))
        self.empty = hoop.torch.empty
        self.rank, self.size, self.rounds = rank, size, rounds

    def timed(self, call, count, before=0):
        """Seconds that a call takes, on average of so many behind some before, which all ranks begin at once:
        gloo's barrier lets one go 0.1 ms before the other."""
        for _ in range(before):
            call()
        dist.barrier(group=self.gloo)
        dist.barrier(group=self.hoop)
        begun = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begun) / count

    def agreed(self, call):
        """How many calls take SPAN, and how many BEFORE: rank 0 says, at a second look, for first calls are slow."""
        counts = torch.tensor([3, 1])
        for _ in range(2):
            each = self.timed(call, *counts.tolist())
            counts = torch.tensor([max(2, int(SPAN / each)), max(1, int(BEFORE / each))])
            dist.broadcast(counts, 0, group=self.gloo)
        return counts.tolist()

    def measured(self, *calls, count=None, rounds=None):
        """Each call's times, in turn; without a count each call is measured for the same time."""
        for call in calls:
            call()
        counts = [(count, 0) if count else self.agreed(call) for call in calls]
        every = [[] for _ in calls]
        turn = list(zip(calls, every, counts))
        for _ in range(rounds or self.rounds):
            for call, times, (timed, before) in turn:
                times.append(self.timed(call, timed, before))
            turn.reverse()  # so that none is always behind the same other
        return every

    def row(self, case, wanted, got, unit="x", more=""):
        if self.rank == 0:
            met = got >= wanted if unit == "x" else got <= wanted
            sign = ">=" if unit == "x" else "<="
            print(f"| {case} | {sign} {wanted:g} {unit} | {got:.2f} {unit} | {'met' if met else 'not met'} | {more} |",
                  flush=True)

    def compared(self, case, wanted, theirs, ours):
        medians = f"{statistics.median(theirs) * 1e6:.4g} / {statistics.median(ours) * 1e6:.4g}"
        self.row(case, wanted, min(theirs) / min(ours), more=medians)

    # -- Collectives --------------------------------------------------------------------------

    def ratio(self, case, wanted, call):
        """Compares call(group) for both groups, with the same tensors."""
        self.compared(case, wanted, *self.measured(lambda: call(self.gloo), lambda: call(self.hoop)))

    def all_reduce(self, bytes, wanted, memory="ordinary"):
        make = self.empty if memory == "hoop's" else torch.zeros
        theirs, ours = torch.zeros(bytes // 4), make(bytes // 4)
        self.compared(f"all_reduce, {size_text(bytes)}, {memory} memory", wanted,
                      *self.measured(lambda: dist.all_reduce(theirs, group=self.gloo),
                                     lambda: dist.all_reduce(ours, group=self.hoop)))

    def others(self, wanted):
        whole = torch.zeros(MIB // 4)
        part, other = whole[: len(whole) // self.size].clone(), torch.zeros_like(whole)
        self.ratio("all_gather, 1 MiB", wanted,
                   lambda group: dist.all_gather_into_tensor(whole, part, group=group))
        self.ratio("reduce_scatter, 1 MiB", wanted,
                   lambda group: dist.reduce_scatter_tensor(part, whole, group=group))
        self.ratio("broadcast, 1 MiB", wanted, lambda group: dist.broadcast(whole, 0, group=group))
        self.ratio("all_to_all, 1 MiB", wanted,
                   lambda group: dist.all_to_all_single(other, whole, group=group))

    def overhead(self, wanted):
        from hoop._native import lib

        tensor = torch.zeros(1)
        address, handle, function = tensor.data_ptr(), self.backend.handle, lib.hoop_all_reduce
        blocking = dist.AllreduceOptions()
        blocking.asyncOp = False
        # Many short measurements, so that a disturbance affects only one.
        times = [min(each) for each in self.measured(
            lambda: dist.all_reduce(tensor),
            lambda: self.hoop.allreduce([tensor], blocking),
            lambda: self.backend.allreduce([tensor], blocking),
            lambda: function(address, address, 1, 7, 0, handle, None), count=300, rounds=30 * self.rounds)]
        verb, c10d, package = [(outer - inner) * 1e6 for outer, inner in zip(times, times[1:])]
        self.row("all_reduce of 4 bytes, over a bare ctypes call", wanted, verb + c10d + package, "us",
                 f"torch's verb {verb:.2f}, c10d with its recorder {c10d:.2f}, this package {package:.2f}")

    # -- Training -----------------------------------------------------------------------------

    def trainer(self, group, meets=False):
        """Steps of training the example's net. Without a group each rank trains alone, and may meet the others in a
        barrier after each step."""
        from mnist_ddp import Net

        torch.manual_seed(1)
        net = Net()
        if group is not None:
            net = torch.nn.parallel.DistributedDataParallel(
                net, process_group=group, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        images, labels = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))

        def step():
            optimizer.zero_grad()
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            if meets:
                dist.barrier()

        return step

    def of_all(self, times):
        """The time of each round, in seconds, if all ranks had their mean speed."""
        every = [None] * self.size
        dist.all_gather_object(every, times, group=self.gloo)
        return [statistics.harmonic_mean(of_round) for of_round in zip(*every)]

    def training(self, wanted, alone=None):
        sides = [self.trainer(self.gloo), self.trainer(self.hoop)]
        if alone is not None:
            sides += [self.trainer(None), self.trainer(None, meets=True)]
        every = self.measured(*sides, count=2, rounds=4 * self.rounds)
        gloo, hoop, *others = [statistics.median(self.of_all(times)) for times in every]
        case = f"MNIST, DDP, batch 64, {self.size} ranks: samples/s, of "
        self.row(case + "gloo's", wanted, gloo / hoop, more=f"{gloo * 1e6:.4g} / {hoop * 1e6:.4g}")
        if alone is not None:
            single, meeting = others
            self.row(case + "processes that train alone", alone, single / hoop,
                     more=f"{single * 1e6:.4g} / {hoop * 1e6:.4g}; with a barrier a step {single / meeting:.2f} x")


def size_text(bytes):
    return next(f"{bytes // unit} {name}" for unit, name in ((MIB, "MiB"), (KIB, "KiB"), (1, "B"))
                if bytes >= unit)


def two(sides):
    for bytes in (4, KIB, 8 * KIB, 64 * KIB):
        sides.all_reduce(bytes, 15)
    for memory, small, large in (("ordinary", 12, 6), ("hoop's", 15, 8)):
        for bytes in (MIB, 4 * MIB, 16 * MIB, 64 * MIB):
            sides.all_reduce(bytes, small if bytes <= 4 * MIB else large, memory)
    sides.others(4)
    sides.overhead(8)
    sides.training(1.05, alone=0.95)


def four(sides):
    sides.training(1)


def rank_of(body, rank, size, url, rounds):
    torch.set_num_threads(1)
    body(Sides(int(rank), int(size), url, int(rounds)))
    dist.destroy_process_group()


def job(body, size, rounds):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, body.__name__, str(rank), str(size),
                                   f"file://{folder}/store", str(rounds)]) for rank in range(size)]
        codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(f"a rank ended with {codes}")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {rounds} rounds; gloo's time / hoop's\n")
    print("| case | to reach | measured | | medians |\n|---|---|---:|---|---|", flush=True)
    job(two, 2, rounds)
    job(four, 4, rounds)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        rank_of({"two": two, "four": four}[sys.argv[1]], *sys.argv[2:])
    else:
        main()
