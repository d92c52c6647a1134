"""The backend: c10d's collectives, each as one call of hoop's.

A blocking operation (``async_op=False``) runs on the caller's thread, with no other on the way. An
asynchronous one goes to the group's worker, which takes them in the order of the calls; a blocking
one behind it waits for its turn in the same queue. Tensors that are not contiguous are copied,
before and after. What hoop does not add itself (bitwise operations, 16-bit integers) is gathered
and folded here.
"""

from __future__ import annotations

from ctypes import byref, c_int
from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
from torch._C._distributed_c10d import Backend, ErrorType, Store, Work
from torch.distributed import DistBackendError

from .._native import TimedOut, check, error, lib
from ._exchange import Channel, Group, meet
from ._monitor import monitored_barrier
from ._tensors import (
    copy_back, dense_output, fits, flattened, in_turn, keep, nothing, one, rows, same_sizes, sparse_sum,
)
from ._types import OPS, PREMUL_SUM, REDUCED, check_fold, fold, moved, reduced
from ._work import DONE, Job, Worker, failure

_all_reduce = lib.hoop_all_reduce

# torch holds the C++ half of a backend only, which calls the Python half by its name.
_alive: set[HoopBackend] = set()


def create(options: Any, backend_options: Any = None) -> HoopBackend:
    """What torch.distributed calls for every new group, on its members."""
    return HoopBackend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
    )


