"""A rank that raises while operations run, whose callbacks take long, and while a forked child of it lives on; and
another rank, which is late with its part: torch_raise.py URL RANK."""

import os
import sys
import time

import hoop.torch  # noqa: F401
import torch
import torch.distributed as dist

url, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("hoop", init_method=url, world_size=2, rank=rank)
tensor = torch.ones(100)
if rank == 0:
    works = [dist.all_reduce(tensor, async_op=True), dist.irecv(tensor, 1)]
    futures = [work.get_future().then(lambda _: time.sleep(1)) for work in works]
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.close(stream)
        time.sleep(25)
        os._exit(0)
    raise RuntimeError("this rank has had enough")
time.sleep(12)
dist.all_reduce(tensor)  # rank 0 has aborted its part meanwhile, and did not wait for this
