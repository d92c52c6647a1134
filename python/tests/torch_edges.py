"""More jobs of test_torch.py: refused calls, first uses by several threads, options of groups."""

import importlib
import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions
from torch_jobs import job, limit, raises, run, same  # run: of any of these jobs


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


@job
def refused_batch(rank, size):
    """After a batch of messages in which one is refused, collectives go on as before."""
    other = 1 - rank
    raises(ValueError, "several elements in one place", dist.batch_isend_irecv,
           [dist.P2POp(dist.irecv, torch.zeros(1).expand(2), other)])
    summed = torch.full((2,), rank + 1.0)
    dist.all_reduce(summed)
    same(summed, torch.full((2,), 3.0))
    # In opposite orders, and too large to be on their way before they are received.
    got = torch.zeros(1 << 20)
    batch = [dist.P2POp(dist.isend, torch.full((1 << 20,), float(rank)), other),
             dist.P2POp(dist.irecv, got, other)]
    for work in dist.batch_isend_irecv(batch if rank else batch[::-1]):
        limit(work.get_future())
    same(got, torch.full((1 << 20,), float(other)))


@job
def lengths(rank, size):
    """Lists and shapes that do not fit are refused, and nothing of them is dropped."""
    group, one, whole = dist.group.WORLD, torch.ones(1), torch.ones(size)
    for call, outputs, inputs, options in (
        (group.allgather_coalesced, [[one]] * size, [one, one], AllgatherOptions()),
        (group.all_gather_single_coalesced, [whole], [one, one], AllgatherOptions()),
        (group.reduce_scatter_single_coalesced, [one], [whole, whole], dist.ReduceScatterOptions()),
    ):
        raises(ValueError, "1 outputs for 2 inputs", call, outputs, inputs, options)
    raises(ValueError, "input of shape (1, 4) has not as many rows", dist.all_to_all_single,
           torch.zeros(size, 4 // size), torch.ones(1, 4))
    mine = torch.arange(6.0).view(2, 3).t() if rank == 0 else torch.ones(3)
    parts = [torch.zeros(6), torch.zeros(3)]
    dist.all_gather(parts, mine)
    same(parts[0], torch.tensor([0.0, 3.0, 1.0, 4.0, 2.0, 5.0]))
    raises(ValueError, "input has 2 elements, its output 3", dist.reduce_scatter, torch.zeros(3),
           [torch.ones(2)] * size)
    shared = list(torch.full((size, 2), float(rank)).unbind(0))
    dist.all_gather(shared, shared[0])  # where a block comes to, in one tensor with the others
    same(torch.stack(shared), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))


@job
def other_sizes(rank, size):
    """Ranks that disagree about the sizes of an all_to_all learn it at once: that which sends less
    than is expected, when it next waits for the other one."""
    before = time.monotonic()
    mine = [1, 0] if rank == 0 else [1, 1]

    def exchange():
        dist.all_to_all_single(torch.zeros(2), torch.ones(sum(mine)), [1, 1], mine)
        dist.barrier()

    said = raises(dist.DistBackendError, "MISMATCH", exchange)
    assert "rank 0 called alltoallv with 0 " in said, said
    assert time.monotonic() - before < 10


@job
def meshes(rank, size):
    """hoop.torch.ddp() computes means over the group of its device_mesh."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 1), mesh_dim_names=("shard", "replicate"))
    layer = torch.nn.Linear(1, 1, bias=False)
    net = importlib.import_module("hoop.torch").ddp(layer, device_mesh=mesh["replicate"])
    net(torch.full((1, 1), rank + 1.0)).sum().backward()
    same(layer.weight.grad, torch.full((1, 1), rank + 1.0))


@job
def first_uses(rank, size):
    """Several threads at once use the same channel for the first time."""
    sys.setswitchinterval(1e-6)
    for tag in range(60):
        got, gate = [], threading.Barrier(4)

        def message(number):
            value = torch.full((1,), float(number))
            gate.wait()
            (dist.send if rank == 0 else dist.recv)(value, 1 - rank, tag=tag)
            got.append(value.item())

        threads = [threading.Thread(target=message, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(got) == [0, 1, 2, 3], got


@job
def timeouts(rank, size):
    """Groups that are made of a group take the timeout that they are given."""
    mine = timedelta(seconds=17)
    if not torch.__version__.startswith("2.14."):  # 2.14 only splits groups with a GPU
        assert backend_of(dist.split_group(None, [[0, 1]], timeout=mine)).options._timeout == mine
    options = dist.distributed_c10d.C10DBackend.Options("hoop", mine)
    if rank == 0:
        assert backend_of(dist.shrink_group([1], pg_options=options)).options._timeout == mine


@job
def forked_with_a_lock(rank, size):
    """A forked child can end its groups, whatever the parent's other threads did at the fork."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has forked"])
    work = dist.all_reduce(torch.ones(4), async_op=True)
    if rank == 0:
        fork_inside(backend_of()._queue._lock)
        store.set("rank 0 has forked", "")
    work.wait()


def fork_inside(lock):
    with lock:
        child = os.fork()
        if child == 0:
            dist.destroy_process_group()
            os._exit(7)
    until = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, 9)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 7, ended
