"""The jobs of test_torch.py.

They do not import hoop first: torch finds the backend by itself. What gloo can do as well is compared with gloo,
bit by bit.
"""

import contextlib
import importlib
import itertools
import os
import pathlib
import signal
import statistics
import threading
import time
import warnings
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist

torch.set_num_threads(1)
JOBS = {}
NUMBERS = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32,
           torch.float64, torch.bfloat16]
OTHERS = [torch.bool, torch.int16, torch.uint16, torch.complex64, torch.complex128,
          torch.float8_e4m3fn, torch.float8_e5m2]


def job(function):
    JOBS[function.__name__] = function
    return function


def values(rank, count, dtype):
    """Small whole numbers, whose sums have the same bits in any order."""
    return ((torch.arange(count) + rank) % 3).to(dtype)


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape, (got, want)
    if got.is_floating_point() and got.dtype.itemsize == 1:
        got, want = got.view(torch.uint8), want.view(torch.uint8)  # torch does not compare fp8
    assert torch.equal(got, want), (got, want)


def raises(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), error
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def forms(call, make):
    """Makes a call blocking and asynchronously, with contiguous and with other tensors."""
    for is_async, strided in itertools.product((False, True), (False, True)):
        def shaped(tensor):
            if not strided:
                return tensor.clone()
            wide = torch.zeros((tensor.numel(), 2), dtype=tensor.dtype)
            wide[:, 0] = tensor
            return wide[:, 0]

        got, want = make(shaped)
        work = call(got, is_async)
        if is_async:
            work.wait()
        for g, w in zip(got, want):
            same(g, w)


@job
def collectives(rank, size):
    everyone = range(size)
    for dtype in NUMBERS + OTHERS:
        for count in (0, 1, 3000) if dtype is torch.float32 else (5,):
            mine = values(rank, count, dtype)
            every = [values(r, count, dtype) for r in everyone]
            for root in (0, size - 1):
                forms(lambda t, a: dist.broadcast(t[0], root, async_op=a),
                      lambda s: ([s(mine)], [every[root]]))
                forms(lambda t, a: dist.gather(t[0], t[1:] if rank == root else None, root, async_op=a),
                      lambda s: ([s(mine)] + [s(torch.zeros_like(mine)) for _ in everyone],
                                 [mine] + (every if rank == root else [torch.zeros_like(mine)] * size)))
                forms(lambda t, a: dist.scatter(t[0], t[1:] if rank == root else None, root, async_op=a),
                      lambda s: ([s(torch.zeros_like(mine))] + [s(e) for e in every],
                                 [every[rank]] + every))
            forms(lambda t, a: dist.all_gather(t[1:], t[0], async_op=a),
                  lambda s: ([s(mine)] + [s(torch.zeros_like(mine)) for _ in everyone], [mine] + every))
            forms(lambda t, a: dist.all_gather_into_tensor(t[1], t[0], async_op=a),
                  lambda s: ([s(mine), s(torch.cat(every))], [mine, torch.cat(every)]))
            forms(lambda t, a: dist.all_to_all_single(t[0], t[1], async_op=a),
                  lambda s: ([s(torch.zeros(size * count, dtype=dtype)), s(torch.cat([mine] * size))],
                             [torch.cat(every)]))
            forms(lambda t, a: dist.all_to_all(t[:size], t[size:], async_op=a),
                  lambda s: ([s(torch.zeros_like(mine)) for _ in everyone] + [s(mine) for _ in everyone],
                             every))
    reductions(rank, size)
    uneven(rank, size)
    coalesced(rank, size)
    sparse(rank, size)
    messages(rank, size)
    refusals(rank, size)


