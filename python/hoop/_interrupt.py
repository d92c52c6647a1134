"""Ctrl-C while the main thread is inside hoop.

Python runs signal handlers only when C code returns, but a blocking call may wait for a rank that never comes.
So a thread learns of SIGINT through Python's wakeup descriptor and, if the main thread does not return from
its call, revokes the comms of the call: the call returns, and the handler raises KeyboardInterrupt. This is
done only for Python's own handler; others, which may not raise, run after the call. The descriptor is a
socket, which records when a signal came: a signal from before the call does not concern it, however late the
thread learns of it. The thread finds the call in the main thread's frames (see heard()), so that this costs
a call next to nothing.

A birth has no comm to revoke yet: a separate thread makes it, and the main thread waits for that thread.
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

PATIENCE = 0.05  # seconds that a call gets to end by itself
SLICE = 0.1  # seconds after which a wait for a birth lets signal handlers run

_TIMESPEC = struct.Struct("@qq")
_SO_TIMESTAMPNS = 35  # on Linux; the socket module has no name for it

_callers: set[CodeType] = set()


def heard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that calls hoop and may wait there. While it is in the call its local variable
    `inside` is a tuple of the time at which the call began (time.time_ns()) and the handles of its comms;
    otherwise it is () or not set. Each call makes a new tuple, by which the watcher recognizes the call."""
    _callers.add(function.__code__)
    return function


def _inside(thread: int) -> tuple[Any, ...]:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code not in _callers:
        frame = frame.f_back
    return () if frame is None else frame.f_locals.get("inside", ())


# Called with the GIL held, so that no comm is freed between the check of `inside` and this; it does not wait.
_revoke = ctypes.PyDLL(library_path).hoop_comm_revoke
_revoke.argtypes = [ctypes.c_void_p, ctypes.c_int]
_bell: int | None = None  # the wakeup descriptor, to which Python writes the numbers of signals


def watch() -> None:
    """Begins to watch for Ctrl-C. Does nothing in other threads than the main one, or if something else, such
    as an event loop, uses the wakeup descriptor."""
    global _bell
    if threading.current_thread() is not threading.main_thread():
        return
    if _bell is None:
        end, bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        bell.setblocking(False)
        try:
            threading.Thread(target=_listen, args=(end,), name="hoop Ctrl-C", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
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
    """SIGINT came at the time `rung` (time.time_ns())."""
    main = threading.main_thread().ident
    call = _inside(main)
    if call and call[0] <= rung and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(PATIENCE)
        if _inside(main) is call:
            for handle in call[1:]:
                _revoke(handle, 0)


def _in_child() -> None:
    """After a fork: stops using the socket, which belongs to the parent."""
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
            # Made here, because hoop's error text is thread-local.
            self._failed = error(result) if result != OK else None
            if self._unwanted and self._handle:
                lib.hoop_comm_abort(self._handle)

    def outcome(self) -> None:
        """Waits for the birth. Raises its failure, or the exception of a signal handler."""
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
    """Calls function(*arguments), which makes a comm, in handle. If a signal handler raises meanwhile, revokes
    parent, and aborts the new comm, should it still be made."""
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
