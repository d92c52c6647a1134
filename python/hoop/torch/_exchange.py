"""Point to point: each direction between two ranks, and each tag, has a channel of its own.

So everything that c10d allows works: a receive may be posted before or after its send, ranks may send to each
other at the same time, and messages of different tags may overtake each other. A channel has a comm of two
ranks, which meet by the group's store at its first use, and a worker, which waits in the comm. They stay until the
group ends: neither rank knows whether the other still waits for a message of that tag, or will.
"""

from __future__ import annotations

import re
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
from ._tensors import dense_output, put
from ._types import moved
from ._work import Errand, Worker, failure, joined


MANY = 32  # channels from which on an error says how many there are: it may come from a limit of the system
LOOK = 0.25  # seconds between checks whether the other rank may still come


def meet(store: Store, key: str, size: int, rank: int, timeout: float, name: str, first: int = 0) -> Comm:
    """Makes a comm of the ranks that use the same key, by a fresh id in the store, which is then deleted. first:
    the comm's rank 0 as numbered in the caller's group."""
    claims = f"{key}/0"
    if rank == 0 and store.add(claims, 1) == 1:
        token = unique_id()
        store.set(key, token)
    else:  # also a second process that claims to be rank 0: the join fails for both
        try:
            token = UniqueId(store.get(key))
        except RuntimeError as caught:
            raise DistBackendError(f"rank {first} has not arrived: {caught}") from None
    name = name.encode()[:127].decode(errors="ignore")  # torch's names may be longer
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
    """Cleans up, so that the key can be used again. After a failure the id stays, so that late ranks learn why."""
    try:
        store.add(claims, -1)
        if met:
            store.delete_key(key)
            store.delete_key(claims)
    except (RuntimeError, NotImplementedError):
        pass  # the store can't delete, or is gone


def _came_first(settle: Callable[[Any], None], value: Any) -> bool:
    """Settles a future, unless it is settled already (False)."""
    try:
        settle(value)
        return True
    except InvalidStateError:
        return False


class Clone:
    """A group's store for the threads of its channels: get() blocks, and a store serves one caller at a time. They
    share one clone, because there may be a channel for each pair of ranks, and each clone of a TCPStore is one more
    connection, which its server accepts only after a look-up of the client's name, which may take seconds."""

    def __init__(self, store: Store, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self._lock = threading.Lock()
        self._made: Store | None = None

    def get(self) -> Store:
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._store.clone()
                    self._made.set_timeout(timedelta(seconds=self._timeout))
                except (AttributeError, RuntimeError):  # a store of an older torch, or one in Python
                    self._made = self._store
            return self._made

    def drop(self) -> None:
        """Closes the connection, which threads that use it now keep as long as they do."""
        with self._lock:
            self._store = self._made = None


class Channel:
    """One direction, one tag. This rank is its sender (rank 0 of the comm) or its receiver. number: that of the
    group's channels, with this one. lost(rank) returns why that rank can't come any more; empty: it may."""

    def __init__(
        self, clone: Clone, source: int, to: int, tag: int, sends: bool, number: int, timeout: float,
        lost: Callable[[int], str],
    ) -> None:
        self._clone = clone
        self._ends = source, to
        self._tag = tag
        self._key = f"p2p/{source}/{to}/{tag}"
        self._sends = sends
        self._number = number
        self._other = to if sends else source
        self._timeout = timeout
        self._lost = lost
        self._worker = Worker(f"hoop {self._key}")
        self._meeting: Future[Comm] = Future()  # the comm, or why it could not be made
        self._meets: threading.Thread | None = None

    def submit(self, tensor: torch.Tensor) -> Errand:
        dense = tensor.contiguous() if self._sends else dense_output(tensor)
        datatype, width = moved(dense)
        function = lib.hoop_send if self._sends else lib.hoop_recv

        def call() -> None:
            comm = self._joined()
            try:
                check(function(dense.data_ptr(), dense.numel() * width, datatype,
                               1 if self._sends else 0, comm._handle, None))
            except HoopError as caught:
                raise self._of_group(caught) from None
            if dense is not tensor and not self._sends:
                put(tensor, dense)

        return self._worker.submit(call, [tensor])

    def _joined(self) -> Comm:
        """Waits for the other rank, as long as it may still come."""
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
            store = self._clone.get()
            if not self._sends:
                self._await(store)
            name = "messages from rank {} (here 0) to rank {} (here 1), tag {}".format(*self._ends, self._tag)
            made = meet(store, self._key, 2, 0 if self._sends else 1, self._timeout, name, self._other)
        except BaseException as caught:
            cause = caught if isinstance(caught, HoopError) else caught.__cause__
            if isinstance(cause, HoopError):
                caught = failure(self._of_group(cause))
            _came_first(self._meeting.set_exception, caught)
        else:
            if not _came_first(self._meeting.set_result, made):
                made.abort()  # the channel has given up meanwhile

    def _of_group(self, error: HoopError) -> HoopError:
        """The error with the group's ranks, in place of those in the channel's comm."""
        said = re.sub(r"\brank ([01])\b( of 2\b)?", lambda found: f"rank {self._ends[int(found[1])]}", str(error))
        if self._number > MANY:
            said += (f" (this rank has {self._number} channels for messages of the group, each a thread and some "
                     "descriptors: one for each direction, peer and tag. If they are too many, use fewer tags)")
        error.args = ("message from rank {} to rank {}, tag {}: {}".format(*self._ends, self._tag, said),)
        return error

    def _await(self, store: Store) -> None:
        """Waits until the sender has come. By polling, since a get() can't be interrupted."""
        until, pause = time.monotonic() + self._timeout, 0.001
        while not store.check([self._key]):
            if self._meeting.done():
                raise DistBackendError(f"rank {self._other} is no longer awaited")
            if time.monotonic() > until:
                raise DistBackendError(f"rank {self._other} has not arrived within {self._timeout:g} s")
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
        """Waits for all messages, except those whose other rank can't come any more."""
        self._worker.close()
        comm = self._made()
        if comm is not None:
            comm.close()

    def leave(self, until: float) -> None:
        """At the end of the interpreter, after abort(): waits for its threads, at most until `until`."""
        self._worker.close(until)
        if self._meets is not None:
            joined(self._meets, until)


class Group:
    """A context manager from hoop_group_start() to hoop_group_end(); calling it adds a call to the group."""

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
