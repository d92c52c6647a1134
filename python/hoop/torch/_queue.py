"""Asynchronous operations: a hoop stream for each group, and threads that complete futures.

Operations are begun by who queues them, and carried out by libhoop's own thread or by who waits for
them: in wait(), in a blocking operation behind them, or for a moment where a future is asked for. Python has a
part only when they are through, to copy a result to its place and to complete a future. Whoever
comes first does that: wait(), the next operation of the group, or, for a job whose future was asked
for, the waiter: one thread of the process, asleep on the streams' descriptors, and another while a
callback runs that may itself wait for a future.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from ctypes import byref, c_void_p
from datetime import timedelta
from time import perf_counter_ns
from typing import Any, Callable, NamedTuple

from .._native import IN_PROGRESS, TIMEOUT, TicketStruct, check, error, lib, wait_ticket
from .._stream import Stream
from ._work import Job, complete

_query, _wait, _record = lib.hoop_ticket_query, lib.hoop_ticket_wait, lib.hoop_stream_record


MOMENT_NS = 100_000  # about what two changes of threads take
VAIN, RAREST = 8, 16  # after so many moments in vain one of so many futures is tried at once


def nothing() -> None:
    pass


class Operation(NamedTuple):
    """One of c10d's operations. It owns the memory that it works on, until it is forgotten."""

    start: Callable[[c_void_p | None], None]  # its calls of hoop, on that stream; None: they block
    after: Callable[[], None] = nothing  # what is left to do with their results
    keep: Any = None  # what it works on, where its functions do not know that


def all_of(operations: list[Operation]) -> Operation:
    """One after the other."""

    def start(stream: c_void_p | None) -> None:
        for operation in operations:
            operation.start(stream)

    def after() -> None:
        for operation in operations:
            operation.after()

    return Operation(start, after)


class Queued(Job):
    """A job on a stream: over when its ticket is, and what came after that is done."""

    _refused: BaseException | None = None

    def __init__(self, queue: Queue, operation: Operation, result: Any) -> None:
        Job.__init__(self, result)
        self._queue = queue
        self._operation: Operation | None = operation
        self.ticket = TicketStruct()

    def begin(self, stream: c_void_p) -> None:
        """A part of it may be queued when another part is refused: it has its ticket anyhow."""
        try:
            self._operation.start(stream)
        except BaseException as caught:
            self._refused = caught
        check(_record(stream, byref(self.ticket)))

    def finish(self, result: int) -> None:
        """The ticket is complete, with that result; the calling thread has just asked for it."""
        complete(self._end(self._finish, result))

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
            result = wait_ticket(self.ticket, timeout.total_seconds() if timeout else None)
            if result == TIMEOUT and _query(self.ticket) == IN_PROGRESS:
                raise self._late(timeout)
            self._complete(result)
        if self._error is not None:
            raise self._error
        return True

    def _complete(self, result: int) -> None:
        """Its ticket is complete, and perhaps those of jobs before it."""
        if self._queue.is_next(self):
            self.finish(result)
        else:
            self._queue.settle()
            if not self._over:
                self.finish(_query(self.ticket))  # another thread has taken it, and is at it

    def _watch(self) -> None:
        if self._queue.comes_at_once(self.ticket):
            self._complete(_query(self.ticket))
        else:
            self._queue.hurry()
            _waiter.watch(self._queue)

    def is_completed(self) -> bool:
        return self._over or _query(self.ticket) != IN_PROGRESS


