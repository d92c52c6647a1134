"""hoop as a backend of torch.distributed, for CPU tensors.

    torch.distributed.init_process_group("hoop")

needs no import of this module with torch 2.14 and later, which finds it by an entry point; mixed groups
(``init_process_group("cpu:hoop,cuda:nccl")``) work, too. With torch 2.9 to 2.13 the program must
``import hoop.torch`` first, and a group uses hoop for all of its tensors.

The ranks of a group find each other by torch's store, which passes on an address and a fresh secret. Afterwards
the store is used only by monitored_barrier(), and for new groups and channels.
"""

from . import _versions  # first: it refuses versions with which the rest can't be imported
from . import _backend, _direct, _queue, _verbs, _work
from ._backend import HoopBackend, create
from ._memory import Buckets, bucket_hook, ddp, empty
from ._shrunk import mend
from ._untraced import untrace


def register() -> None:
    """Registers "hoop" with torch.distributed; torch itself calls this by the entry point."""
    import torch.distributed as dist

    if "HOOP" not in dist.Backend._plugins:
        dist.Backend.register_backend("hoop", create, extended_api=True, devices=["cpu"])
        mend(HoopBackend)
        untrace(_backend, _direct, _queue, _verbs, _work)


register()

__all__ = ["Buckets", "HoopBackend", "bucket_hook", "create", "ddp", "empty", "register"]
