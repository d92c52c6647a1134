"""torch's Work objects: jobs that a thread carries out, and several jobs as one.

Jobs on a hoop stream, which are all except messages, are in _queue.py.
"""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from math import inf
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work, _create_work_from_future
from torch.distributed import DistBackendError

from .._native import HoopError, TimedOut
from ._versions import TORCH


def failure(error: BaseException) -> BaseException:
    """The exception that torch's callers expect for one of hoop."""
    if not isinstance(error, HoopError):
        return error
    # Programs look for these words in torch's own messages.
    kind = "a timeout passed: " if isinstance(error, TimedOut) else ""
    made = DistBackendError(f"{error.name}: {kind}{error}")
    made.__cause__ = error
    return made


def _completed() -> Work:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result([])
    return _create_work_from_future(future)


# What a blocking operation returns: nothing, as from torch's own backends. Before 2.14 torch calls methods of
# whatever a backend in Python returns, so there it is a completed Work.
DONE = None if TORCH >= (2, 14) else _completed()


def complete(ended: torch.futures.Future | None) -> None:
    if ended is not None:
        ended.set_result(None)


class Job(Work):
    """One operation. result: the value of its future, which also keeps the buffers alive."""

    _over = False
    _ended: torch.futures.Future | None = None
    _future: torch.futures.Future | None = None
    _error: BaseException | None = None

    def __init__(self, result: Any) -> None:
        Work.__init__(self)
        self._result = result
        self._lock = threading.Lock()  # held for moments only
        self._ending = threading.Lock()
        self._ender: int | None = None  # the thread that ends the job, or has done so

    def _end(self, act: Callable[..., None], *arguments: Any) -> torch.futures.Future | None:
        """Ends the job: calls act(), once, for what is left to do; an exception of it is the job's error. The
        caller must pass the returned future to complete(), which runs callbacks. Another thread waits until it is
        ended; not so act() itself, which may run abort hooks, and these anything."""
        if self._ender == threading.get_ident():
            return None
        with self._ending:
            if self._over:
                return None
            self._ender = threading.get_ident()
            try:
                act(*arguments)
            except BaseException as error:
                self._error = failure(error)
            with self._lock:
                self._over = True
                ended = self._ended
        self._tell()
        return ended

    def _tell(self) -> None:
        """Wakes waiting threads, before callbacks run, which may take long."""

    def _outcome(self, _ended: torch.futures.Future) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def _late(self, timeout: timedelta) -> DistBackendError:
        return DistBackendError(f"the operation is not complete after {timeout.total_seconds():g} s")

    def get_future(self) -> torch.futures.Future:
        """The job's future. Its error is raised in a callback, because then C++ sees it, too: an error by
        set_exception() is known to Python only, and DDP would take the exception for a result."""
        with self._lock:
            if self._future is not None:
                return self._future
            ended = self._ended = torch.futures.Future()
            self._future = ended.then(self._outcome)
            over = self._over
        if over:
            ended.set_result(None)
        else:
            self._watch()
        return self._future

    def _watch(self) -> None:
        """Ensures from now on that the job ends even if nobody waits for it."""

    def is_completed(self) -> bool:
        return self._over

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result


class Together(Work):
    """Several jobs as one."""

    def __init__(self, jobs: list[Job]) -> None:
        super().__init__()
        self._jobs = jobs

    def wait(self, timeout: timedelta | None = None) -> bool:
        until = time.monotonic() + timeout.total_seconds() if timeout else inf
        for job in self._jobs:
            left = timedelta(seconds=max(1e-6, until - time.monotonic())) if timeout else None
            job.wait(left)
        return True

    def get_future(self) -> torch.futures.Future:
        every = torch.futures.collect_all([job.get_future() for job in self._jobs])
        return every.then(lambda done: [one.value() for one in done.value()])

    def is_completed(self) -> bool:
        return all(job.is_completed() for job in self._jobs)

    def is_success(self) -> bool:
        return all(job.is_success() for job in self._jobs)

    def result(self) -> Any:
        return [job.result() for job in self._jobs]


class Errand(Job):
    """A job for a worker."""

    def __init__(self, call: Callable[[], None], result: Any) -> None:
        super().__init__(result)
        self._call: Callable[[], None] | None = call
        self._done = threading.Event()

    def run(self) -> torch.futures.Future | None:
        # Outside of the lock, since the call may wait for another rank, and get_future() must not wait.
        caught = None
        try:
            self._call()
        except BaseException as error:
            caught = error
        self._call = None

        def act() -> None:
            if caught is not None:
                raise caught

        return self._end(act)

    def _tell(self) -> None:
        self._done.set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._done.wait(timeout.total_seconds() if timeout else None):
            raise self._late(timeout)
        if self._error is not None:
            raise self._error
        return True


def joined(thread: threading.Thread, until: float) -> bool:
    """Waits for the thread's end, at most until the time `until` of time.monotonic(). True: it has ended."""
    thread.join(None if until == inf else max(0.0, until - time.monotonic()))
    return not thread.is_alive()


class Worker:
    """A thread that runs errands in order; started with the first one, ended by close(). When an errand's future
    has callbacks another thread takes over, since callbacks may wait for later errands."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []  # the last one runs the errands
        self._current: Errand | None = None
        self._changing = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[[], None], result: Any) -> Errand:
        errand = Errand(call, result)
        with self._changing:  # two threads would not keep the errands' order
            if self._closed:
                raise DistBackendError("the group has ended: no message can be sent or received any more")
            if not self._threads:
                self._start()
            self._errands.put(errand)
        return errand

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        thread.start()

    def busy(self) -> bool:
        current = self._current
        return (current is not None and not current._over) or not self._errands.empty()

    def close(self, until: float = inf) -> None:
        """Waits for all errands and their callbacks, except a callback that calls this; at most until the time
        `until` of time.monotonic()."""
        with self._changing:
            self._closed = True
            self._errands.put(None)
        while threads := self._threads[-1:]:
            if threads[0] is not threading.current_thread() and not joined(threads[0], until):
                return
            with self._changing:  # another thread may close it, too
                if self._threads[-1:] == threads:  # it has not started another one
                    self._threads.pop()

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            self._current = errand
            ended = errand.run()
            self._current = None
            del errand  # releases its buffers before the next errand comes
            if ended is None:
                continue
            try:
                with self._changing:
                    self._start()
            except RuntimeError:  # the interpreter is shutting down: this thread goes on
                self._threads.pop()
                complete(ended)
                continue
            complete(ended)
            return
