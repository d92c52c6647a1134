"""Processes of multiprocessing that play machines; the first, which connects the others, is through
before these meet, and nobody closes anything: comm_end.py fork|forkserver|spawn URL"""

import multiprocessing
import os
import sys

import hoop
import numpy


def rank_of(rank, url, go):
    os.environ.update(HOOP_HOSTID=f"machine{rank}", HOOP_SOCKET_IFNAME="lo")
    comm = hoop.Comm(url, size=3, rank=rank, init_timeout=60, op_timeout=60)
    if rank == 0:
        return
    go.wait(60)
    data = numpy.full(1000, float(rank))
    if rank == 1:
        comm.send(data, 2)
    else:
        comm.recv(data, 1)
        assert (data == 1).all(), data


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    go = context.Event()
    ranks = [context.Process(target=rank_of, args=(rank, sys.argv[2], go)) for rank in range(3)]
    for process in ranks:
        process.start()
    ranks[0].join(1.5)  # where nobody waits for it it has ended by then
    go.set()
    for process in ranks:
        process.join(60)
    sys.exit(str([process.exitcode for process in ranks]) if any(p.exitcode != 0 for p in ranks) else 0)
