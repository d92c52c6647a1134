"""Ctrl-C during calls whose other rank never comes: comm_interrupt.py URL. Ends by an uncaught KeyboardInterrupt."""

import os
import signal
import sys
import threading
import time

import hoop
import numpy as np
from hoop import _interrupt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
LIMIT = 1.0
x = np.ones(4)


def ring(pid=None, number=signal.SIGINT):
    threading.Timer(0.1, os.kill, (pid or os.getpid(), number)).start()
    return time.monotonic()


def interrupted(what, call):
    begun = ring()
    try:
        call()
    except KeyboardInterrupt:
        took = time.monotonic() - begun - 0.1
        assert took < LIMIT, f"{what}: heard after {took} s"
        return
    raise AssertionError(f"{what} was not interrupted")


def together(first, second):
    with hoop.group():
        first.all_reduce(x)
        second.send(x, 1)


def ended(what, *comms):
    for comm in comms:
        try:
            comm.all_reduce(x)
        except hoop.Aborted as error:
            assert "rank 0 revoked" in str(error), f"{what}: {error}"
        else:
            raise AssertionError(f"after {what} the comm is not at its end")
        comm.close()


for rank in range(2):
    interrupted(f"a birth, rank {rank}", lambda: hoop.Comm(f"{sys.argv[1]}{rank}", size=2, rank=rank))
for what, call in (
    ("all_reduce", lambda comm: comm.all_reduce(x)),
    ("barrier", lambda comm: comm.barrier()),
    ("recv", lambda comm: comm.recv(x, 1)),
    ("split", lambda comm: comm.split(0)),
):
    first, second = hoop.Comm.threads(2)
    interrupted(what, lambda: call(first))
    ended(what, first, second)
first, second = hoop.Comm.threads(2)
stream = hoop.Stream()
first.all_reduce(x.copy(), stream=stream)
interrupted("a stream's end", stream.close)
second.all_reduce(x.copy())  # the queued operation goes on
stream.close()
first, second = hoop.Comm.threads(2)
first.all_reduce(x.copy(), stream=(stream := hoop.Stream()))
interrupted("a comm's end", first.close)
ended("a comm's end", second)
pairs = [hoop.Comm.threads(2), hoop.Comm.threads(2)]
interrupted("a group", lambda: together(pairs[0][0], pairs[1][0]))
for pair in pairs:
    ended("a group", *pair)

# Signals that interrupt no call end no comm: one that comes in Python code, however late it is noticed; one with
# a handler that does not raise; and one of a child process.
first, second = hoop.Comm.threads(2)
try:
    ring()
    for _ in range(3000):
        time.sleep(0.01)
    raise AssertionError("SIGINT was not heard")
except KeyboardInterrupt:
    threading.Timer(0.1, _interrupt._interrupted, (time.time_ns(),)).start()
threading.Timer(0.3, second.all_reduce, (x.copy(),)).start()
first.all_reduce(x.copy())
rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
child = os.fork()
if child == 0:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        os._exit(3)
ring(child)
ring(number=signal.SIGALRM)
threading.Timer(0.5, second.all_reduce, (x.copy(),)).start()
assert first.all_reduce(x.copy())[0] == 2 and rung
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
print("fine", flush=True)
ring()
first.all_reduce(x)