def reductions(rank, size):
    op = dist.ReduceOp
    folds = {op.SUM: torch.add, op.PRODUCT: torch.mul, op.MIN: torch.minimum, op.MAX: torch.maximum,
             op.BAND: torch.bitwise_and, op.BOR: torch.bitwise_or, op.BXOR: torch.bitwise_xor}
    bits = (op.BAND, op.BOR, op.BXOR)
    for dtype, (kind, function) in itertools.product(NUMBERS + OTHERS[:5], folds.items()):
        if kind in bits and (dtype.is_floating_point or dtype.is_complex):
            continue
        if dtype.is_complex and kind != op.SUM:
            continue
        if dtype is torch.uint16:
            continue  # torch has no arithmetic for it
        every = [values(r, 3 * size, dtype) for r in range(size)]
        want = every[0]
        for other in every[1:]:
            want = function(want, other)
        mine = every[rank]
        forms(lambda t, a: dist.all_reduce(t[0], kind, async_op=a), lambda s: ([s(mine)], [want]))
        forms(lambda t, a: dist.reduce(t[0], 1, kind, async_op=a),
              lambda s: ([s(mine)], [want] if rank == 1 else []))
        part = want.view(size, 3)[rank]
        forms(lambda t, a: dist.reduce_scatter_tensor(t[0], t[1], kind, async_op=a),
              lambda s: ([s(torch.zeros_like(part)), s(mine)], [part]))
        forms(lambda t, a: dist.reduce_scatter(t[0], t[1:], kind, async_op=a),
              lambda s: ([s(torch.zeros_like(part)), *map(s, mine.view(size, 3))], [part]))
    mean = torch.full((4,), float(rank))
    dist.all_reduce(mean, op.AVG)
    same(mean, torch.full((4,), (size - 1) / 2))
    scaled = torch.ones(4)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0 + rank))
    same(scaled, torch.full((4,), sum(2.0 + r for r in range(size))))
    exact = torch.ones(4, dtype=torch.float64)
    dist.all_reduce(exact, dist._make_nccl_premul_sum(0.1 if rank == 0 else 0.0))
    same(exact, torch.full((4,), 0.1, dtype=torch.float64))
    whole = torch.ones(4, dtype=torch.int32)
    dist.all_reduce(whole, dist._make_nccl_premul_sum(2.0 + rank))
    same(whole, torch.full((4,), sum(2 + r for r in range(size)), dtype=torch.int32))
    for factor in (0.5, 2.0**31):
        raises(ValueError, f"the factor {factor}, expected a whole number", dist.all_reduce, whole,
               dist._make_nccl_premul_sum(factor))
    for shape in ((), (1,), (2, 3)):
        shaped = torch.full(shape, 1.0)
        dist.all_reduce(shaped)
        same(shaped.reshape(-1), torch.full(shape, float(size)).reshape(-1))
    one = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (1,))
    dist.all_reduce(one)
    same(one.to_dense(), torch.full((1,), float(size)))


def uneven(rank, size):
    sizes = [[1 + (r + q) % 3 for q in range(size)] for r in range(size)]
    into = torch.zeros(sum(sizes[r][rank] for r in range(size)), 2)
    outof = torch.full((sum(sizes[rank]), 2), float(rank))
    dist.all_to_all_single(into, outof, [sizes[r][rank] for r in range(size)], sizes[rank])
    same(into, torch.cat([torch.full((sizes[r][rank], 2), float(r)) for r in range(size)]))
    parts = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(parts, torch.full((rank + 1,), float(rank)))
    for r, part in enumerate(parts):
        same(part, torch.full((r + 1,), float(r)))
    target = torch.zeros(rank + 1)
    dist.reduce_scatter(target, [torch.ones(r + 1) for r in range(size)])
    same(target, torch.full((rank + 1,), float(size)))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "long": "x" * rank})
    assert objects == [{"rank": r, "long": "x" * r} for r in range(size)]


def coalesced(rank, size):
    tensors = [torch.full((n,), rank + 1.0) for n in (1, 10, 1000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, size * (size + 1) / 2))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.broadcast(tensor.fill_(rank), 1)
    manager.wait()
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, 1))
    tensors = [torch.ones(3), torch.ones(5)]
    dist.all_reduce_coalesced(tensors)
    same(tensors[1], torch.full((5,), float(size)))


