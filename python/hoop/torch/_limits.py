"""Time limits of single operations: a thread ends the groups of those that are late.

A limit is that of the call's options, or of set_timeout(). The thread only revokes comms; the operations then fail as
after any other revocation, and whoever waits for them sees that.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Protocol


class Limited(Protocol):
    """What may be late."""

    def expire(self, now: float) -> float:
        """Ends what is late at the time `now` of time.monotonic(). Returns when it has to be called again."""


class Clock:
    """Calls expire() of what is watched when it is time. The thread is started with the first limit."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._times: dict[Limited, float] = {}
        self._thread: threading.Thread | None = None

    def watch(self, limited: Limited, until: float) -> None:
        with self._changed:
            if until >= self._times.get(limited, math.inf):
                return
            self._times[limited] = until
            if self._thread is None:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="hoop limits", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is shutting down
        self._thread = thread

    def _run(self) -> None:
        while True:
            for limited in self._due():
                again = limited.expire(time.monotonic())
                if again < math.inf:
                    self.watch(limited, again)

    def _due(self) -> list[Limited]:
        """Waits until the time of some has come, and forgets them."""
        with self._changed:
            now = time.monotonic()
            due = [limited for limited, until in self._times.items() if until <= now]
            for limited in due:
                del self._times[limited]
            if not due:
                next_one = min(self._times.values(), default=math.inf)
                self._changed.wait(None if next_one == math.inf else min(next_one - now, threading.TIMEOUT_MAX))
            return due


clock = Clock()
# The thread is the parent's, and so may be who holds the lock.
os.register_at_fork(after_in_child=clock.__init__)
