"""A rank that exits while futures are incomplete and callbacks wait for them: torch_exit.py URL RANK."""

import sys

import hoop.torch  # noqa: F401
import torch
import torch.distributed as dist

url, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("hoop", init_method=url, world_size=2, rank=rank)
store = dist.distributed_c10d._get_default_store()
if rank == 1:
    store.wait(["queued"])
tensor = torch.ones(100_000)
futures = [dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
           for _ in range(60)]
if rank == 0:
    store.set("queued", "")