def sparse(rank, size):
    for dims in (1, 2):
        own = torch.sparse_coo_tensor(
            torch.tensor([[rank, size]] * dims), torch.tensor([1.0, 2.0]), (size + 1,) * dims)
        dist.all_reduce(own)
        want = torch.eye(size + 1) if dims == 2 else torch.ones(size + 1)
        want[(size,) * dims] = 2.0 * size
        same(own.to_dense(), want)
    # Of different shapes: entries of one rank would be outside of another's tensor.
    long = torch.sparse_coo_tensor([[10**9 - 1]], [1.0], (10**9,))
    short = torch.sparse_coo_tensor([[3]], [1.0], (4,))
    for unlike in (short if rank else long, torch.ones(4, 4).to_sparse(2 if rank else 1)):
        for is_async in (False, True):
            said = raises(ValueError, "expected the same", dist.all_reduce, unlike, async_op=is_async)
        assert f"rank {0 if rank else 1} has a sparse tensor" in said, said


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    big = 1 << 18
    got = torch.zeros(big)
    works = [dist.isend(torch.full((big,), float(rank)), after), dist.irecv(got, before)]
    for work in works:
        work.wait()
    same(got, torch.full((big,), float(before)))
    # Messages of different tags may overtake each other; a receive may be posted first.
    first, second = torch.zeros(2), torch.zeros(2)
    works = [dist.irecv(second, before, tag=2), dist.irecv(first, before, tag=1)]
    works += [dist.isend(torch.full((2,), 1.0), after, tag=1), dist.isend(torch.full((2,), 2.0), after, tag=2)]
    for work in works:
        work.wait()
    same(torch.cat([first, second]), torch.tensor([1.0, 1.0, 2.0, 2.0]))
    operations = [dist.P2POp(dist.isend, torch.tensor([rank, 5]), after),
                  dist.P2POp(dist.irecv, received := torch.zeros(2, dtype=torch.int64), before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(received, torch.tensor([before, 5]))
    one_clone(after, before)
    too_many_tags(after, before)
    foreign = type("Foreign", (dist.Store,), {})()  # a store in Python can't be cloned
    assert importlib.import_module("hoop.torch._exchange").Clone(foreign, 1).get() is foreign


def one_clone(after, before):
    """All channels of a group meet by one clone of its store, which is a connection to the store's server."""
    made, clone, group = [], dist.Store.clone, dist.new_group()
    with mock.patch.object(dist.Store, "clone", lambda store: made.append(clone(store)) or made[-1]):
        works = []
        for tag in range(5):
            works += [dist.isend(torch.ones(1), after, group, tag), dist.irecv(torch.zeros(1), before, group, tag)]
        for work in works:
            work.wait()
    assert len(made) == 1, len(made)
    dist.destroy_process_group(group)


def too_many_tags(after, before):
    """If there are many channels an error says so: the reason may be that the system gives no more."""
    group = dist.new_group()
    for tag in range(16):
        works = [dist.isend(torch.ones(1), after, group, tag), dist.irecv(torch.zeros(1), before, group, tag)]
        for work in works:
            work.wait()
    hoop, exchange = importlib.import_module("hoop"), importlib.import_module("hoop.torch._exchange")

    def refuse(**_options):
        raise hoop.SystemFailure("no more descriptors")

    with mock.patch.object(exchange, "Comm", refuse):
        for number, work in ((33, dist.isend(torch.ones(1), after, group, 16)),
                             (34, dist.irecv(torch.ones(1), before, group, 16))):
            raises(dist.DistBackendError, f"no more descriptors (this rank has {number} channels", work.wait)
        dist.barrier()  # no rank ends the patch before the others are through
    dist.destroy_process_group(group)


def refusals(rank, size):
    raises(ValueError, "expected", dist.all_gather_into_tensor, torch.zeros(size + 1), torch.zeros(1))
    raises((TypeError, RuntimeError), "bitwise", dist.all_reduce, torch.zeros(1), dist.ReduceOp.BAND)
    raises(TypeError, "AVG", dist.all_reduce, torch.zeros(1, dtype=torch.bool), dist.ReduceOp.AVG)
    for into, sizes in ((torch.zeros(size), []), (torch.zeros(size), [1] * size)):
        raises(ValueError, "float64", dist.group.WORLD.alltoall_base, into, torch.zeros(size, dtype=torch.float64),
               sizes, sizes, dist.AllToAllOptions())
    raises(ValueError, "float64", dist.group.WORLD.alltoall, [torch.zeros(1)] * size,
           [torch.zeros(1, dtype=torch.float64)] * size, dist.AllToAllOptions())
    raises(ValueError, "sends itself 2 elements, and expects 3", dist.all_to_all_single, torch.zeros(size, 3),
           torch.zeros(size, 2), [1] * size, [1] * size)
    value = torch.full((1,), float(rank + 1))
    for call in (dist.all_reduce, lambda *given, **options: dist.broadcast(*given, 0, **options),
                 lambda *given, **options: dist.all_gather_into_tensor(*given, value, **options)):
        for is_async in (False, True):
            raises(ValueError, "strides (0,) has several elements in one place", call, value.expand(size),
                   async_op=is_async)
    assert value == rank + 1
    raises(TypeError, "pg_options is object", dist.new_group, pg_options=object())
    half = torch.ones(size, dtype=torch.complex32)
    raises(TypeError, "ComplexHalf", dist.reduce_scatter_tensor, half[:1].clone(), half, dist.ReduceOp.AVG)
    # A refused receive has not taken the message.
    group, message = dist.new_group([0, 1]), torch.tensor([1.0, 2.0])
    if rank == 0:
        dist.send(message, 1, group)
    elif rank == 1:
        raises(ValueError, "several elements in one place", dist.recv, torch.zeros(1).expand(2), 0, group)
        dist.recv(got := torch.zeros(2), 0, group)
        same(got, message)
    dist.barrier()  # the group still works


@job
def asynchronous(rank, size):
    store = dist.distributed_c10d._get_default_store()
    sum_of_all = float(sum(range(1, size + 1)))
    # The other ranks call only after rank 0's call has returned.
    early = torch.full((1000,), rank + 1.0)
    if rank != 0:
        store.wait(["rank 0 has gone on"])
    work = dist.all_reduce(early, async_op=True)
    if rank == 0:
        store.set("rank 0 has gone on", "")
    work.wait()
    same(early, torch.full((1000,), sum_of_all))
    # Operations run in the order of the calls, blocking ones included; they are waited for in another order.
    tensor, works = torch.full((3,), rank + 1.0), []
    for i in range(40):
        works.append(dist.all_reduce(tensor, async_op=True))
        if i % 8 == 3:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        works.append(dist.broadcast(tensor.fill_(1.0) if i % 8 == 7 and works[-1].wait() else tensor, 1, async_op=True))
    for work in reversed(works):
        work.wait()
    assert tensor[0].item() == 1.0, tensor
    # Futures complete, and their callbacks run, even if nobody waits for the work; by then the result is in its
    # place, even in a tensor that is not contiguous.
    wide = torch.zeros((5, 2))
    wide[:, 0] = rank + 1
    doubled = dist.all_reduce(wide[:, 0], async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(doubled.wait(), torch.full((5,), 2 * sum_of_all))
    futures = []
    for group in [dist.new_group() for _ in range(3)]:
        futures += [dist.all_reduce(torch.ones(n), group=group, async_op=True).get_future() for n in (1, 9, 2000)]
    for future in reversed(torch.futures.wait_all(futures)):
        assert (future[0] == size).all()
    # If nobody holds the work its buffers stay alive; its result is there after a blocking operation behind it.
    kept = torch.ones(100)
    dist.all_reduce(kept, async_op=True)
    dist.barrier()
    same(kept, torch.full((100,), float(size)))
    # The threads that complete futures belong to the process, not to a group.
    ours = {thread.name for thread in threading.enumerate() if "hoop" in thread.name}
    assert ours == {"hoop futures", "hoop Ctrl-C"}, ours
    late_futures(size)
    at_once(rank, size)
    behind_what_is_queued()
    waiting_callbacks(size)
    chained_messages(rank, size)
    other_modes(rank, size)
    dist.all_reduce(kept, async_op=True)  # the end of the group waits for it


def late_futures(size):
    """Futures that are requested one by one when the operations are complete."""
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
    time.sleep(0.2)
    for work in works:
        same(limit(work.get_future())[0], torch.full((3,), float(size)))


def at_once(rank, size):
    """An operation that needs no other rank is complete when its future is requested."""
    alone = [dist.new_group([r]) for r in range(size)][rank]
    done = [dist.all_reduce(torch.ones(3), group=alone, async_op=True).get_future().done() for _ in range(100)]
    assert sum(done) >= 99, sum(done)


def behind_what_is_queued():
    """A blocking operation carries out what is queued before it; else libhoop's thread would do that later."""
    tensor = torch.ones(3)

    def took(waits_before):
        begun = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        if waits_before:
            work.wait()
        dist.all_reduce(tensor)
        work.wait()
        return time.perf_counter() - begun

    for _ in range(3):  # a busy machine may make one of them slow
        apart, together = [statistics.median(took(before) for _ in range(200)) for before in (True, False)]
        slow = torch.tensor([together > 1.5 * apart])
        dist.all_reduce(slow, dist.ReduceOp.MIN)
        if not slow:
            return
    raise AssertionError(f"{together * 1e6:.0f} us, and {apart * 1e6:.0f} where the first is awaited")


def waiting_callbacks(size):
    """A callback may wait for futures: of operations that it queues, of earlier ones, of other groups."""
    def reduced(group=None):
        return dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future()

    within = limit(reduced().then(lambda _: reduced().then(lambda _: reduced().wait()[0]).wait()))
    same(within, torch.full((3,), float(size)))
    other = dist.new_group()
    for first, second in ((None, None), (None, other), (other, None)):
        for _ in range(20):
            begun, last = reduced(first), reduced(second)
            same(limit(begun.then(lambda _: last.wait()[0])), torch.full((3,), float(size)))


def chained_messages(rank, size):
    """Callbacks may also wait for messages, of the same two ranks and the same tag."""
    after, before = (rank + 1) % size, (rank - 1) % size
    first, second, third = torch.zeros(1), torch.zeros(1), torch.zeros(1)

    def then(_future):
        dist.recv(second, before, tag=3)
        dist.irecv(third, before, tag=3).get_future().wait()

    chain = dist.irecv(first, before, tag=3).get_future().then(then)
    for value in (1, 2, 3):
        dist.send(torch.full((1,), float(value)), after, tag=3)
    limit(chain)
    same(torch.cat([first, second, third]), torch.tensor([1.0, 2.0, 3.0]))


def limit(future):
    """The value of a future, which must be complete within some seconds."""
    until = time.monotonic() + 20
    while not future.done():
        assert time.monotonic() < until, "the future hangs"
        time.sleep(0.001)
    return future.wait()


def other_modes(rank, size):
    """Any thread can copy a result to its place, whatever mode the caller was in."""
    after, before = (rank + 1) % size, (rank - 1) % size
    with torch.inference_mode():
        wide = torch.zeros(3, 2)
        received = dist.irecv(wide.t(), before)
        future = received.get_future()  # returns though nothing was sent yet
        assert not received.is_completed()
        dist.barrier()
        dist.isend(torch.full((2, 3), float(rank)), after).wait()
        limit(future)
    same(wide, torch.full((3, 2), float(before)))
    leaf = torch.nn.Parameter(torch.full((3, 2), float(rank)).t())
    with torch.no_grad():
        limit(dist.broadcast(leaf, 1, async_op=True).get_future())
    same(leaf.detach(), torch.ones(2, 3))


@job
def groups(rank, size):
    backend = dist.get_backend_config(dist.group.WORLD)
    assert str(backend).startswith("cpu:hoop"), backend
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert not (backend.supports_window or backend.supports_reconfigure or backend._supports_time_estimate)
    pair = dist.new_group([0, 2])
    if rank != 1:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=pair)
        assert tensor.item() == 2
    if not torch.__version__.startswith("2.14."):  # 2.14 only splits groups with a GPU
        part = dist.split_group(None, [[1, 0], [2]])
        tensor = torch.full((1,), rank + 1.0)
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == 3 and dist.get_rank(part) == [1, 0, 0][rank]
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    if rank != 1:
        raises(dist.DistBackendError, "Ranks 1 failed to pass monitoredBarrier in 500 ms", dist.monitored_barrier,
               timeout=timedelta(seconds=0.5), wait_all_ranks=True)
    else:
        time.sleep(0.7)
    dist.barrier()
    if rank == 2:
        return
    small = dist.shrink_group([2])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (dist.get_world_size(), tensor[0].item(), small.size()) == (2, 2.0, 2)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    net(torch.full((1, 8), float(rank))).sum().backward()
    same(net.module.weight.grad, torch.full((8, 8), 0.5))


@job
def death(rank, size):
    tensor = torch.ones(8)
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    work = dist.all_reduce(tensor, async_op=True)
    raises(dist.DistBackendError, "rank 1", work.wait)
    raises(dist.DistBackendError, "rank 1", dist.all_reduce, tensor)
    took = time.monotonic() - begun
    assert took < 1, took
    dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    tensor.fill_(1)
    dist.all_reduce(tensor)
    assert tensor[0].item() == size - 1


@job
def death_before_a_message(rank, size):
    """A message fails, too, if its other rank died before it came to the channel."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    for call in (dist.recv, dist.send):
        raises(dist.DistBackendError, "rank 1", call, torch.ones(8), 1)
    took = time.monotonic() - begun
    assert took < 2, took


@job
def failed_messages(rank, size):
    """Errors name the group's ranks, though a message runs on a comm of two, whose ranks are 0 and 1."""
    if rank == 1:
        with contextlib.suppress(dist.DistBackendError):  # a small message may be on its way already
            dist.send(torch.ones(4), 2, tag=5)
    elif rank == 2:
        said = raises(dist.DistBackendError, "rank 1 called send/recv of 4 float", dist.recv, torch.ones(2), 1, tag=5)
        assert "message from rank 1 to rank 2, tag 5: rank 2: operation 1 differs: rank 2 called" in said, said
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 1:
        raises(dist.DistBackendError, "message from rank 1 to rank 2, tag 0: rank 2 did not arrive",
               dist.send, torch.ones(1), 2, group)
        dist.send(torch.ones(1), 2)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        raises(dist.DistBackendError, "rank 1 has not arrived", dist.recv, torch.ones(1), 1, group, tag=1)
        dist.recv(torch.ones(1), 1)
        said = raises(dist.DistBackendError, "waiting for rank 1 (recv): rank 1", dist.recv, torch.ones(1), 1)
        assert "message from rank 1 to rank 2, tag 0: rank 2: " in said and "rank 0" not in said, said
        logged = pathlib.Path("said2").read_text()
        assert "messages from rank 1 (here 0) to rank 2 (here 1), tag 0: rank 1: operation" in logged, logged


@job
def unmatched(rank, size):
    """Messages fail if their other rank has left without its part."""
    works = [dist.irecv(torch.ones(8), 1, tag=1), dist.isend(torch.ones(8), 1)] if rank == 0 else []
    begun = time.monotonic()
    dist.destroy_process_group()
    took = time.monotonic() - begun
    assert took < 10, took
    for work in works:
        raises(dist.DistBackendError, "rank 1 has left the group", work.wait)


@job
def death_in_training(rank, size):
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    net(torch.ones(1, 8)).sum().backward()
    loss = net(torch.ones(1, 8)).sum()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    raises(RuntimeError, "rank 1", loss.backward)
    took = time.monotonic() - begun
    assert took < 1, took


@job
def signals(rank, size):
    """A wait raises the exception of a signal handler, and the operation goes on. A blocking operation raises
    KeyboardInterrupt on Ctrl-C, and then the group has ended."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.full((1000,), rank + 1.0)
    if rank == 0:
        for number in (signal.SIGALRM, signal.SIGINT):  # a shell's background jobs ignore SIGINT
            signal.signal(number, signal.default_int_handler)
        work, begun = dist.all_reduce(tensor, async_op=True), time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        raises(KeyboardInterrupt, "", work.wait)
        assert time.monotonic() - begun < 5
        group = dist.new_group()
        dist.all_reduce(tensor.clone(), group=group, async_op=True)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        raises(KeyboardInterrupt, "", dist.destroy_process_group, group)
        assert time.monotonic() - begun < 10
        store.set("rank 0 was interrupted", "")
        work.wait()
    else:
        group = dist.new_group()
        store.wait(["rank 0 was interrupted"])
        dist.all_reduce(tensor)
    same(tensor, torch.full((1000,), float(sum(range(1, size + 1)))))
    whole = torch.zeros(1000 * size)

    def limited(group):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=60), group)
        dist.barrier(group)

    for call in (lambda group: dist.all_reduce(tensor, group=group), lambda group: dist.barrier(group),
                 limited, lambda group: dist.broadcast(tensor, 1, group=group),
                 lambda group: dist.all_gather_into_tensor(whole, tensor, group=group),
                 lambda group: dist.reduce_scatter_tensor(tensor, whole, group=group)):
        group = dist.new_group()
        if rank == 0:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            begun = time.monotonic()
            raises(KeyboardInterrupt, "", call, group)
            assert time.monotonic() - begun < 5
            store.set(f"{group.group_name} was interrupted", "")
        else:
            store.wait([f"{group.group_name} was interrupted"])
            raises(dist.DistBackendError, "rank 0", call, group)


@job
def mismatch(rank, size):
    tensor = torch.ones(8)
    function = dist.barrier if rank == 1 else lambda: dist.all_reduce(tensor)
    said = raises(dist.DistBackendError, "MISMATCH", function)
    assert "barrier" in said and "all_reduce" in said, said


@job
def skipped_step(rank, size):
    """Training in which rank 1 skips a step: the error says which calls of the ranks differ."""
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))

    def train():
        for step in range(5):
            if (step, rank) != (3, 1):
                net(torch.ones(1, 8)).sum().backward()
        dist.barrier()

    said = raises(RuntimeError, "MISMATCH", train)
    assert "barrier" in said and "all_reduce" in said, said


@job
def forked(rank, size):
    """A forked child that ends its groups does not affect the parent's."""
    def reduced():
        return limit(dist.all_reduce(torch.ones(3), async_op=True).get_future())[0]

    same(reduced(), torch.full((3,), float(size)))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            raises(dist.DistBackendError, "forked", dist.all_reduce, torch.ones(3))
            dist.destroy_process_group()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    same(reduced(), torch.full((3,), float(size)))


@job
def ends(rank, size):
    tensor = torch.ones(8)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    told = []
    backend.register_abort_hook(1, lambda: told[0])  # raises, which must not affect the other hook
    backend.register_abort_hook(2, lambda: told.append("hook"))
    if rank == 0:
        backend.set_timeout(timedelta(seconds=0.5))
        raises(dist.DistBackendError, "0.5 s that set_timeout() allows", dist.all_reduce, tensor)
    else:
        time.sleep(1)
        with contextlib.suppress(dist.DistBackendError):
            dist.all_reduce(tensor)  # may succeed, if rank 0 had called it before
        future = dist.all_reduce(tensor, async_op=True).get_future()
        raises(Exception, "rank 0 revoked", future.wait)
    assert told == ["hook"], told
    # The other rank of this message never comes, so its channel is still being joined.
    alone = dist.irecv(torch.zeros(1), 1 - rank, tag=7 + rank)
    backend.abort()
    raises(dist.DistBackendError, "ABORTED", alone.wait, timedelta(seconds=20))
    backend.shutdown()
    options = dist.AllreduceOptions()
    for options.asyncOp in (False, True):
        raises(dist.DistBackendError, "shut down", backend.allreduce, [tensor], options)
    raises(dist.DistBackendError, "shut down", backend.send, [tensor], 1 - rank, 0)


@job
def strangers(rank, size):
    """Ranks that do not fit the group."""
    kind = type(dist.group.WORLD._get_backend(torch.device("cpu")))
    soon, store = timedelta(seconds=1), dist.distributed_c10d._get_default_store()

    def birth(name, own, count):
        begun = time.monotonic()
        kind(dist.PrefixStore(name, store), own, count, soon if own < count else timedelta(minutes=9))
        raise AssertionError(f"born within {time.monotonic() - begun:.1f} s")

    raises(ValueError, f"rank {size} of {size}, expected 0 to {size - 1}", birth, "beyond", size, size)
    if rank == 0:
        raises(dist.DistBackendError, "HOOP_TIMEOUT: a timeout passed: rank 1 of 2 did not arrive", birth, "early", 0, 2)
    dist.barrier()
    raises(dist.DistBackendError, "rank 0 joined twice", birth, "twice", 0, 2)
    dist.barrier()


@job
def compiled(rank, size):
    """torch.compile lets its tracer run what C++ calls inside a compiled function, but not hoop's functions."""
    model = torch.nn.Linear(4, 2)
    training = torch.compile(torch.nn.parallel.DistributedDataParallel(model), backend="eager")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):  # DDP asks the group for the order of its buckets in the second forward()
            training(torch.full((2, 4), float(rank))).sum().backward()
    of_tracer = [str(warning.message) for warning in said if "Dynamo" in str(warning.message)]
    assert not of_tracer, of_tracer
    traced = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
    queue = importlib.import_module("hoop.torch._queue").Queue
    assert not traced(queue.submit.__code__), "it was traced"
    same(model.weight.grad, torch.full((2, 4), float(sum(range(size)) * 2 * 3) / size))


def run(name, method, size, rank):
    dist.init_process_group("hoop", init_method=method, world_size=size, rank=rank,
                            timeout=timedelta(seconds=60))
    JOBS[name](rank, size)
    if dist.is_initialized():
        dist.destroy_process_group()
