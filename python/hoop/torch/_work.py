"""Work that is under way, and the threads that carry it out; none of them spins.

A worker is a thread with a queue: it takes one job after the other and waits in libhoop for it,
with the GIL released. Whoever waits for a job sleeps on its event; futures are completed by the
worker, which runs what is chained to them.
"""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work, _create_work_from_future
from torch.distributed import DistBackendError

from .._native import HoopError, TimedOut


def failure(error: BaseException) -> BaseException:
    """What torch's callers expect for what hoop says."""
    if not isinstance(error, HoopError):
        return error
    # In the words that programs look for in torch's own messages.
    kind = "a timeout passed: " if isinstance(error, TimedOut) else ""
    made = DistBackendError(f"{error.name}: {kind}{error}")
    made.__cause__ = error
    return made


def _completed() -> Work:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result([])
    return _create_work_from_future(future)


# What a blocking operation gives back: its caller waits for it and asks nothing else.
DONE = _completed()


class Job(Work):
    """One queued operation; result is what its future gives, and keeps the buffers alive."""

    def __init__(self, call: Callable[[], None], result: Any) -> None:
        super().__init__()
        self._call: Callable[[], None] | None = call
        self._result = result
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._ended: torch.futures.Future | None = None
        self._future: torch.futures.Future | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = failure(error)
        self._call = None
        with self._lock:
            self._done.set()
            ended = self._ended
        if ended is not None:
            ended.set_result(None)

    def _outcome(self, _done: torch.futures.Future) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        if not self._done.wait(seconds if seconds > 0 else None):
            raise DistBackendError(f"the operation is not complete after {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> torch.futures.Future:
        """Its error is one for C++ too: set_exception() would be known to Python only, and DDP would
        take the exception for a result. What a callback raises is an error everywhere."""
        with self._lock:
            if self._future is not None:
                return self._future
            ended = self._ended = torch.futures.Future()
            self._future = ended.then(self._outcome)
            done = self._done.is_set()
        if done:
            ended.set_result(None)
        return self._future

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result


class Worker:
    """A thread that runs jobs in their order; made at the first job, ended by close()."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], None], result: Any) -> Job:
        job = Job(call, result)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return job

    def close(self, timeout: float | None) -> None:
        """After the jobs that are there."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._jobs.put(None)
            self._thread.join(timeout)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # its buffers are not kept until the next one comes
