"""Streams and their tickets."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from ctypes import byref, c_int, c_void_p
from typing import Any, Sequence

from ._end import opened
from ._native import IN_PROGRESS, OK, TIMEOUT, TicketStruct, check, error, lib, seconds, wait_ticket


class Ticket:
    """A point of a stream: complete when everything that was queued before it is complete."""

    __slots__ = ("_last", "_parts", "_stream")

    def __init__(self, stream: Stream, last: TicketStruct, parts: Sequence[TicketStruct]) -> None:
        self._stream = weakref.ref(stream)
        self._last = last
        self._parts = parts  # tickets of the operations since the ticket before, which have their results

    def __reduce__(self) -> Any:
        raise TypeError("a ticket belongs to its process: it can be neither copied nor pickled")

    def done(self) -> bool:
        """Whether it is complete. Raises if one of its operations failed. Does not wait."""
        result = lib.hoop_ticket_query(self._last)
        if result == IN_PROGRESS:
            return False
        stream = self._stream()
        if stream is not None:
            stream._release()  # so that the buffers can be resized again
        for part in self._parts:
            check(lib.hoop_ticket_query(part))
        check(result)
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Waits, at most timeout seconds; then it raises TimedOut, which has no other effect. Raises the
        first failure among the operations since the ticket before this one. An exception of a signal
        handler, such as KeyboardInterrupt, is raised, too; the operations go on."""
        if wait_ticket(self._last, None if timeout is None else seconds("timeout", timeout)) == IN_PROGRESS:
            raise error(TIMEOUT)
        self.done()


class _Held:
    """What an operation needs until it is complete. The ticket is behind it; None: it is not queued yet. fresh: it
    was queued after the user's last record()."""

    __slots__ = ("buffers", "fresh", "ticket")

    def __init__(self, buffers: Any) -> None:
        self.buffers = buffers
        self.fresh = False
        self.ticket: TicketStruct | None = None


def _drop(handle: c_void_p, held: deque[_Held]) -> None:
    """Frees a stream that nothing refers to any more. What is queued may wait for other ranks, which no signal handler
    could interrupt here, so a thread waits for it, and keeps its buffers."""

    def destroy() -> None:
        lib.hoop_stream_destroy(handle)
        held.clear()

    if lib.hoop_stream_query(handle) == IN_PROGRESS:
        try:
            threading.Thread(target=destroy, name="hoop stream", daemon=True).start()
            return
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            pass
    destroy()


class Stream:
    """A queue of operations, which a thread of hoop's own carries out in the order of the calls.

    An operation with a stream returns when it is queued; the stream keeps its comm and buffers alive until
    it is complete. Until then, and until a ticket behind it or the stream has been waited for, a bytearray
    or the like refuses to be resized or closed (BufferError). When the process ends, queued operations get
    5 s, then their comms are aborted. For event loops a stream has a ``fileno()``.
    """

    def __init__(self) -> None:
        self._handle: c_void_p | None = c_void_p()
        check(lib.hoop_stream_create(byref(self._handle)))
        # Guards what follows, as calls by ctypes let other threads run. Reentrant, because a buffer that is
        # released may have a finalizer that queues something.
        self._lock = threading.RLock()
        self._held: deque[_Held] = deque()
        # The first operation that has failed, is released, and was queued after the user's last record().
        self._failed: list[TicketStruct] = []
        self._close = weakref.finalize(self, _drop, self._handle, self._held)
        self._close.atexit = False
        opened(self)

    def __reduce__(self) -> Any:
        raise TypeError("a stream belongs to its process: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        return f"<hoop.Stream{'' if self._handle else ', closed'}>"

    def record(self) -> Ticket:
        """A ticket for everything that was queued so far."""
        with self._lock:
            last = self._record()
            fresh = [held for held in self._held if held.fresh]
            made = Ticket(self, last, [*self._failed, *(held.ticket for held in fresh)])
            self._failed = []
            for held in fresh:
                held.fresh = False
        return made

    def _record(self) -> TicketStruct:
        struct = TicketStruct()
        check(lib.hoop_stream_record(self._alive(), byref(struct)))
        return struct

    def synchronize(self) -> None:
        """Waits until everything that was queued is complete; raises the first failure since the last
        call, or an exception of a signal handler, like Ticket.wait()."""
        try:
            wait_ticket(self._record(), None)
            check(lib.hoop_stream_synchronize(self._alive()))
        finally:
            self._release()

    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        result = lib.hoop_stream_query(self._alive())
        if result not in (OK, IN_PROGRESS):
            raise error(result)
        return result == OK

    def wait_for(self, ticket: Ticket) -> None:
        """Lets what is queued here from now on begin only when ticket, of any stream, is complete."""
        if not isinstance(ticket, Ticket):
            raise TypeError(f"{type(ticket).__name__} is not a hoop.Ticket")
        check(lib.hoop_stream_wait_ticket(self._alive(), ticket._last))

    def fileno(self) -> int:
        """A descriptor (an eventfd) that becomes readable when a recorded ticket is complete."""
        fd = c_int()
        check(lib.hoop_stream_get_fd(self._alive(), byref(fd)))
        return fd.value

    def close(self) -> None:
        """Waits for what is queued, then frees the stream. Its tickets stay valid. If an exception of a
        signal handler is raised, the stream is as before."""
        last = TicketStruct()
        if self._handle is not None and lib.hoop_stream_record(self._handle, byref(last)) == OK:
            wait_ticket(last, None)  # in a forked child the record is refused, and nothing is waited for
        if self._close.detach():
            handle, self._handle = self._handle, None
            result = lib.hoop_stream_destroy(handle)
            with self._lock:
                self._held.clear()
            check(result)

    _LEAVES = 0  # before comms, which queued operations need

    def _leave(self, until: float) -> None:
        """At the end of the process: waits for what is queued, but frees nothing: a thread may be inside."""
        last = TicketStruct()
        if self._close.detach() and lib.hoop_stream_record(self._handle, byref(last)) == OK:
            wait_ticket(last, max(0.0, until - time.monotonic()))

    def _alive(self) -> c_void_p:
        if self._handle is None:
            raise ValueError("this stream is closed")
        return self._handle

    def _hold(self, buffers: Any) -> _Held:
        """Holds what an operation needs that is about to be queued. If a signal handler raises an exception before
        _queued(), the stream holds it until it is closed."""
        held = _Held(buffers)
        with self._lock:
            self._release()
            self._held.append(held)
        return held

    def _queued(self, held: _Held) -> None:
        """The operation is queued, or will not be."""
        with self._lock:
            held.ticket = self._record()
            held.fresh = True

    def _release(self) -> None:
        """Releases the buffers of complete operations."""
        with self._lock:
            while self._held and (ticket := self._held[0].ticket) is not None:
                result = lib.hoop_ticket_query(ticket)
                if result == IN_PROGRESS:
                    break
                held = self._held.popleft()
                if held.fresh and result != OK and not self._failed:
                    self._failed.append(ticket)
