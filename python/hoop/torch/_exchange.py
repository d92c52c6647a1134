"""Point to point: each direction between two ranks, and each tag, is a channel of its own.

So what c10d allows works as it should: a receive may be posted before a send or after it, ranks may
send to each other at the same time, and messages of different tags pass each other. A channel is a
comm of two ranks, which meet by the group's store at the channel's first use, and a worker that
waits in it.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, InvalidStateError, wait
from ctypes import c_void_p
from datetime import timedelta
from typing import Any, Callable

import torch
from torch.distributed import DistBackendError, Store

from .._comm import Comm, UniqueId, unique_id
from .._native import HoopError, check, error, lib
from ._tensors import put
from ._types import moved
from ._work import Errand, Worker, failure, joined


LOOK = 0.25  # seconds in which a channel hears that the other rank will not come


def meet(store: Store, key: str, size: int, rank: int, timeout: float, name: str, first: int = 0) -> Comm:
    """A new comm of the ranks that name the same key: by a fresh secret, which the store forgets. first: what
    the caller's group calls the comm's rank 0."""
    claims = f"{key}/0"
    if rank == 0 and store.add(claims, 1) == 1:
        token = unique_id()
        store.set(key, token)
    else:  # also who claims to be rank 0 beside another: the join tells both
        try:
            token = UniqueId(store.get(key))
        except RuntimeError as caught:
            raise DistBackendError(f"rank {first} has not come: {caught}") from None
    name = name.encode()[:127].decode(errors="ignore")  # torch makes names of any length
    met = False
    try:
        made = Comm(id=token, size=size, rank=rank, init_timeout=timeout, op_timeout=timeout, name=name)
        met = True
        return made
    except HoopError as caught:
        raise failure(caught) from caught
    finally:
        if rank == 0:
            _leave_store(store, key, claims, met)


def _leave_store(store: Store, key: str, claims: str, met: bool) -> None:
    """So that the key can be used again. Who comes late for what failed still learns why from the token."""
    try:
        store.add(claims, -1)
        if met:
            store.delete_key(key)
            store.delete_key(claims)
    except (RuntimeError, NotImplementedError):
        pass  # a store that cannot forget, or is gone


def _came_first(settle: Callable[[Any], None], value: Any) -> bool:
    """Settles a future, where nothing has settled it yet."""
    try:
        settle(value)
        return True
    except InvalidStateError:
        return False


def _clone(store: Store, timeout: float) -> Store:
    """The store of a thread: get() blocks, and a store serves one caller at a time."""
    try:
        own = store.clone()
    except (AttributeError, RuntimeError):  # an older torch's, and one in Python
        return store
    own.set_timeout(timedelta(seconds=timeout))
    return own


class Channel:
    """One direction, one tag: this rank is its sender (rank 0 of the comm) or its receiver. lost(rank) says why
    that rank will not come any more; nothing: it may."""

    def __init__(
        self, store: Store, source: int, to: int, tag: int, sends: bool, timeout: float, lost: Callable[[int], str]
    ) -> None:
        self._store = store
        self._key = f"p2p/{source}/{to}/{tag}"
        self._sends = sends
        self._other = to if sends else source
        self._timeout = timeout
        self._lost = lost
        self._worker = Worker(f"hoop {self._key}")
        self._meeting: Future[Comm] = Future()  # has the comm, or what kept it from being made
        self._meets: threading.Thread | None = None

    def submit(self, tensor: torch.Tensor) -> Errand:
        dense = tensor.contiguous()
        datatype, width = moved(dense)
        function = lib.hoop_send if self._sends else lib.hoop_recv

        def call() -> None:
            comm = self._joined()
            check(function(dense.data_ptr(), dense.numel() * width, datatype,
                           1 if self._sends else 0, comm._handle, None))
            if dense is not tensor and not self._sends:
                put(tensor, dense)

        return self._worker.submit(call, [tensor])

    def _joined(self) -> Comm:
        """Waits for the other rank, as long as it may come."""
        if not self._meeting.done():
            self._meets = threading.Thread(target=self._meet, name=f"hoop meets {self._key}", daemon=True)
            self._meets.start()
            while not wait([self._meeting], LOOK).done:
                why = self._lost(self._other)
                if why:
                    _came_first(self._meeting.set_exception, DistBackendError(why))
        return self._meeting.result()

    def _meet(self) -> None:
        try:
            store = _clone(self._store, self._timeout)
            if not self._sends:
                self._await(store)
            made = meet(store, self._key, 2, 0 if self._sends else 1, self._timeout, self._key, self._other)
        except BaseException as caught:
            _came_first(self._meeting.set_exception, caught)
        else:
            if not _came_first(self._meeting.set_result, made):
                made.abort()  # nobody waits for it any more

    def _await(self, store: Store) -> None:
        """Until the sender has come. By looks: nothing ends a get() before its time."""
        until, pause = time.monotonic() + self._timeout, 0.001
        while not store.check([self._key]):
            if self._meeting.done():
                raise DistBackendError(f"rank {self._other} is not awaited any more")
            if time.monotonic() > until:
                raise DistBackendError(f"rank {self._other} has not come in {self._timeout:g} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _made(self) -> Comm | None:
        meeting = self._meeting
        return meeting.result() if meeting.done() and meeting.exception() is None else None

    def abort(self) -> None:
        why = f"HOOP_ABORTED: abort() ended the channel {self._key} before it was joined"
        if not _came_first(self._meeting.set_exception, DistBackendError(why)):
            comm = self._made()
            if comm is not None:
                comm.abort()

    def busy(self) -> bool:
        return self._worker.busy()

    def close(self) -> None:
        """After the messages that are there, but for those to and from a rank that will not come."""
        self._worker.close()
        comm = self._made()
        if comm is not None:
            comm.close()

    def leave(self, until: float) -> None:
        """After abort(), at the interpreter's end: sees its threads end, until then at most."""
        self._worker.close(until)
        if self._meets is not None:
            joined(self._meets, until)


class Group:
    """hoop_group_start() to hoop_group_end(), in which pointers go to pointers."""

    def __init__(self, comm: c_void_p, stream: c_void_p | None) -> None:
        self._comm, self._stream = comm, stream

    def __enter__(self) -> Group:
        check(lib.hoop_group_start())
        self._results: list[int] = []
        return self

    def __call__(self, function: Any, *arguments: Any) -> None:
        self._results.append(function(*arguments, self._comm, self._stream))

    def __exit__(self, *_exception: Any) -> None:
        ended = lib.hoop_group_end()
        for result in (*self._results, ended):
            if result:
                raise error(result)
