"""The backend: a process group of torch over one hoop comm.

A blocking operation (``async_op=False``) runs on the caller's thread, and involves no other. An asynchronous one
is queued on the group's hoop stream (_queue.py). hoop keeps the order of all calls on the comm, blocking or not.
Messages have channels of their own (_exchange.py).
"""

from __future__ import annotations

import functools
import os
import threading
import time
import traceback
from datetime import timedelta
from time import time_ns
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Backend, ErrorType, ProcessGroup, Store, Work
from torch.distributed import DistBackendError

from .._end import GRACE, before_close
from .._interrupt import heard
from .._native import TimedOut
from ._direct import Sequence, verbs
from ._exchange import Channel, Clone, meet
from ._monitor import monitored_barrier
from ._queue import Limit, Operation, Queue, stop_waiter
from ._tensors import one
from ._verbs import Verbs
from ._versions import TORCH
from ._work import DONE, Job, Together, failure, joined

# Keeps the Python halves of backends alive: torch only holds the C++ half, which looks up Python methods by name.
_alive: set[Life] = set()

_ends_in: int | None = None  # the process in which _at_exit() is registered


def _at_exit(process: int) -> None:
    """Waits a while for running operations, then aborts their groups, because closing comms and streams would
    wait for them: if this rank has raised, the others may never do their part. Also waits for threads: at its end
    the interpreter would unwind a thread inside a future's C++ code, which ends the process by std::terminate()."""
    if os.getpid() != process:
        return  # a forked child, which can't use any comm
    until = time.monotonic() + GRACE
    try:
        for life in list(_alive):
            while life.busy() and time.monotonic() < until:
                time.sleep(0.005)
            if life.busy():
                life.end()
    finally:
        stop_waiter()
        until = time.monotonic() + GRACE
        for life in list(_alive):
            life.leave(until)


def _register_end() -> None:
    """Registers _at_exit(). Called after the first comm was made, so that it runs before comms are left."""
    global _ends_in
    if _ends_in != os.getpid():
        _ends_in = os.getpid()
        before_close(functools.partial(_at_exit, _ends_in))


