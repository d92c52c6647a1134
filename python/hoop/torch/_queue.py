"""Asynchronous operations: a hoop stream for each group, and threads that complete futures.

The thread that queues an operation begins it. libhoop's own thread carries it out, or a thread that waits for
it: in wait(), in a blocking operation behind it, or for a moment when its future is requested. Python only does
what remains when the operation is complete: it copies the result to its place, and completes the future. The
first that comes does so: wait(), the next operation of the group, or, for a job whose future was requested,
the waiter: a thread of the process that sleeps on the streams' descriptors. While it runs a callback, which may
itself wait for a future, another thread takes its place.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import deque
from ctypes import byref, c_void_p
from datetime import timedelta
from time import perf_counter_ns
from typing import Any, Callable, NamedTuple

from torch.distributed import DistBackendError

from .._native import IN_PROGRESS, TIMEOUT, TicketStruct, check, error, lib, wait_ticket
from .._stream import Stream
from ._limits import clock
from ._work import Job, complete, failure

_query, _wait, _record = lib.hoop_ticket_query, lib.hoop_ticket_wait, lib.hoop_stream_record


MOMENT_NS = 100_000  # about the time of two thread switches
VAIN, RAREST = 8, 16  # after 8 futures in a row for which the moment was in vain, only every 16th gets one


def nothing() -> None:
    pass


class Limit(NamedTuple):
    """How long an operation may take."""

    seconds: float
    whose: str  # what set it, for the error


class Operation(NamedTuple):
    """An operation of c10d. It keeps the memory that it works on alive."""

    start: Callable[[c_void_p | None], None]  # makes its calls of hoop, on that stream; None: they block
    after: Callable[[], None] = nothing  # to be called when their results are there
    keep: Any = None  # memory that start and after do not refer to


def all_of(operations: list[Operation]) -> Operation:
    """The operations one after the other, as one."""

    def start(stream: c_void_p | None) -> None:
        for operation in operations:
            operation.start(stream)

    def after() -> None:
        for operation in operations:
            operation.after()

    return Operation(start, after)


class Queued(Job):
    """A job on a stream: over when its ticket is complete and its operation's after() has run."""

    _refused: BaseException | None = None
    limit: Limit | None = None
    until = math.inf  # by time.monotonic()
    late = False

    def __init__(self, queue: Queue, operation: Operation, result: Any) -> None:
        Job.__init__(self, result)
        self._queue = queue
        self._operation: Operation | None = operation
        self.ticket = TicketStruct()

    def begin(self, stream: c_void_p) -> None:
        """Queues the operation. If a part of it is refused other parts may be queued, so it gets a ticket anyhow."""
        try:
            self._operation.start(stream)
        except BaseException as caught:
            self._refused = caught
        check(_record(stream, byref(self.ticket)))

    def finish(self, result: int) -> None:
        """Ends the job, whose ticket is complete with this result, which the calling thread has just queried: so
        hoop's error text is that of the failure."""
        complete(self._end(self._finish, result))

    def _finish(self, result: int) -> None:
        operation, self._operation = self._operation, None
        try:
            if self._refused is not None:
                raise self._refused
            if result:
                raise self._overdue() if self.late else error(result)
            operation.after()
        except BaseException as caught:
            self._error = failure(caught)  # for an abort hook that asks this job
            raise self._queue.failed(caught) from None

    def _overdue(self) -> DistBackendError:
        return DistBackendError(
            f"HOOP_TIMEOUT: a timeout passed: the operation was not complete after the {self.limit.seconds:g} s that "
            f"{self.limit.whose}; the group can no longer be used"
        )

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._over:
            result = wait_ticket(self.ticket, timeout.total_seconds() if timeout else None)
            if result == IN_PROGRESS:
                raise self._late(timeout)
            self._complete(result)
        if self._error is not None:
            raise self._error
        return True

    def _complete(self, result: int) -> None:
        """Ends the job, whose ticket is complete, after those before it."""
        if self._queue.is_next(self):
            self.finish(result)
        else:
            self._queue.settle()
            if not self._over:
                self.finish(_query(self.ticket))  # another thread has taken it, and is ending it

    def _watch(self) -> None:
        if self._queue.comes_at_once(self.ticket):
            self._complete(_query(self.ticket))
        else:
            self._queue.hurry()
            _waiter.watch(self._queue)

    def is_completed(self) -> bool:
        return self._over or _query(self.ticket) != IN_PROGRESS


