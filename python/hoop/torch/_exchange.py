"""Point to point: each direction between two ranks, and each tag, is a channel of its own.

So what c10d allows works as it should: a receive may be posted before a send or after it, ranks may
send to each other at the same time, and messages of different tags pass each other. A channel is a
comm of two ranks, which meet by the group's store at the channel's first use, and a worker that
waits in it.
"""

from __future__ import annotations

import threading
from ctypes import c_void_p
from typing import Any

import torch
from torch.distributed import DistBackendError, Store

from .._comm import Comm, UniqueId, unique_id
from .._native import check, error, lib
from ._tensors import put
from ._types import moved
from ._work import Errand, Worker


def meet(store: Store, key: str, size: int, rank: int, timeout: float, name: str) -> Comm:
    """A new comm of the ranks that name the same key: by a fresh secret, which the store forgets."""
    if rank == 0:
        token = unique_id()
        store.set(key, token)
    else:
        token = UniqueId(store.get(key))
    name = name.encode()[:127].decode(errors="ignore")  # torch makes names of any length
    comm = Comm(id=token, size=size, rank=rank, init_timeout=timeout, op_timeout=timeout, name=name)
    if rank == 0:
        try:
            store.delete_key(key)
        except (RuntimeError, NotImplementedError):
            pass  # a store that cannot forget
    return comm


class Channel:
    """One direction, one tag: this rank is its sender (rank 0 of the comm) or its receiver."""

    def __init__(self, store: Store, source: int, to: int, tag: int, sends: bool, timeout: float):
        self._store = store
        self._key = f"p2p/{source}/{to}/{tag}"
        self._sends = sends
        self._timeout = timeout
        self._worker = Worker(f"hoop {self._key}")
        self._comm: Comm | None = None
        self._ended = False
        self._lock = threading.Lock()

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
        if self._comm is None:
            if self._ended:
                raise self._aborted()
            # The store of a worker: get() blocks, and a store serves one caller at a time.
            store = self._store.clone() if hasattr(self._store, "clone") else self._store
            made = meet(store, self._key, 2, 0 if self._sends else 1, self._timeout, self._key)
            with self._lock:
                self._comm = made
                if self._ended:
                    made.abort()
        return self._comm

    def abort(self) -> None:
        with self._lock:
            self._ended = True
            comm = self._comm
        if comm is not None:
            comm.abort()
        else:
            self._worker.fail(self._aborted())  # it may wait for the other rank for long

    def _aborted(self) -> DistBackendError:
        return DistBackendError(f"HOOP_ABORTED: abort() ended the channel {self._key} before it was joined")

    def busy(self) -> bool:
        return self._worker.busy()

    def close(self) -> None:
        """After the messages that are there; an aborted channel that still joins is left to itself."""
        self._worker.close(0 if self._ended and self._comm is None else None)
        if self._comm is not None:
            self._comm.close()


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