class HoopBackend(Backend):
    """A process group over one hoop comm."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, name: str = ""
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._timeout = timeout
        self._rank, self._size, self._name = rank, size, name
        self._comm = meet(store, "hoop", size, rank, timeout.total_seconds(), name)
        self._handle = self._comm._handle
        self._worker = Worker(f"hoop {name}")
        self._last: Job | None = None
        self._channels: dict[tuple[int, int, int], Channel] = {}
        self._batch: list[Work] | None = None
        self._sequence = self._barriers = self._shrinks = 0
        self._limited = False
        self._abort_hooks: dict[int, Callable[[], None]] = {}
        _alive.add(self)

    # -- What it is ---------------------------------------------------------------------------

    def getBackendName(self) -> str:
        return "hoop"

    @property
    def options(self) -> Backend.Options:
        made = Backend.Options("hoop", self._timeout)
        made.group_name = self._name
        return made

    supports_splitting = supports_shrinking = property(lambda self: True)
    supports_coalescing = supports_abort_hooks = property(lambda self: True)

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # -- How operations run -------------------------------------------------------------------

    def _run(self, blocking: bool, call: Callable[[], None], result: Any) -> Work:
        """call() is the operation, with all that belongs to it before and after."""
        self._sequence += 1
        if blocking and self._batch is None and not self._limited:
            if self._last is None or self._last.is_completed():
                try:
                    call()
                except BaseException as caught:
                    raise self._failed(caught) from None
                return DONE
        job = self._last = self._worker.submit(self._guarded(call), result)
        if self._batch is not None:
            self._batch.append(job)
        if blocking and self._limited:
            self._wait_limited(job)
        return job

    def _guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                call()
            except BaseException as caught:
                raise self._failed(caught) from None

        return guarded

    def _failed(self, caught: BaseException) -> BaseException:
        """The exception for the caller; what ended the comm runs the abort hooks first."""
        made = failure(caught)
        if isinstance(made, DistBackendError) and self.get_error() != ErrorType.SUCCESS:
            self._run_abort_hooks()
        return made

    def _wait_limited(self, job: Job) -> None:
        try:
            job.wait(self._timeout)
        except DistBackendError:
            if not job.is_completed():
                self._comm.revoke()  # so that nobody writes to buffers of a call that has returned
                job._done.wait()
                raise DistBackendError(
                    f"the operation was not complete after the {self._timeout.total_seconds():g} s "
                    "that set_timeout() allows; the group is at its end"
                ) from None
            raise

    # -- Collectives --------------------------------------------------------------------------

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        tensor = one(tensors)
        datatype = REDUCED.get(tensor.dtype)
        op = opts.reduceOp.op
        number = OPS.get(op)
        if datatype is None or number is None or not tensor.is_contiguous():
            return self._run(not opts.asyncOp, self._reduction(tensor, tensor, opts), tensors)
        address, count, handle = tensor.data_ptr(), tensor.numel(), self._handle

        def call() -> None:
            result = _all_reduce(address, address, count, datatype, number, handle, None)
            if result:
                raise error(result)

        return self._run(not opts.asyncOp, call, tensors)

    def _reduction(self, source: torch.Tensor, target: torch.Tensor, opts: Any,
                   root: int | None = None) -> Callable[[], None]:
        """An all_reduce, or with a root a reduce, of any dtype, operation and layout."""
        if source.layout != torch.strided:
            if root is not None:
                raise TypeError("hoop reduces sparse tensors by all_reduce only")
            if opts.reduceOp.op != torch.distributed.ReduceOp.SUM:
                raise ValueError(f"hoop adds sparse tensors; this is {opts.reduceOp.op}")
            return lambda: sparse_sum(target, self._size, self._gathered)
        dense = source.contiguous()
        known = self._known(dense, opts)
        if known is None:
            check_fold(dense.dtype, opts.reduceOp.op)

        def call() -> None:
            if known is None:
                gathered = self._gathered(dense, root)
                if gathered is not None:
                    target.copy_(fold(gathered, opts.reduceOp.op))
                return
            datatype, width, op, destroy = known
            arguments = (dense.data_ptr(), dense.data_ptr(), dense.numel() * width, datatype, op)
            if root is None:
                result = _all_reduce(*arguments, self._handle, None)
            else:
                result = lib.hoop_reduce(*arguments, root, self._handle, None)
            destroy()
            check(result)
            if dense is not target and root in (None, self._rank):
                target.copy_(dense)

        return call

    def _known(self, tensor: torch.Tensor, opts: Any):
        """Datatype, width, operation and what to call afterwards; None: to be folded."""
        op = opts.reduceOp.op
        if op == PREMUL_SUM:
            return self._premul(tensor, opts.reduceOp.factor)
        found = reduced(tensor.dtype, op)
        return None if found is None else (*found, nothing)

    def _premul(self, tensor: torch.Tensor, factor: Any):
        datatype = REDUCED.get(tensor.dtype)
        if datatype is None:
            raise TypeError(f"PREMUL_SUM of {tensor.dtype} tensors")
        scalar = torch.as_tensor(factor).reshape(1).to(tensor.dtype)
        number = c_int()
        check(lib.hoop_red_op_create_pre_mul_sum(
            byref(number), scalar.data_ptr(), datatype, 1, self._handle))
        op = number.value
        return datatype, 1, op, lambda: lib.hoop_red_op_destroy(op, self._handle)

    def _gathered(self, dense: torch.Tensor, root: int | None = None) -> torch.Tensor | None:
        """Everybody's tensor, in a first dimension of ranks; with a root: there only."""
        datatype, width = moved(dense)
        every = None
        if root in (None, self._rank):
            every = torch.empty((self._size, *dense.shape), dtype=dense.dtype)
        address = 0 if every is None else every.data_ptr()
        arguments = (dense.data_ptr(), address, dense.numel() * width, datatype)
        if root is None:
            check(lib.hoop_all_gather(*arguments, self._handle, None))
        else:
            check(lib.hoop_gather(*arguments, root, self._handle, None))
        return every

    allreduce_sparse = allreduce

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        calls = [self._reduction(tensor, tensor, opts) for tensor in tensors]
        return self._run(not opts.asyncOp, in_turn(calls), tensors)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        tensor = one(tensors)
        return self._run(
            not opts.asyncOp, self._reduction(tensor, tensor, opts, opts.rootRank), tensors
        )

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        tensor = one(tensors)
        dense = tensor.contiguous()
        datatype, width = moved(dense)
        address, count, root = dense.data_ptr(), dense.numel() * width, opts.rootRank

        def call() -> None:
            check(
                lib.hoop_broadcast(address, address, count, datatype, root, self._handle, None)
            )
            if dense is not tensor:
                tensor.copy_(dense)

        return self._run(not opts.asyncOp, call, tensors)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self._run(not opts.asyncOp, self._all_gather(output, input), [output])

    _allgather_base = all_gather_single

    def _all_gather(self, output: torch.Tensor, input: torch.Tensor) -> Callable[[], None]:
        fits("all_gather", output, input, self._size)
        dense, into = input.contiguous(), dense_output(output)
        datatype, width = moved(dense)
        arguments = (dense.data_ptr(), into.data_ptr(), dense.numel() * width, datatype)

        def call() -> None:
            check(lib.hoop_all_gather(*arguments, self._handle, None))
            if into is not output:
                output.copy_(into)
            keep(dense)

        return call

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        targets, source = one(outputs), one(inputs)
        return self._run(not opts.asyncOp, self._all_gather_list(targets, source), outputs)

    def _all_gather_list(
        self, targets: list[torch.Tensor], source: torch.Tensor
    ) -> Callable[[], None]:
        if len(targets) != self._size:
            raise ValueError(f"all_gather: {len(targets)} outputs for {self._size} ranks")
        if all(target.numel() == source.numel() for target in targets):
            flat, scattered = flattened(targets)
            gather = self._all_gather(flat, source.reshape(-1))
            return in_turn([gather, scattered])
        # Tensors of different sizes: each is a broadcast of its rank's.
        if targets[self._rank].numel() != source.numel():
            raise ValueError(
                f"all_gather: this rank's input has {source.numel()} elements, its output "
                f"{targets[self._rank].numel()}"
            )

        def call() -> None:
            targets[self._rank].copy_(source.view_as(targets[self._rank]))
            dense = [target.contiguous() for target in targets]
            with Group(self._handle) as group:
                for rank, target in enumerate(dense):
                    datatype, width = moved(target)
                    address = target.data_ptr()
                    group(lib.hoop_broadcast, address, address, target.numel() * width,
                          datatype, rank)
            copy_back(targets, dense)

        return call

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        # The outputs are a list for each rank.
        calls = [self._all_gather_list(list(of_one), source)
                 for *of_one, source in zip(*outputs, inputs)]
        return self._run(not opts.asyncOp, in_turn(calls), outputs)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        calls = [self._all_gather(*pair) for pair in zip(outputs, inputs)]
        return self._run(not opts.asyncOp, in_turn(calls), outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self._run(not opts.asyncOp, self._reduce_scatter(output, input, opts), [output])

    _reduce_scatter_base = reduce_scatter_single

    def _reduce_scatter(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any
    ) -> Callable[[], None]:
        fits("reduce_scatter", input, output, self._size)
        dense, into = input.contiguous(), dense_output(output)
        known = self._known(dense, opts)
        if known is None:
            check_fold(dense.dtype, opts.reduceOp.op)

        def call() -> None:
            if known is None:
                blocks = torch.empty((self._size, *into.shape), dtype=dense.dtype)
                datatype, width = moved(dense)
                check(lib.hoop_alltoall(dense.data_ptr(), blocks.data_ptr(),
                                              into.numel() * width, datatype, self._handle, None))
                output.copy_(fold(blocks, opts.reduceOp.op))
                return
            datatype, width, op, destroy = known
            result = lib.hoop_reduce_scatter(dense.data_ptr(), into.data_ptr(),
                                             into.numel() * width, datatype, op, self._handle, None)
            destroy()
            check(result)
            if into is not output:
                output.copy_(into)

        return call

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        target, sources = one(outputs), one(inputs)
        if len(sources) != self._size:
            raise ValueError(f"reduce_scatter: {len(sources)} inputs for {self._size} ranks")
        if all(source.numel() == target.numel() for source in sources):
            flat = torch.cat([source.reshape(-1) for source in sources])
            call = self._reduce_scatter(target.view(-1) if target.is_contiguous() else target,
                                        flat, opts)
        else:
            # Blocks of different sizes: each is a reduction to its rank.
            own = sources[self._rank].clone(memory_format=torch.contiguous_format)
            parts = [own if rank == self._rank else source.clone()
                     for rank, source in enumerate(sources)]
            calls = [self._reduction(part, part, opts, rank) for rank, part in enumerate(parts)]
            call = in_turn([*calls, lambda: target.copy_(own.view_as(target))])
        return self._run(not opts.asyncOp, call, outputs)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        calls = [self._reduce_scatter(*pair, opts) for pair in zip(outputs, inputs)]
        return self._run(not opts.asyncOp, in_turn(calls), outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        source, root = one(inputs), opts.rootRank
        dense = source.contiguous()
        datatype, width = moved(dense)
        flat = scattered = None
        if self._rank == root:
            targets = one(outputs)
            if len(targets) != self._size:
                raise ValueError(f"gather: {len(targets)} outputs for {self._size} ranks")
            same_sizes("gather", targets, source)
            flat, scattered = flattened(targets)

        def call() -> None:
            check(lib.hoop_gather(
                dense.data_ptr(), 0 if flat is None else flat.data_ptr(), dense.numel() * width,
                datatype, root, self._handle, None))
            if scattered is not None:
                scattered()

        return self._run(not opts.asyncOp, call, outputs)

    def scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        target, root = one(outputs), opts.rootRank
        into = dense_output(target)
        datatype, width = moved(into)
        flat = None
        if self._rank == root:
            sources = one(inputs)
            if len(sources) != self._size:
                raise ValueError(f"scatter: {len(sources)} inputs for {self._size} ranks")
            same_sizes("scatter", sources, target)
            flat = torch.cat([source.reshape(-1) for source in sources])

        def call() -> None:
            check(lib.hoop_scatter(
                0 if flat is None else flat.data_ptr(), into.data_ptr(), into.numel() * width,
                datatype, root, self._handle, None))
            if into is not target:
                target.copy_(into)

        return self._run(not opts.asyncOp, call, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any,
    ) -> Work:
        dense, into = input.contiguous(), dense_output(output)
        datatype, width = moved(dense)
        if not output_sizes and not input_sizes:
            if dense.numel() != into.numel() or dense.numel() % self._size:
                raise ValueError(
                    f"all_to_all: {dense.numel()} elements into {into.numel()}, which must be as "
                    f"many, and a block for each of {self._size} ranks"
                )

            def call() -> None:
                check(lib.hoop_alltoall(
                    dense.data_ptr(), into.data_ptr(), dense.numel() // self._size * width,
                    datatype, self._handle, None))
        else:
            sends = rows("input", dense, input_sizes, self._size)
            receives = rows("output", into, output_sizes, self._size)

            def call() -> None:
                self._exchange(sends, receives)

        def whole() -> None:
            call()
            if into is not output:
                output.copy_(into)
            keep(dense)

        return self._run(not opts.asyncOp, whole, [output])

    alltoall_base = all_to_all_single

    def alltoall(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        for name, tensors in (("outputs", outputs), ("inputs", inputs)):
            if len(tensors) != self._size:
                raise ValueError(f"all_to_all: {len(tensors)} {name} for {self._size} ranks")
        sources = [source.contiguous() for source in inputs]
        targets = [dense_output(target) for target in outputs]

        def call() -> None:
            self._exchange(sources, targets)
            copy_back(outputs, targets)

        return self._run(not opts.asyncOp, call, outputs)

    def _exchange(self, sends: list[torch.Tensor], receives: list[torch.Tensor]) -> None:
        """Tensor q of sends to rank q, and tensor q of receives from it, all at the same time."""
        with Group(self._handle) as group:
            for rank in range(self._size):
                for function, tensor in ((lib.hoop_send, sends[rank]),
                                         (lib.hoop_recv, receives[rank])):
                    datatype, width = moved(tensor)
                    if tensor.numel():
                        group(function, tensor.data_ptr(), tensor.numel() * width, datatype, rank)

    def barrier(self, opts: Any) -> Work:
        return self._run(
            not opts.asyncOp, lambda: check(lib.hoop_barrier(self._handle, None)), []
        )

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        limit = opts.timeout if opts.timeout >= timedelta(0) else self._timeout
        self._barriers += 1
        store = torch.distributed.PrefixStore(f"monitored/{self._barriers}", self._store)
        monitored_barrier(store, self._rank, self._size, limit, wait_all_ranks)

    # -- Point to point -----------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        return self._batched(self._channel(self._rank, to, tag).submit(one(tensors)))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        return self._batched(self._channel(source, self._rank, tag).submit(one(tensors)))

    def _batched(self, job: Job) -> Job:
        if self._batch is not None:
            self._batch.append(job)
        return job

    def _channel(self, source: int, to: int, tag: int) -> Channel:
        if source == to or not (0 <= source < self._size and 0 <= to < self._size):
            raise ValueError(f"rank {source} cannot send to rank {to} of {self._size}")
        key = (source, to, tag)
        if key not in self._channels:
            self._channels[key] = Channel(
                self._store, *key, source == self._rank, self._timeout.total_seconds()
            )
        return self._channels[key]

    def start_coalescing(self) -> None:
        if self._batch is not None:
            raise RuntimeError("a coalesced block is open already")
        self._batch = []

    def end_coalescing(self) -> Work:
        batch, self._batch = self._batch or [], None
        if len(batch) == 1:
            return batch[0]

        def call() -> None:
            for job in batch:
                job.wait()

        # Behind all of the group's own; channels have workers of their own and go on meanwhile.
        return self._worker.submit(call, [job.result() for job in batch])

    # -- Life ---------------------------------------------------------------------------------

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on blocking operations end the group after this."""
        self._limited = self._limited or timeout != self._timeout
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def get_error(self) -> ErrorType:
        failed = self._comm.failure if self._handle else None
        if failed is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if isinstance(failed, TimedOut) else ErrorType.REMOTE_ERROR

    def split(self, store: Store, ranks: list[int], opts: Any) -> HoopBackend:
        if self._rank not in ranks:
            # A backend in Python cannot answer that there is none: torch 2.15 crashes at None.
            raise NotImplementedError(
                f"rank {self._rank} is in no part of the split; torch has no way for a backend in "
                "Python to say so: give every rank a part ([[0, 1], [2]]), or use new_group()"
            )
        name = opts.group_name if opts is not None else self._name
        return HoopBackend(store, ranks.index(self._rank), len(ranks), self._timeout, name)

    def shrink(
        self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None
    ) -> HoopBackend:
        left = [rank for rank in range(self._size) if rank not in ranks_to_exclude]
        if self._rank not in left:
            raise ValueError(f"rank {self._rank} is excluded and cannot take part in the shrink")
        if shrink_flags:
            self.abort()
        self._shrinks += 1
        name = f"shrink/{self._shrinks}/" + "-".join(map(str, ranks_to_exclude))
        store = torch.distributed.PrefixStore(name, self._store)
        return HoopBackend(store, left.index(self._rank), len(left), self._timeout, self._name)

    def registerAbortHook(self, hook_id: int, hook: Callable[[], None]) -> None:
        self._abort_hooks[hook_id] = hook

    def unregisterAbortHook(self, hook_id: int) -> None:
        self._abort_hooks.pop(hook_id, None)

    register_abort_hook, unregister_abort_hook = registerAbortHook, unregisterAbortHook

    def _run_abort_hooks(self) -> None:
        hooks, self._abort_hooks = self._abort_hooks, {}
        for hook in hooks.values():
            hook()

    def abort(self) -> None:
        """Ends all that is under way, on all ranks."""
        if self._handle:
            self._run_abort_hooks()
            self._comm.abort()
            for channel in self._channels.values():
                channel.abort()

    def shutdown(self) -> None:
        """Waits for what is queued and says goodbye."""
        if self._handle:
            self._worker.close(None)
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
            self._handle = None
            self._comm.close()
            _alive.discard(self)