class Queue:
    """What a group has queued, and what of it is not through."""

    def __init__(self, failed: Callable[[BaseException], BaseException]) -> None:
        self.failed = failed  # makes the exception for a job's caller
        self._stream: Stream | None = None
        self.fd = -1
        self.jobs: deque[Queued] = deque()
        self._lock = threading.Lock()
        self._vain = 0  # moments in a row that were in vain
        self._left = 0  # so many futures are not tried at once before the next

    def submit(self, operation: Operation, result: Any) -> Queued:
        job = Queued(self, operation, result)
        with self._lock:
            if self._stream is None:
                self._stream = Stream()
                self.fd = self._stream.fileno()
            job.begin(self._stream._handle)
            self.jobs.append(job)
            first = self.jobs[0]
        # This has it begun, for nobody may come to wait for it soon. Not a query, which lets others have the CPU.
        if _wait(first.ticket, 0) != TIMEOUT:
            self.settle()
        return job

    def comes_at_once(self, ticket: TicketStruct) -> bool:
        """Moves what is queued for a moment, in which a small operation is through whose other ranks are there.
        Whoever asks for its future may have better to do: so it is tried seldom where it was in vain."""
        if self._left:
            self._left -= 1
            return False
        until = perf_counter_ns() + MOMENT_NS
        while _wait(ticket, 0) == TIMEOUT and _query(ticket) == IN_PROGRESS:
            if perf_counter_ns() >= until:
                self._vain += 1
                self._left = RAREST - 1 if self._vain >= VAIN else 0
                return False
        self._vain = 0
        return True

    def drain(self) -> None:
        """Who waits for what comes behind moves it himself: else it would be left to libhoop's thread."""
        try:
            last = self.jobs[-1]  # without the lock, which a forked child may have got from who held it
        except IndexError:  # another thread has ended them
            return
        wait_ticket(last.ticket, None)

    def settle(self) -> None:
        """Ends the jobs whose tickets are complete, in their order."""
        while (taken := self.take()) is not None:
            job, result = taken
            job.finish(result)

    def take(self) -> tuple[Queued, int] | None:
        """The first job, if its ticket is complete, and the result: the caller is to finish it."""
        if not self.jobs:
            return None
        with self._lock:
            if not self.jobs or (result := _query(self.jobs[0].ticket)) == IN_PROGRESS:
                return None
            return self.jobs.popleft(), result

    def is_next(self, job: Queued) -> bool:
        """Whether it is the first job, and the caller is to finish it."""
        with self._lock:
            first = bool(self.jobs) and self.jobs[0] is job
            if first:
                self.jobs.popleft()
            return first

    def hurry(self) -> None:
        """What is queued is not left to who may wait for it, but begun."""
        stream = self._stream
        if stream is not None:
            lib.hoop_stream_query(stream._handle)

    def awaited(self) -> bool:
        with self._lock:
            return any(job._ended is not None for job in self.jobs)

    def ready(self) -> bool:
        with self._lock:
            return bool(self.jobs) and _query(self.jobs[0].ticket) != IN_PROGRESS

    def busy(self) -> bool:
        with self._lock:
            return any(_query(job.ticket) == IN_PROGRESS for job in self.jobs)

    def close(self) -> None:
        """After the jobs that are there."""
        stream, self._stream = self._stream, None
        if stream is not None:
            _waiter.forget(self.fd)
            lib.hoop_stream_synchronize(stream._handle)  # its failures are the jobs'
            self.settle()
            stream.close()


class Waiter:
    """The threads that end jobs for which nobody waits; made at the first of them. A queue is
    watched until its next ticket, and again as long as a future waits for one. A callback may wait for
    another future, so it runs only while one more thread is there for what is watched. The threads are
    gone before the interpreter is: that would end them in the middle of a future's C++, and so the
    process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None
        self._queues: dict[int, Queue] = {}
        self._armed: set[int] = set()  # those that epoll will tell of
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that wait in epoll, or have just been told

    def _is_foreign(self) -> bool:
        """In a forked child: the epoll set is the parent's, too."""
        return self._poll is not None and self._process != os.getpid()

    def watch(self, queue: Queue) -> None:
        if self._is_foreign():
            return
        fd = queue.fd
        with self._lock:
            if self._poll is None:
                self._start()
            if self._queues.get(fd) is not queue:
                self._queues[fd] = queue
                self._poll.register(fd, 0)
            self._arm(queue)
            self._cover()

    def _start(self) -> None:
        self._process = os.getpid()
        self._poll = select.epoll()
        self._end, self._bell = os.pipe()
        self._poll.register(self._end, select.EPOLLIN)

    def stop(self) -> None:
        # A byte, and not its end: a forked child may hold the bell too.
        if self._poll is None or self._is_foreign():
            return
        os.write(self._bell, b"!")
        until = time.monotonic() + 10
        for thread in self._threads:  # one that ends may have started another
            thread.join(max(0.0, until - time.monotonic()))

    def _arm(self, queue: Queue) -> None:
        # An eventfd can be written to at any time: that is how what is there already is told. It was told
        # of before, and perhaps read then, when nobody had asked for a future of it.
        at_once = select.EPOLLOUT if queue.ready() else 0
        self._poll.modify(queue.fd, select.EPOLLIN | select.EPOLLONESHOT | at_once)
        self._armed.add(queue.fd)

    def _cover(self) -> None:
        """Sees to it that somebody waits for what is watched."""
        if self._idle or not self._armed:
            return
        thread = threading.Thread(target=self._run, name="hoop futures", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is at its end
        self._idle += 1
        self._threads.append(thread)

    def forget(self, fd: int) -> None:
        if self._is_foreign():
            return
        with self._lock:
            if self._queues.pop(fd, None) is not None:
                self._armed.discard(fd)
                self._poll.unregister(fd)

    def _run(self) -> None:
        while True:
            ((fd, _),) = self._poll.poll(maxevents=1)
            if fd == self._end:
                return
            self._ready(fd)
            with self._lock:
                self._idle += 1

    def _ready(self, fd: int) -> None:
        """Ends one job after the other; those behind it are watched again before its callbacks run."""
        with self._lock:
            self._idle -= 1
            queue = self._queues.get(fd)
            if queue is None:
                return
            self._armed.discard(fd)
            try:
                os.read(fd, 8)
            except BlockingIOError:
                pass
        while True:
            taken = queue.take()
            if taken is None or taken[0]._ended is not None:
                break
            job, result = taken
            job.finish(result)
        with self._lock:
            if self._queues.get(fd) is queue and queue.awaited():
                self._arm(queue)
            if taken is not None:
                self._cover()
        if taken is not None:
            job, result = taken
            job.finish(result)


_waiter = Waiter()
stop_waiter = _waiter.stop
