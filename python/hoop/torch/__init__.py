"""hoop as a backend of torch.distributed, for CPU tensors.

    torch.distributed.init_process_group("hoop")

needs no import of this module with torch 2.14 and later, which finds it by an entry point. Mixed
groups work as well: ``init_process_group("cpu:hoop,cuda:nccl")``. With torch 2.9 to 2.13 a program
says ``import hoop.torch`` first, and has hoop for all of a group's tensors.

The ranks find each other once, by the store that torch has: an address and a fresh secret. After
that the store is used by monitored_barrier() and for new groups only.
"""

from . import _versions  # first: it refuses what the rest could not be imported with
from . import _backend, _direct, _queue, _verbs, _work
from ._backend import HoopBackend, create
from ._memory import Buckets, bucket_hook, ddp, empty
from ._shrunk import mend
from ._untraced import untrace


def register() -> None:
    """Makes "hoop" known to torch.distributed; torch calls this itself by the entry point."""
    import torch.distributed as dist

    if "HOOP" not in dist.Backend._plugins:
        dist.Backend.register_backend("hoop", create, extended_api=True, devices=["cpu"])
        mend(HoopBackend)
        untrace(_backend, _direct, _queue, _verbs, _work)


register()

__all__ = ["Buckets", "HoopBackend", "bucket_hook", "create", "ddp", "empty", "register"]
