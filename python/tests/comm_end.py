"""Processes of multiprocessing that end without closing anything: comm_end.py fork|forkserver|spawn URL
apart|inside|working

apart: three processes act as machines. The first, which connects the others, finishes before these meet; it has
a daemon thread, which knows the comm but is not inside.
inside: two ranks; the first ends while its daemon thread waits in a call.
working: two ranks; the first one's work is done by a thread that its function does not wait for, the other's by
an executor whose thread still runs at the end."""

import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import hoop
import numpy

executor = ThreadPoolExecutor(1)


def apart(rank, url, go):
    os.environ.update(HOOP_HOSTID=f"machine{rank}", HOOP_SOCKET_IFNAME="lo")
    comm = hoop.Comm(url, size=3, rank=rank, init_timeout=60, op_timeout=60)
    if rank == 0:
        threading.Thread(target=lambda: (time.sleep(600), comm), daemon=True).start()
        return
    go.wait(60)
    data = numpy.full(1000, float(rank))
    if rank == 1:
        comm.send(data, 2)
    else:
        comm.recv(data, 1)
        assert (data == 1).all(), data


def inside(rank, url, _go):
    comm = hoop.Comm(url, size=2, rank=rank, init_timeout=60, op_timeout=50)

    def wait():
        comm.recv(numpy.zeros(1), 1 - rank)

    if rank == 0:
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.5)
        return
    try:
        wait()
    except hoop.Aborted:
        return
    sys.exit("a message came from a rank that sends none")


def working(rank, url, _go):
    comm = hoop.Comm(url, size=2, rank=rank, init_timeout=60, op_timeout=50)
    data = numpy.full(1000, float(rank))

    def work():
        time.sleep(0.5)
        comm.send(data, 1)

    if rank == 0:
        threading.Thread(target=work).start()
    else:
        executor.submit(comm.recv, data, 0).result()
        assert (data == 0).all(), data


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    go = context.Event()
    target, size = {"apart": (apart, 3), "inside": (inside, 2), "working": (working, 2)}[sys.argv[3]]
    ranks = [context.Process(target=target, args=(rank, sys.argv[2], go)) for rank in range(size)]
    for process in ranks:
        process.start()
    ranks[0].join(1.5)  # if it does not wait for the others it has ended by then
    go.set()
    for process in ranks:
        process.join(30)
    for process in ranks:
        process.kill()
    sys.exit(str([process.exitcode for process in ranks]) if any(p.exitcode != 0 for p in ranks) else 0)
