"""Ctrl-C while the main thread is inside of hoop.

Python runs a signal's handler when C returns, and a blocking call may wait for a rank that never comes. So a
thread hears of SIGINT through Python's wakeup descriptor, and revokes the comms of the call that the
main thread does not come out of: the call returns, and then the handler raises KeyboardInterrupt. Only for
Python's own handler: others, of which nobody knows whether they raise, run after the call. The descriptor is
a socket, which says when a signal came: one of before the call is not the call's, however late the thread
hears of it. The call it finds in the main thread's frames (heard()), so that a call has next to nothing to do
for that.

A birth has no comm yet: a thread of its own makes it, and the main thread waits for that thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time
from types import CodeType
from typing import Any, Callable

from ._native import OK, error, lib, library_path

PATIENCE = 0.05  # seconds in which a call that ends by itself may do so
SLICE = 0.1  # seconds in which a birth hears of a signal, should its thread's end not be seen

_TIMESPEC = struct.Struct("@qq")
_SO_TIMESTAMPNS = 35  # Linux's; the socket module has no name for it

_callers: set[CodeType] = set()


def heard(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a function that calls hoop and may wait there. While it does, its local variable `inside` says when
    the call began, time.time_ns(), and has the handles of the call's comms; otherwise it is () or not there.
    The tuple of each call is another one: that is how the watcher knows it again."""
    _callers.add(function.__code__)
    return function


def _inside(thread: int) -> tuple[Any, ...]:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code not in _callers:
        frame = frame.f_back
    return () if frame is None else frame.f_locals.get("inside", ())


# With the GIL held, so that no comm is freed between a look at `inside` and the call; it waits for nobody.
_revoke = ctypes.PyDLL(library_path).hoop_comm_revoke
_revoke.argtypes = [ctypes.c_void_p, ctypes.c_int]
_bell: int | None = None  # what Python writes the numbers of signals to


def watch() -> None:
    """From now on Ctrl-C is heard. Only the main thread can ask for it, and nothing happens where
    somebody else has the wakeup descriptor, as event loops may."""
    global _bell
    if threading.current_thread() is not threading.main_thread():
        return
    if _bell is None:
        end, bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        bell.setblocking(False)
        try:
            threading.Thread(target=_listen, args=(end,), name="hoop Ctrl-C", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter is at its end
            end.close()
            bell.close()
            return
        _bell = bell.detach()
    before = signal.set_wakeup_fd(_bell, warn_on_full_buffer=False)
    if before not in (-1, _bell):
        signal.set_wakeup_fd(before)


def _listen(end: socket.socket) -> None:
    while True:
        numbers, marks, *_ = end.recvmsg(1, socket.CMSG_SPACE(_TIMESPEC.size))
        if signal.SIGINT in numbers:
            seconds, nanoseconds = _TIMESPEC.unpack(marks[0][2]) if marks else divmod(time.time_ns(), 10**9)
            _interrupted(seconds * 10**9 + nanoseconds)


def _interrupted(rung: int) -> None:
    """At rung, time.time_ns(), SIGINT came."""
    main = threading.main_thread().ident
    call = _inside(main)
    if call and call[0] <= rung and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(PATIENCE)
        if _inside(main) is call:
            for handle in call[1:]:
                _revoke(handle, 0)


def _in_child() -> None:
    """The socket is the parent's."""
    global _bell
    if _bell is not None:
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, _bell):
            signal.set_wakeup_fd(before)
        _bell = None


os.register_at_fork(after_in_child=_in_child)


class _Birth:
    def __init__(self, function: Callable[..., int], arguments: tuple[Any, ...], handle: ctypes.c_void_p):
        self._thread = threading.Thread(target=self.run, name="hoop birth", daemon=True)
        self._call = function, arguments
        self._handle = handle
        self._lock = threading.Lock()
        self._over = self._unwanted = False
        self._failed: Exception | None = None

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # as in watch()
            self.run()

    def run(self) -> None:
        function, arguments = self._call
        result = function(*arguments)
        with self._lock:
            self._over = True
            # The sentence is this thread's.
            self._failed = error(result) if result != OK else None
            if self._unwanted and self._handle:
                lib.hoop_comm_abort(self._handle)

    def outcome(self) -> None:
        """Waits for it, and raises what it failed with, or what a signal's handler raises."""
        try:
            while self._thread.is_alive():
                self._thread.join(SLICE)
        except BaseException:
            with self._lock:
                self._unwanted = True
                if self._over and self._handle:
                    lib.hoop_comm_abort(self._handle)
            raise
        if self._failed is not None:
            raise self._failed


def birth(
    function: Callable[..., int], *arguments: Any, handle: ctypes.c_void_p, parent: ctypes.c_void_p | None = None
) -> None:
    """function(*arguments) makes a comm, in handle. If a signal's handler raises meanwhile, parent is revoked,
    and what comes of the birth is aborted."""
    watch()
    if threading.current_thread() is not threading.main_thread():
        result = function(*arguments)
        if result != OK:
            raise error(result)
        return
    made = _Birth(function, arguments, handle)
    made.start()
    try:
        made.outcome()
    except BaseException:
        if parent is not None and made._unwanted:
            lib.hoop_comm_revoke(parent, 0)
        raise
