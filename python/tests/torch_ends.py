"""More jobs of test_torch.py: operations that are late, aborted groups, and calls that are refused in part."""

import gc
import importlib
import os
import threading
import time
from ctypes import byref, c_int
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from torch_edges import backend_of
from torch_jobs import job, limit, raises, run, same  # run: of any of these jobs

SOON = timedelta(seconds=0.3)
LATE = "HOOP_TIMEOUT: a timeout passed: the operation was not complete after the 0.3 s that "


@job
def limits(rank, size):
    """A call with a timeout of its own, or after set_timeout(), ends its group if it is late, however it is awaited."""
    store = dist.distributed_c10d._get_default_store()
    tensor, whole = torch.ones(3), torch.ones(3 * size)

    def options(kind, is_async, timeout=SOON):
        made = kind()
        made.timeout, made.asyncOp = timeout, is_async
        return made

    def by_call(is_async):
        return lambda group: group.allreduce([tensor], options(dist.AllreduceOptions, is_async))

    def after_set(group):
        backend_of(group).set_timeout(SOON)
        return dist.all_reduce(tensor, group=group, async_op=True)

    late = [
        (by_call(False), None, "its own timeout allows"),
        (by_call(True), lambda work: work.wait(), "its own timeout allows"),
        (by_call(True), lambda work: work.get_future().wait(), "its own timeout allows"),
        (lambda group: group.broadcast([tensor], options(dist.BroadcastOptions, True)), lambda work: work.wait(), ""),
        (lambda group: group._allgather_base(whole, tensor, options(dist._AllgatherOptions, False)), None, ""),
        (lambda group: dist.barrier(group, timeout=SOON), None, "its own timeout allows"),
        (after_set, lambda work: work.wait(), "set_timeout() allows"),
    ]
    for number, (call, wait, whose) in enumerate(late):
        if number == 4 and not hasattr(dist, "_AllgatherOptions"):
            call = lambda group: group.all_gather_single(  # noqa: E731
                whole, tensor, options(torch._C._distributed_c10d.AllgatherOptions, False))
        group = dist.new_group()
        if rank == 0:
            if number == 3:  # its root would not wait for the others
                store.wait([f"{number} is over"])
                continue
            raises(Exception, LATE + whose, lambda: call(group) if wait is None else wait(call(group)))
            assert backend_of(group).get_error() == torch._C._distributed_c10d.ErrorType.TIMEOUT
            store.set(f"{number} is over", "")
        elif number == 3:
            raises(Exception, LATE + whose, lambda: wait(call(group)))
            store.set(f"{number} is over", "")
        else:
            store.wait([f"{number} is over"])
            raises(dist.DistBackendError, "rank 0 revoked", dist.all_reduce, tensor, group=group)
    # One that is complete in time changes nothing, also when its time has come.
    for is_async in (False, True):
        work = dist.group.WORLD.allreduce([tensor], options(dist.AllreduceOptions, is_async, timedelta(seconds=2)))
        if is_async:
            work.wait()
    time.sleep(2.2)
    dist.all_reduce(tensor)
    # The timeout of a wait has no effect on the operation.
    if rank == 0:
        with dist._coalescing_manager(async_ops=True) as manager:
            for _ in range(8):
                dist.all_reduce(tensor)
        work = manager.works[0]
        raises(dist.DistBackendError, "not complete after", work.wait, SOON)
        store.set("rank 0 has waited", "")
        work.wait()
    else:
        store.wait(["rank 0 has waited"])
        for _ in range(8):
            dist.all_reduce(tensor)


