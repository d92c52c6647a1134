"""Communicators and groups: hoop.h for Python."""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
import weakref
from ctypes import byref, c_int, c_size_t, c_void_p
from enum import IntEnum
from operator import index
from time import time_ns
from typing import TYPE_CHECKING, Any, Collection, Iterable, Iterator, SupportsIndex

from . import _interrupt
from ._buffers import Buffer, Datatype, buffer
from ._end import opened
from ._interrupt import birth, heard, watch
from ._native import (
    IN_PROGRESS,
    INVALID_USAGE,
    OK,
    TIMEOUT,
    HoopError,
    RemoteError,
    UniqueIdStruct,
    check,
    config,
    error,
    json_text,
    lib,
    text,
    usage,
)
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._native import Options


class Op(IntEnum):
    """hoop_red_op_t. docs/numbers.md specifies the bits of results."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


SUM, PROD, MAX, MIN, AVG = Op


class UniqueId(bytes):
    """What the ranks of one new comm share: an address and a secret, 128 bytes. Give it to them
    in a way that nobody else can read."""

    def __repr__(self) -> str:
        return "<hoop.UniqueId>"

    __str__ = __repr__


def unique_id() -> UniqueId:
    """Makes the id of one new comm, at whose join this process is the root."""
    struct = UniqueIdStruct()
    check(lib.hoop_get_unique_id(byref(struct)))
    return UniqueId(ctypes.string_at(byref(struct), 128))


def _id_struct(id: bytes) -> UniqueIdStruct:
    if len(id) != 128:
        raise ValueError(f"a unique id has 128 bytes, this one {len(id)}")
    return UniqueIdStruct.from_buffer_copy(id)


class _Open(threading.local):
    """A thread's open groups, and what their operations need until the outermost group ends."""

    depth = 0
    held: list[Any] = []  # of the operations that the group's end waits for
    queued: list[tuple[Stream, Any]] = []  # what streams hold for the others
    waits: list[c_void_p] = []  # the comms whose operations the group's end waits for


_open = _Open()


def _all_queued() -> BaseException | None:
    """The outermost group has ended. Returns the first failure."""
    queued, _open.queued, _open.held, _open.waits = _open.queued, [], [], []
    failed: BaseException | None = None
    for stream, held in queued:
        try:
            stream._queued(held)
        except BaseException as caught:  # the others must be told in any case
            failed = failed or caught
    return failed


def _spoil() -> None:
    """Makes the open group fail as a whole. hoop has no call for that, but after a mistake nothing
    of a group runs: its end does not wait, and tells the others. A call without a comm is one."""
    lib.hoop_barrier(None, None)


def _outside_groups() -> None:
    """Refuses to make a comm in an open group, whose end would write the handle."""
    if _open.depth:
        raise usage("a comm cannot be made inside of hoop.group(): make it before or after")


@contextlib.contextmanager
@heard
def group() -> Iterator[None]:
    """``with hoop.group(): ...``. The operations that this thread calls inside run together at its end: those
    of one comm in the order of the calls, but all sends and receives at the same time. If the block
    raises, none of them runs, and the other ranks are told. Comms cannot be made inside."""
    check(lib.hoop_group_start())
    if not _open.depth:
        _open.held, _open.queued, _open.waits = [], [], []
    _open.depth += 1
    failed: BaseException | None = None
    try:
        yield
    except BaseException:
        _spoil()
        raise
    finally:
        _open.depth -= 1
        inside = () if _open.depth else (time_ns(), *_open.waits)
        try:  # a signal handler may raise when the call has returned
            ended = lib.hoop_group_end()  # in any case: else the group would stay open
            failed = error(ended) if ended != OK else None
        finally:
            inside = ()
            if not _open.depth:
                late = _all_queued()  # in any case: else the streams would hold it for ever
                failed = failed or late
    if failed is not None:
        raise failed