class Life(Verbs):
    """A group over one hoop comm: all that does not depend on the version of torch."""

    def _begin(self, store: Store, rank: int, size: int, timeout: timedelta, name: str) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}, expected 0 to {size - 1}")
        self._process = os.getpid()
        self._store: Store | None = store
        self._timeout = timeout
        self.own, self.count, self._name = rank, size, name
        self._comm = meet(store, "hoop", size, rank, timeout.total_seconds(), f"group {name}")
        self.handle = self._comm._handle
        _register_end()
        self.sequence = Sequence()
        self._queue = Queue(self.failed, self._comm.revoke)
        self.queued = self._queue.jobs
        self._direct = verbs(self)
        self._channels: dict[tuple[int, int, int], Channel] = {}
        self._clone = Clone(store, timeout.total_seconds())
        self._batch: list[Job] | None = None
        self._barriers = self._shrinks = 0
        self._limit: Limit | None = None  # of operations without one of their own
        self._aborted = False
        self._giver: threading.Thread | None = None  # gives back what an aborted group has
        self._abort_hooks: dict[int, Callable[[], None]] = {}
        self._look()
        _alive.add(self)

    # -- How operations run -------------------------------------------------------------------

    def run(self, opts: Any, operation: Operation, result: Any) -> Work | None:
        self._be_open()
        self.sequence.number += 1
        limit = self._limit
        if opts.timeout > timedelta(0):
            limit = Limit(opts.timeout.total_seconds(), "its own timeout allows")
        if not opts.asyncOp and self._batch is None:
            self.now(operation, limit)
            return DONE
        return self._batched(self._queue.submit(operation, result, limit))

    def _be_open(self) -> None:
        if not self.handle:
            raise DistBackendError("the group was shut down: nothing can be done with it any more")
        if self._aborted:
            raise failure(self._comm.failure)

    @heard
    def now(self, operation: Operation, limit: Limit | None = None) -> None:
        limit = limit or self._limit
        if limit is not None:
            self._within(limit, operation)
            return
        if self.queued:
            self.drain()
        inside = time_ns(), self.handle
        try:
            operation.start(None)
            inside = ()
            operation.after()
        except BaseException as caught:
            inside = ()
            raise self.failed(caught) from None

    def drain(self) -> None:
        self._queue.drain()

    def _within(self, limit: Limit, operation: Operation) -> None:
        job = self._queue.submit(operation, None, limit)
        try:
            job.wait()
        except DistBackendError:
            raise
        except BaseException:  # of a signal handler
            if not job.is_completed():
                self._comm.revoke()  # as it is without a limit
            raise

    def failed(self, caught: BaseException) -> BaseException:
        """The exception for the caller. If the comm has ended this runs the abort hooks first."""
        made = failure(caught)
        if isinstance(made, DistBackendError) and self.get_error() != ErrorType.SUCCESS:
            self._run_abort_hooks()
        return made

    def _batched(self, job: Job) -> Job:
        if self._batch is not None:
            self._batch.append(job)
        return job

    def start_coalescing(self) -> None:
        if self._batch is not None:
            raise RuntimeError("a coalesced block is open already")
        self._batch = []
        self._look()

    def end_coalescing(self) -> Work:
        batch, self._batch = self._batch or [], None
        self._look()
        return batch[0] if len(batch) == 1 else Together(batch)

    def _look(self) -> None:
        """Installs the direct operations (_direct.py), or removes them if operations need more than a call."""
        for name, verb in self._direct.items():
            if self.handle and self._batch is None and self._limit is None:
                setattr(self, name, verb)
            else:
                self.__dict__.pop(name, None)

    # -- Point to point -----------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        return self._batched(self._channel(self.own, to, tag).submit(one(tensors)))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        return self._batched(self._channel(source, self.own, tag).submit(one(tensors)))

    def _channel(self, source: int, to: int, tag: int) -> Channel:
        self._be_open()
        if source == to or not (0 <= source < self.count and 0 <= to < self.count):
            raise ValueError(f"rank {source} cannot send to rank {to} of {self.count}")
        key = (source, to, tag)
        found = self._channels.get(key)
        if found is None:
            made = Channel(
                self._clone, *key, source == self.own, len(self._channels) + 1, self._timeout.total_seconds(),
                self._lost,
            )
            found = self._channels.setdefault(key, made)  # another thread may have been first
        return found

    def _lost(self, rank: int) -> str:
        """Why that rank can't send or receive any more; empty: it may."""
        failed = self._comm.failure
        if failed is not None:
            return f"{failed.name}: {failed}"
        left = self._comm.info()["peers"][rank]["left"]
        return f"HOOP_REMOTE_ERROR: rank {rank} has left the group" if left else ""

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        limit = opts.timeout if opts.timeout >= timedelta(0) else self._timeout
        self._be_open()
        self._barriers += 1
        store = torch.distributed.PrefixStore(f"monitored/{self._barriers}", self._store)
        monitored_barrier(store, self.own, self.count, limit, wait_all_ranks)

    # -- Life ---------------------------------------------------------------------------------

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on an operation that takes longer ends the group."""
        if timeout != self._timeout or self._limit is not None:
            self._limit = Limit(timeout.total_seconds(), "set_timeout() allows")
        self._timeout = timeout
        self._look()

    _set_default_timeout = set_timeout

    def get_error(self) -> ErrorType:
        failed = self._comm.failure if self.handle else None
        if failed is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if self._queue.late or isinstance(failed, TimedOut) else ErrorType.REMOTE_ERROR

    def registerAbortHook(self, hook_id: int, hook: Callable[[], None]) -> None:
        self._abort_hooks[hook_id] = hook

    def unregisterAbortHook(self, hook_id: int) -> None:
        self._abort_hooks.pop(hook_id, None)

    register_abort_hook, unregister_abort_hook = registerAbortHook, unregisterAbortHook

    def _run_abort_hooks(self) -> None:
        """Prints the exceptions of hooks: they must neither replace the failure that the hooks are called for, nor
        prevent other hooks."""
        hooks, self._abort_hooks = self._abort_hooks, {}
        for hook in hooks.values():
            try:
                hook()
            except Exception:
                traceback.print_exc()

    def abort(self) -> None:
        """Ends all operations and messages, on all ranks. When the last has ended all is given back."""
        if not self.handle:
            return
        self.end()
        self._start_giver()

    def _start_giver(self) -> None:
        if self._giver is None and self._process == os.getpid():
            self._giver = threading.Thread(target=self._give_back, name="hoop abort", daemon=True)
            try:
                self._giver.start()
            except RuntimeError:  # the interpreter is shutting down
                self._giver = None

    def end(self) -> None:
        """Like abort(), but nothing is given back."""
        try:
            self._run_abort_hooks()
        finally:
            try:
                self._comm.abort()
            finally:
                self._aborted = True
                for channel in list(self._channels.values()):
                    channel.abort()

    def _give_back(self) -> None:
        """Ends the threads and frees the descriptors of the aborted group, which stays to answer late calls."""
        self._close_all()
        self._clone.drop()
        self._store = None

    def _close_all(self) -> None:
        """Waits for what is queued. If a signal handler raises meanwhile, it may be called again."""
        self._queue.close()
        for channel in list(self._channels.values()):
            channel.close()
        self._channels.clear()

    def leave(self, until: float) -> None:
        for channel in list(self._channels.values()):
            channel.leave(until)
        if self._giver is not None:
            joined(self._giver, until)

    def busy(self) -> bool:
        """Whether an asynchronous operation or a message is running."""
        return self._queue.busy() or any(channel.busy() for channel in list(self._channels.values()))

    def shutdown(self) -> None:
        """Waits for what is queued and says goodbye. A forked child does not: locks may be held by
        threads that only the parent has."""
        if not self.handle:
            return
        is_own = self._process == os.getpid()
        if is_own:
            self._close_all()
        self.handle = None
        self._look()
        self._direct.clear()  # they refer to the group, which would not be freed
        if is_own:
            self._comm.close()
        _alive.discard(self)


class HoopBackend(Life, Backend):
    """For torch 2.14 and later: the backend of a process group."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, name: str = ""
    ) -> None:
        Backend.__init__(self, rank, size)
        self._begin(store, rank, size, timeout, name)

    def getBackendName(self) -> str:
        return "hoop"

    @property
    def options(self) -> Backend.Options:
        made = Backend.Options("hoop", self._timeout)
        made.group_name = self._name
        return made

    supports_splitting = supports_shrinking = property(lambda self: True)
    supports_abort_hooks = property(lambda self: True)
    # With it torch coalesces batch_isend_irecv(), and, after one refused message in that, collects
    # all later collectives without ever running them. _coalescing_manager() works without it.
    supports_coalescing = property(lambda self: False)
    # torch's own implementations of these call the Python class, and so would recurse.
    supports_reconfigure = supports_window = _supports_time_estimate = property(lambda self: False)

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence.number

    def split(self, store: Store, ranks: list[int], opts: Any) -> HoopBackend:
        if self.own not in ranks:
            # A backend in Python can't return "none": torch 2.15 crashes at None.
            raise NotImplementedError(
                f"rank {self.own} is in no part of the split; torch has no way for a backend in "
                "Python to say so: give every rank a part ([[0, 1], [2]]), or use new_group()"
            )
        name = opts.group_name if opts is not None else self._name
        return HoopBackend(store, ranks.index(self.own), len(ranks), self._timeout_of(opts), name)

    def _timeout_of(self, options: Any) -> timedelta:
        return self._timeout if options is None else options._timeout

    def shrink(
        self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None
    ) -> HoopBackend:
        left = [rank for rank in range(self.count) if rank not in ranks_to_exclude]
        if self.own not in left:
            raise ValueError(f"rank {self.own} is excluded and cannot take part in the shrink")
        if self._giver is not None:
            raise DistBackendError("the group was aborted: shrink it, with SHRINK_ABORT, in place of that")
        if shrink_flags:
            self.end()
        self._shrinks += 1
        name = f"shrink/{self._shrinks}/" + "-".join(map(str, ranks_to_exclude))
        store = torch.distributed.PrefixStore(name, self._store)
        timeout = self._timeout_of(opts_override)
        made = HoopBackend(store, left.index(self.own), len(left), timeout, self._name)
        if shrink_flags:
            self._start_giver()
        return made


class HoopGroup(Life, ProcessGroup):
    """For torch 2.9 to 2.13, which can't call a Backend in Python: the process group itself. split_group(),
    shrink_group() and monitored_barrier() only work with torch's own backends there."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, name: str = ""
    ) -> None:
        ProcessGroup.__init__(self, rank, size)
        self._description = ""
        self._begin(store, rank, size, timeout, name)

    def getBackendName(self) -> str:
        return "hoop"

    # torch's ProcessGroup would ask its backends, but this group has none.
    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def _start_coalescing(self, _device: torch.device) -> None:
        self.start_coalescing()

    def _end_coalescing(self, _device: torch.device) -> Work:
        return self.end_coalescing()


_Made = HoopBackend if TORCH >= (2, 14) else HoopGroup


def create(options: Any, backend_options: Any = None) -> HoopBackend | HoopGroup:
    """Makes a group; torch.distributed calls it on the members of every new group. hoop has no options, but gets
    those for another backend of a mixed group."""
    if not isinstance(backend_options, (Backend.Options, type(None))):
        raise TypeError(f"pg_options is {type(backend_options).__name__}, expected a Backend.Options or None")
    return _Made(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
    )