@job
def aborted(rank, size):
    """Groups that are aborted give back their descriptors and threads, also if operations were running."""
    tensor, counts = torch.ones(3), []
    for number in range(5):
        group = dist.new_group()
        dist.all_reduce(tensor, group=group, async_op=True).wait()
        (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank, group)
        backend, unmatched = backend_of(group), []
        dist.barrier()
        if rank == 0:
            unmatched = [dist.all_reduce(tensor, group=group, async_op=True), dist.irecv(tensor, 1, group),
                         dist.irecv(tensor, 1, group, tag=1)]
            chained = unmatched[0].get_future().then(lambda _: raises(Exception, "", unmatched[1].wait))
        dist.distributed_c10d._abort_process_group(group)
        for work in unmatched:
            raises(dist.DistBackendError, "", work.wait, timedelta(seconds=20))
        if rank == 0:
            limit(chained)
        raises(dist.DistBackendError, "ABORTED", backend.allreduce, [tensor], dist.AllreduceOptions())
        raises(dist.DistBackendError, "ABORTED", backend.recv, [tensor], 1 - rank, 0)
        raises(dist.DistBackendError, "aborted", backend.shrink, [1 - rank])
        backend._giver.join(60)
        gc.collect()
        until = time.monotonic() + 30
        while any(thread.name.startswith("hoop meets") for thread in threading.enumerate()):
            assert time.monotonic() < until, threading.enumerate()
            time.sleep(0.01)
        dist.barrier()
        counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
    assert counts[-1] <= counts[1], counts


@job
def hooks_that_call_back(rank, size):
    """An abort hook may ask, wait for and end what it is called for."""
    backend, seen = backend_of(), []
    work = dist.all_reduce(torch.ones(3), async_op=True) if rank == 0 else None

    def hook():
        seen.append("begun")
        raises(Exception, "", work.wait)
        work.get_future()
        dist.destroy_process_group()
        seen.append("over")

    dist.barrier(dist.new_group())
    if rank == 0:
        backend.register_abort_hook(1, hook)
        ended = threading.Thread(target=raises, args=(Exception, "", work.wait), daemon=True)
        ended.start()
        ended.join(30)
        assert seen == ["begun", "over"], seen
    else:
        backend._comm.revoke()


@job
def callbacks_at_the_end(rank, size):
    """The callback of one operation may wait for a later one, also when the group is shut down, and even if the thread
    for futures is slow."""
    store, group = dist.distributed_c10d._get_default_store(), dist.new_group()
    if rank == 1:
        store.wait(["rank 0 goes"])
    works = [dist.all_reduce(torch.ones(3), group=group, async_op=True) for _ in range(2)]
    waiter = importlib.import_module("hoop.torch._queue").Waiter
    ready = waiter._ready

    def slow(self, fd):
        time.sleep(0.5)
        ready(self, fd)

    with mock.patch.object(waiter, "_ready", slow):
        later = works[1].get_future()
        chained = works[0].get_future().then(lambda _: later.wait()[0])
        store.set(f"rank {rank} goes", "")
        ended = threading.Thread(target=dist.destroy_process_group, args=(group,), daemon=True)
        ended.start()
        ended.join(30)
        assert not ended.is_alive(), "destroy_process_group() hangs"
        same(limit(chained), torch.full((3,), float(size)))


@job
def two_models(rank, size):
    """Two models may share a Buckets, also in one backward()."""
    hoop = importlib.import_module("hoop.torch")
    state = hoop.Buckets()
    inner = [torch.nn.Linear(64, 64, bias=False) for _ in range(2)]
    nets = [torch.nn.parallel.DistributedDataParallel(one) for one in inner]
    for net in nets:
        net.register_comm_hook(state, hoop.bucket_hook)
    for _ in range(3):
        for net in nets:
            net.zero_grad()
        sum(net(torch.full((1, 64), scale * (rank + 1.0))).sum() for net, scale in zip(nets, (1.0, 100.0))).backward()
        for one, scale in zip(inner, (1.0, 100.0)):
            same(one.weight.grad, torch.full((64, 64), scale * (size + 1) / 2))
    assert len(state._places) == 2, state._places


@job
def refused_in_part(rank, size):
    """A coalesced call with a tensor that is refused leaves no operation behind."""
    lib = importlib.import_module("hoop._native").lib
    handle = backend_of().handle

    def number():
        made, factor = c_int(), torch.ones(1)
        assert lib.hoop_red_op_create_pre_mul_sum(byref(made), factor.data_ptr(), 7, 1, handle) == 0
        assert lib.hoop_red_op_destroy(made.value, handle) == 0
        return made.value

    before = number()
    for _ in range(5):
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = dist._make_nccl_premul_sum(2.0)
        raises(ValueError, "several elements in one place", dist.group.WORLD.allreduce_coalesced,
               [torch.ones(3), torch.ones(1).expand(3)], options)
    assert number() == before, (number(), before)