class Queue:
    """The stream of a group, and its jobs that are not over."""

    def __init__(self, failed: Callable[[BaseException], BaseException], revoke: Callable[[], None]) -> None:
        self.failed = failed  # makes the exception for the caller of a job
        self._revoke = revoke
        self.late = False  # an operation has exceeded its limit
        self._closed = False
        self._stream: Stream | None = None
        self.fd = -1
        self.jobs: deque[Queued] = deque()
        self._lock = threading.Lock()
        self._vain = 0  # how many moments in a row were in vain
        self._left = 0  # how many futures get no moment before the next that does

    def submit(self, operation: Operation, result: Any, limit: Limit | None = None) -> Queued:
        job = Queued(self, operation, result)
        if limit is not None:
            job.limit, job.until = limit, time.monotonic() + limit.seconds
        with self._lock:
            if self._closed:
                raise DistBackendError("the group has been ended by another thread")
            if self._stream is None:
                self._stream = Stream()
                self.fd = self._stream.fileno()
            job.begin(self._stream._handle)
            self.jobs.append(job)
            first = self.jobs[0]
        # This begins the operation, since nobody may wait for it soon. A query would do so, too, but yield the CPU.
        if _wait(first.ticket, 0) != TIMEOUT:
            self.settle()
        if limit is not None and not job.is_completed():
            clock.watch(self, job.until)
        return job

    def expire(self, now: float) -> float:
        """Ends the group if an operation is late. Returns when the next one will be."""
        with self._lock:
            running = [job for job in self.jobs if job.limit is not None and not job.is_completed()]
            for job in running:
                job.late = job.until <= now
            self.late = self.late or any(job.late for job in running)
        if any(job.late for job in running):
            self._revoke()  # so that no rank writes to the buffers any more
        return min((job.until for job in running if not job.late), default=math.inf)

    def comes_at_once(self, ticket: TicketStruct) -> bool:
        """Moves what is queued for a moment, which completes a small operation if the other ranks are there. True:
        the ticket is complete. As the caller may have better things to do, this is rarely done after it was in
        vain several times."""
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
        """Carries out what is queued, before a blocking operation behind it; else that would be left to
        libhoop's thread."""
        try:
            last = self.jobs[-1]  # without the lock, which may have been held when this process was forked
        except IndexError:  # another thread has ended them
            return
        wait_ticket(last.ticket, None)

    def settle(self) -> None:
        """Ends the jobs whose tickets are complete, in order."""
        while (taken := self.take()) is not None:
            job, result = taken
            job.finish(result)

    def take(self) -> tuple[Queued, int] | None:
        """Takes the first job, if its ticket is complete, with the result; the caller must finish it."""
        if not self.jobs:
            return None
        with self._lock:
            if not self.jobs or (result := _query(self.jobs[0].ticket)) == IN_PROGRESS:
                return None
            return self.jobs.popleft(), result

    def is_next(self, job: Queued) -> bool:
        """Takes the job if it is the first (True); then the caller must finish it."""
        with self._lock:
            first = bool(self.jobs) and self.jobs[0] is job
            if first:
                self.jobs.popleft()
            return first

    def hurry(self) -> None:
        """Lets libhoop's thread carry out what is queued at once, without leaving it to a waiting thread."""
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
        """Waits for all jobs. If a signal handler raises meanwhile, the queue is as before."""
        self.drain()
        with self._lock:
            self._closed = True
            stream, self._stream = self._stream, None
        if stream is not None:
            lib.hoop_stream_synchronize(stream._handle)  # failures are reported by the jobs
            self.settle()
            _waiter.forget(self.fd)  # only now: a callback may have waited for a later job's future
            stream.close()


class Waiter:
    """Threads that end jobs for which nobody waits; started with the first such job. A queue is watched until its
    next ticket, and again as long as a future waits for one. A callback may wait for another future, so while one
    runs another thread watches. The threads end before the interpreter, which would otherwise unwind them inside
    a future's C++ code, and so abort the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poll: select.epoll | None = None
        self._queues: dict[int, Queue] = {}
        self._armed: set[int] = set()  # the descriptors that epoll watches
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that wait in epoll, or have just been told

    def _is_foreign(self) -> bool:
        """True in a forked child, where the epoll set is shared with the parent."""
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
        # Writes a byte; closing the pipe would not do, since a forked child may have it open, too.
        if self._poll is None or self._is_foreign():
            return
        os.write(self._bell, b"!")
        until = time.monotonic() + 10
        for thread in self._threads:  # a thread that ends may have added another one
            thread.join(max(0.0, until - time.monotonic()))

    def _arm(self, queue: Queue) -> None:
        # If the next ticket is complete already its event may have been read before a future was requested. An
        # eventfd is always writable, so EPOLLOUT then reports it at once.
        at_once = select.EPOLLOUT if queue.ready() else 0
        self._poll.modify(queue.fd, select.EPOLLIN | select.EPOLLONESHOT | at_once)
        self._armed.add(queue.fd)

    def _cover(self) -> None:
        """Ensures that a thread waits for what is watched."""
        if self._idle or not self._armed:
            return
        thread = threading.Thread(target=self._run, name="hoop futures", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is shutting down
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
        """Ends the complete jobs up to the first with callbacks; watches the queue again before these run."""
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
