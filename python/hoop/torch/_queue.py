"""Asynchronous operations: a hoop stream for each group, and one thread that completes futures.

Operations are carried out by libhoop's own threads, or by who waits for them in wait(); Python has a
part only when they are through, to copy a result to its place and to complete a future. Whoever
comes first does that: wait(), the next operation of the group, or, for a job whose future was asked
for, the waiter. That is one thread of the process, asleep on the streams' descriptors.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
from collections import deque
from ctypes import byref
from datetime import timedelta
from typing import Any, Callable, NamedTuple

from .._comm import Stream
from .._native import IN_PROGRESS, TIMEOUT, TicketStruct, check, error, lib
from ._work import Job

_query, _record, _wait = lib.hoop_ticket_query, lib.hoop_stream_record, lib.hoop_ticket_wait


def nothing() -> None:
    pass


class Operation(NamedTuple):
    """One of c10d's operations. It owns the memory that it works on, until it is forgotten."""

    start: Callable[[int | None], None]  # its calls of hoop, on that stream; None: they block
    after: Callable[[], None] = nothing  # what is left to do with their results


def all_of(operations: list[Operation]) -> Operation:
    """One after the other."""

    def start(stream: int | None) -> None:
        for operation in operations:
            operation.start(stream)

    def after() -> None:
        for operation in operations:
            operation.after()

    return Operation(start, after)


class Queued(Job):
    """A job on a stream: over when its ticket is, and what came after that is done."""

    def __init__(self, queue: Queue, operation: Operation, result: Any) -> None:
        super().__init__(result)
        self._queue = queue
        self._operation: Operation | None = operation
        self._refused: BaseException | None = None
        self.ticket = TicketStruct()

    def begin(self, stream: int) -> None:
        """A part of it may be queued when another part is refused: it has its ticket anyhow."""
        try:
            self._operation.start(stream)
        except BaseException as caught:
            self._refused = caught
        check(_record(stream, byref(self.ticket)))

    def finish(self, result: int) -> None:
        """The ticket is complete, with that result; the calling thread has just asked for it."""
        self._end(lambda: self._finish(result))

    def _finish(self, result: int) -> None:
        operation, self._operation = self._operation, None
        try:
            if self._refused is not None:
                raise self._refused
            if result:
                raise error(result)
            operation.after()
        except BaseException as caught:
            raise self._queue.failed(caught) from None

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._over:
            milliseconds = -1
            if timeout:
                milliseconds = max(1, min(round(timeout.total_seconds() * 1000), 2**31 - 1))
            result = _wait(self.ticket, milliseconds)
            if result == TIMEOUT and _query(self.ticket) == IN_PROGRESS:
                raise self._late(timeout)
            self._queue.settle()
            if not self._over:
                self.finish(_query(self.ticket))  # another thread has taken it, and is at it
        if self._error is not None:
            raise self._error
        return True

    def _watch(self) -> None:
        _waiter.watch(self._queue)

    def is_completed(self) -> bool:
        return self._over or _query(self.ticket) != IN_PROGRESS


class Queue:
    """What a group has queued, and what of it is not through."""

    def __init__(self, failed: Callable[[BaseException], BaseException]) -> None:
        self.failed = failed  # makes the exception for a job's caller
        self._stream: Stream | None = None
        self.fd = -1
        self._jobs: deque[Queued] = deque()
        self._lock = threading.Lock()

    def submit(self, operation: Operation, result: Any) -> Queued:
        self.settle()
        job = Queued(self, operation, result)
        with self._lock:
            if self._stream is None:
                self._stream = Stream()
                self.fd = self._stream.fileno()
            job.begin(self._stream._handle)
            self._jobs.append(job)
        return job

    def settle(self) -> None:
        """Ends the jobs whose tickets are complete, in their order."""
        while self._jobs:
            with self._lock:
                if not self._jobs:
                    return
                result = _query(self._jobs[0].ticket)
                if result == IN_PROGRESS:
                    return
                job = self._jobs.popleft()
            job.finish(result)

    def awaited(self) -> bool:
        with self._lock:
            return any(job._ended is not None for job in self._jobs)

    def close(self) -> None:
        """After the jobs that are there."""
        stream, self._stream = self._stream, None
        if stream is not None:
            _waiter.forget(self.fd)
            lib.hoop_stream_synchronize(stream._handle)  # its failures are the jobs'
            self.settle()
            stream.close()


class Waiter:
    """The thread that ends jobs for which nobody waits; made at the first of them. A queue is
    watched until its next ticket, and again as long as a future waits for one. The thread is gone before
    the interpreter is: that would end it in the middle of a future's C++, and so the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None
        self._queues: dict[int, Queue] = {}

    def watch(self, queue: Queue) -> None:
        fd = queue.fd
        with self._lock:
            if self._poll is None:
                self._start()
            if self._queues.get(fd) is queue:
                self._poll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
            else:
                self._queues[fd] = queue
                self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def _start(self) -> None:
        self._poll = select.epoll()
        self._end, bell = os.pipe()
        self._poll.register(self._end, select.EPOLLIN)
        thread = threading.Thread(target=self._run, name="hoop futures", daemon=True)
        thread.start()

        def stop() -> None:
            os.close(bell)
            thread.join(10)

        atexit.register(stop)

    def forget(self, fd: int) -> None:
        with self._lock:
            if self._queues.pop(fd, None) is not None:
                self._poll.unregister(fd)

    def _run(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._end:
                    return
                self._ready(fd)

    def _ready(self, fd: int) -> None:
        with self._lock:
            queue = self._queues.get(fd)
            if queue is None:
                return
            try:
                os.read(fd, 8)
            except BlockingIOError:
                pass
        queue.settle()
        if queue.awaited():
            with self._lock:
                if self._queues.get(fd) is queue:
                    self._poll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)


_waiter = Waiter()