class Comm:
    """A communicator: one rank of n that agreed on each other.

    ``Comm()`` joins the job that the launcher describes (hooprun, torchrun, mpirun, srun); without a launcher it
    is the only rank. ``Comm(url, size=n, rank=r)`` meets the others at tcp://host:port or file:///path.
    ``Comm(id=id, size=n, rank=r)`` meets them by an id that one of them got from hoop.unique_id(). All ranks
    must call; it returns when all have joined.

    Every operation takes numpy arrays, or anything with the buffer protocol or DLPack, contiguous and in host
    memory, and returns the buffer with its result. Counts come from the buffers. All operations release the GIL
    while they wait. With ``stream`` they return when they are queued. Failures are HoopErrors with hoop's error
    text; the first failure that is not a mistake of the caller ends the comm on all ranks.

    Ctrl-C raises KeyboardInterrupt in the main thread even while that waits in a call. Then the comm has ended on
    all ranks, as after revoke(): shrink(abort=True) makes a new one. If a comm was being made, it is aborted as
    soon as it is made, and the comm that it was made of has ended. The program's own signal handlers run after
    the call.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        id: bytes | None = None,
        size: SupportsIndex | None = None,
        rank: SupportsIndex | None = None,
        init_timeout: float | None = None,
        op_timeout: float | None = None,
        dead_after: float | None = None,
        algo: str | None = None,
        name: str | None = None,
    ) -> None:
        options = config(
            init_timeout=init_timeout,
            op_timeout=op_timeout,
            dead_after=dead_after,
            algo=algo,
            name=name,
        )
        handle = c_void_p()
        _outside_groups()
        if url is None and id is None:
            if size is not None or rank is not None:
                raise TypeError("size and rank go with a url or an id; without, the launcher knows")
            birth(lib.hoop_comm_init_env, byref(handle), byref(options), handle=handle)
        elif size is None or rank is None or (url is not None and id is not None):
            raise TypeError("a comm is joined by Comm(url, size=, rank=) or Comm(id=, size=, rank=)")
        elif url is not None:
            birth(lib.hoop_comm_init_url, byref(handle), text(url), _int(size), _int(rank),
                  byref(options), handle=handle)
        else:
            birth(lib.hoop_comm_init_rank_config, byref(handle), _int(size), _id_struct(id), _int(rank),
                  byref(options), handle=handle)
        self._adopt(handle)

    def __reduce__(self) -> Any:
        raise TypeError("a comm belongs to its process: it can be neither copied nor pickled")

    def _hold(self, handle: c_void_p) -> None:
        self._handle: c_void_p | None = handle
        self._close = weakref.finalize(self, lib.hoop_comm_destroy, handle)
        self._close.atexit = False
        opened(self)

    def _adopt(self, handle: c_void_p) -> None:
        self._hold(handle)
        number = c_int()
        check(lib.hoop_comm_user_rank(handle, byref(number)))
        self.rank: int = number.value
        check(lib.hoop_comm_count(handle, byref(number)))
        self.size: int = number.value

    @classmethod
    def _of(cls, handle: c_void_p) -> Comm:
        made = cls.__new__(cls)
        made._adopt(handle)
        return made

    @classmethod
    def threads(cls, size: SupportsIndex) -> list[Comm]:
        """Makes a new comm with all its ranks in this process: one for each of size threads."""
        count = index(size)
        if not 1 <= count <= 4096:
            raise ValueError(f"a comm of {count} threads, expected 1 to 4096")
        handles = (c_void_p * count)()
        _outside_groups()
        check(lib.hoop_comm_init_all(handles, count, None))
        watch()
        return [cls._of(c_void_p(handle)) for handle in handles]

    # -- Collectives ------------------------------------------------------------------------

    def all_reduce(
        self, send: Any, recv: Any = None, op: int = SUM, stream: Stream | None = None
    ) -> Any:
        """Writes the reduction of all ranks' send to every rank's recv; without recv: in place."""
        recv = send if recv is None else recv
        s, r = self._pair(send, recv, 1, 1)
        self._call(lib.hoop_all_reduce, s.address, r.address, s.count, s.datatype, _int(op),
                   stream=stream, hold=(s, r))
        return recv

    def reduce(
        self, send: Any, recv: Any = None, op: int = SUM, root: SupportsIndex = 0,
        stream: Stream | None = None,
    ) -> Any:
        """Writes the reduction of all ranks' send to the root's recv; other ranks need no recv."""
        at_root = self.rank == root
        recv = send if recv is None and at_root else recv
        s = buffer(send)
        r = _same(s, recv, s.count) if at_root else None
        self._call(lib.hoop_reduce, s.address, r and r.address, s.count, s.datatype, _int(op),
                   _int(root), stream=stream, hold=(s, r))
        return recv

    def reduce_scatter(
        self, send: Any, recv: Any, op: int = SUM, stream: Stream | None = None
    ) -> Any:
        """Reduces all ranks' send, which have a block for each rank, and writes block r to rank r's recv."""
        s, r = self._pair(send, recv, self.size, 1)
        self._call(lib.hoop_reduce_scatter, s.address, r.address, r.count, s.datatype, _int(op),
                   stream=stream, hold=(s, r))
        return recv

    def all_gather(self, send: Any, recv: Any, stream: Stream | None = None) -> Any:
        """Writes all ranks' send, one after the other in rank order, to every rank's recv."""
        s, r = self._pair(send, recv, 1, self.size)
        self._call(lib.hoop_all_gather, s.address, r.address, s.count, s.datatype,
                   stream=stream, hold=(s, r))
        return recv

    def broadcast(self, data: Any, root: SupportsIndex = 0, stream: Stream | None = None) -> Any:
        """Copies the root's data to every rank's data."""
        b = buffer(data) if self.rank == root else _writable(buffer(data))
        self._call(lib.hoop_broadcast, b.address, b.address, b.count, b.datatype, _int(root),
                   stream=stream, hold=b)
        return data

    def gather(
        self, send: Any, recv: Any = None, root: SupportsIndex = 0, stream: Stream | None = None
    ) -> Any:
        """Writes all ranks' send, one after the other in rank order, to the root's recv."""
        s = buffer(send)
        r = _same(s, recv, s.count * self.size) if self.rank == root else None
        self._call(lib.hoop_gather, s.address, r and r.address, s.count, s.datatype, _int(root),
                   stream=stream, hold=(s, r))
        return recv

    def scatter(
        self, send: Any, recv: Any, root: SupportsIndex = 0, stream: Stream | None = None
    ) -> Any:
        """Writes block r of the root's send to rank r's recv; other ranks need no send."""
        r = _writable(buffer(recv))
        s = _same(r, send, r.count * self.size, False) if self.rank == root else None
        self._call(lib.hoop_scatter, s and s.address, r.address, r.count, r.datatype, _int(root),
                   stream=stream, hold=(s, r))
        return recv

    def all_to_all(self, send: Any, recv: Any, stream: Stream | None = None) -> Any:
        """Writes block q of rank r's send to block r of rank q's recv, for all r and q."""
        s, r = self._pair(send, recv, self.size, self.size)
        self._call(lib.hoop_alltoall, s.address, r.address, s.count // self.size, s.datatype,
                   stream=stream, hold=(s, r))
        return recv

    def all_to_all_v(
        self,
        send: Any,
        send_counts: Collection[SupportsIndex],
        recv: Any,
        recv_counts: Collection[SupportsIndex],
        stream: Stream | None = None,
    ) -> Any:
        """all_to_all with blocks of different sizes: counts of elements for each rank; the blocks of a buffer
        are contiguous, in rank order."""
        s = buffer(send)
        r = _same(s, recv, sum(map(index, recv_counts)))
        sent = sum(map(index, send_counts))
        if s.count != sent:
            raise ValueError(f"send has {s.count} elements, send_counts add up to {sent}")
        self._call(lib.hoop_alltoallv, s.address, *_layout(send_counts, self.size), r.address,
                   *_layout(recv_counts, self.size), s.datatype, stream=stream, hold=(s, r))
        return recv

    def barrier(self, stream: Stream | None = None) -> None:
        """Returns when every rank has called it."""
        self._call(lib.hoop_barrier, stream=stream)

    def send(self, data: Any, to: SupportsIndex, stream: Stream | None = None) -> None:
        """Sends data to one rank. The k-th send to a rank is received by its k-th recv from this rank."""
        b = buffer(data)
        self._call(lib.hoop_send, b.address, b.count, b.datatype, _int(to), stream=stream, hold=b)

    def recv(self, data: Any, source: SupportsIndex, stream: Stream | None = None) -> Any:
        """Receives from one rank into data, which must have the size of what is sent."""
        b = _writable(buffer(data))
        self._call(lib.hoop_recv, b.address, b.count, b.datatype, _int(source), stream=stream, hold=b)
        return data

    # -- Lifetime ---------------------------------------------------------------------------

    def split(
        self, color: SupportsIndex | None, key: SupportsIndex = 0, **options: Unpack[Options]
    ) -> Comm | None:
        """Makes a new comm for each color, which is 0 or more, with ranks ordered by key, then by rank. color None:
        this rank is in none of them. All ranks must call."""
        if color is not None and _int(color) < 0:
            raise ValueError(f"color is {color}, expected at least 0, or None")
        handle = c_void_p()
        _outside_groups()
        birth(lib.hoop_comm_split, self._alive(), -1 if color is None else _int(color), _int(key),
              byref(handle), _options(options), handle=handle, parent=self._handle)
        return Comm._of(handle) if handle else None

    def unique_id(self) -> UniqueId:
        """Makes the id for one grow(); called by one member, in whose process the new ranks join."""
        struct = UniqueIdStruct()
        check(lib.hoop_comm_get_unique_id(self._alive(), byref(struct)))
        return UniqueId(ctypes.string_at(byref(struct), 128))

    def grow(self, size: SupportsIndex, id: bytes | None = None, **options: Unpack[Options]) -> Comm:
        """Makes a new comm of size ranks: all members, which call this and keep their ranks, and new ranks, which
        call grown(). id: only of the member that made it; the others pass none."""
        return Comm._grow(self._alive(), size, id, -1, options)

    @classmethod
    def grown(
        cls, id: bytes, *, size: SupportsIndex, rank: SupportsIndex, **options: Unpack[Options]
    ) -> Comm:
        """Joins a comm that grows to size ranks, as a new rank. rank: one of those after the members'; id: made
        by a member's unique_id()."""
        return cls._grow(None, size, id, rank, options)

    @classmethod
    def _grow(
        cls, members: c_void_p | None, size: SupportsIndex, id: bytes | None, rank: SupportsIndex, options: Options
    ) -> Comm:
        handle = c_void_p()
        token = None if id is None else byref(_id_struct(id))
        _outside_groups()
        birth(lib.hoop_comm_grow, members, _int(size), token, _int(rank), byref(handle),
              _options(options), handle=handle, parent=members)
        return cls._of(handle)

    def shrink(
        self, exclude: Iterable[SupportsIndex] = (), *, abort: bool = False, **options: Unpack[Options]
    ) -> Comm:
        """Makes a new comm without the ranks in exclude, which do not call. abort: also without all dead ranks;
        possible even after a failure, but not after this rank's own abort()."""
        handle = c_void_p()
        ranks = [_int(rank) for rank in exclude]
        _outside_groups()
        birth(lib.hoop_comm_shrink, self._alive(), (c_int * len(ranks))(*ranks) if ranks else None, len(ranks),
              byref(handle), _options(options), 1 if abort else 0, handle=handle, parent=self._handle)
        return Comm._of(handle)

    def abort(self) -> None:
        """Ends the comm at once on all ranks. Any thread may call it at any time. Afterwards no comm can be made of
        it on this rank; to go on by shrink(abort=True), call revoke()."""
        check(lib.hoop_comm_abort(self._alive()))

    def revoke(self) -> None:
        """The first half of abort(): running and future operations fail on all ranks. shrink(abort=True) makes a
        new comm of it."""
        check(lib.hoop_comm_revoke(self._alive(), 0))

    def close(self) -> None:
        """Waits for what is queued on the comm, says goodbye to the other ranks, and frees the comm. No call on
        it may be running."""
        if self._close.detach():
            handle, self._handle = self._handle, None
            try:
                if not _open.depth:
                    self._finalize(handle)
            finally:
                result = lib.hoop_comm_destroy(handle)
                if result in (INVALID_USAGE, TIMEOUT):  # and nothing was freed
                    self._hold(handle)
            check(result)

    @heard
    def _finalize(self, handle: c_void_p) -> None:
        """Waits as long as hoop_comm_destroy() would, but with the handle still valid for Ctrl-C's revoke.
        Ignores failures, which hoop_comm_destroy() reports."""
        inside = time_ns(), handle
        lib.hoop_comm_finalize(handle)
        inside = ()

    _LEAVES = 1

    def _leave(self, _until: float) -> bool:
        """At the end of the process: says goodbye; or, if a thread is inside, ends the comm on all ranks. The
        handle stays valid for threads that still call. Returns whether another rank had ended the comm."""
        if not self._close.detach():
            return False
        ended = isinstance(self.failure, RemoteError)
        lib.hoop_comm_leave(self._handle)
        return ended

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: Any, *_exception: Any) -> None:
        if kind is not None and self._handle is not None:
            lib.hoop_comm_leave(self._handle)  # does not wait for what is queued
        self.close()

    # -- Looking inside ---------------------------------------------------------------------

    @property
    def failure(self) -> HoopError | None:
        """The failure that ended the comm, or None. Does not wait."""
        result = c_int()
        check(lib.hoop_comm_get_async_error(self._alive(), byref(result)))
        return error(result.value, self._handle) if result.value not in (OK, IN_PROGRESS) else None

    def info(self) -> dict[str, Any]:
        """The state of the comm, with the keys of hoop_info_json()."""
        return json.loads(json_text(lib.hoop_info_json, self._alive()))

    def explain(
        self, collective: str, count: SupportsIndex, datatype: int = Datatype.FLOAT32, op: int = SUM
    ) -> dict[str, Any]:
        """How an operation would be done, and what the alternatives cost; the keys are hoop_explain_json()'s."""
        return json.loads(json_text(lib.hoop_explain_json, self._alive(), text(collective),
                                    _size(count), _int(datatype), _int(op)))

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        return f"<hoop.Comm rank {self.rank} of {self.size}{state}>"

    # -- Inside -----------------------------------------------------------------------------

    def _alive(self) -> c_void_p:
        if self._handle is None:
            raise ValueError("this comm is closed")
        return self._handle

    def _pair(self, send: Any, recv: Any, send_blocks: int, recv_blocks: int):
        """Both buffers, checked to have that many blocks of the same size."""
        s = buffer(send)
        if s.count % send_blocks:
            raise ValueError(f"send has {s.count} elements: not a block for each of {self.size} ranks")
        if recv is send and send_blocks == recv_blocks:
            return s, _writable(s)
        return s, _same(s, recv, s.count // send_blocks * recv_blocks)

    @heard
    def _call(self, function, *arguments: Any, stream: Stream | None, hold: Any = None) -> None:
        handle = self._alive()
        if stream is None:
            if _interrupt._bell is None:
                watch()  # the comm was made on another thread
            if _open.depth:
                _open.held.append((self, hold))
            inside = time_ns(), handle
            result = function(*arguments, handle, None)
            inside = ()
        elif not isinstance(stream, Stream):
            raise TypeError(f"stream is {type(stream).__name__}, not a hoop.Stream")
        else:
            result = self._queue(function, arguments, handle, stream, hold)
        if result != OK:
            raise error(result)
        if _open.depth and stream is None:
            _open.waits.append(handle)

    def _queue(self, function, arguments: tuple[Any, ...], handle: c_void_p, stream: Stream, hold: Any) -> int:
        """Queues an operation. The stream holds its buffers from before the call on, since a signal handler may
        raise as soon as it returns."""
        queue = stream._alive()
        held = stream._hold((self, hold))
        if _open.depth:
            _open.queued.append((stream, held))
            return function(*arguments, handle, queue)
        try:
            return function(*arguments, handle, queue)
        finally:
            stream._queued(held)


def _int(number: Any) -> int:
    """A number for a C int; refuses larger ones, which ctypes would cut."""
    try:
        found = index(number)
    except TypeError:
        raise TypeError(f"{number!r} is no whole number: expected a rank, number of ranks, color or key, "
                        "or an operation such as hoop.SUM") from None
    if -(2**31) <= found < 2**31:
        return found
    raise ValueError(f"{found} is not a rank, number of ranks, operation, color or key: it has more than 32 bits")


def _size(number: Any) -> int:
    """The same for a size_t."""
    found = index(number)
    if 0 <= found < 2**64:
        return found
    raise ValueError(f"{found} is not a count: expected 0 to {2**64 - 1}")


def _options(options: Options) -> Any:
    return byref(config(**options)) if options else None


def _layout(counts: Collection[SupportsIndex], size: int):
    if len(counts) != size:
        raise ValueError(f"{len(counts)} counts for {size} ranks")
    counts = [_size(count) for count in counts]
    displacements = [sum(counts[:i]) for i in range(size)]
    return (c_size_t * size)(*counts), (c_size_t * size)(*displacements)


def _writable(found: Buffer) -> Buffer:
    if not found.writable:
        owner = found.owner[0] if isinstance(found.owner, tuple) else found.owner
        raise TypeError(f"{type(owner).__name__} is read-only and cannot take a result")
    return found


def _same(known: Buffer, thing: Any, count: int, written: bool = True) -> Buffer:
    """The buffer of thing, which must have count elements of known's datatype."""
    if thing is None:
        raise TypeError("this rank needs both buffers")
    found = buffer(thing)
    if found.datatype != known.datatype or found.count != count:
        raise ValueError(
            f"a buffer of {found.count} {found.datatype.name} where {count} "
            f"{known.datatype.name} are expected"
        )
    return _writable(found) if written else found
