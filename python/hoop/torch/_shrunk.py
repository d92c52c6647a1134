"""Groups that shrink_group() makes of a group of ours.

torch 2.14 and 2.15 register what a shrunk group on CPUs has as gloo, whatever it is, and DDP's logger
then takes its C++ half for gloo's: a segmentation fault, or numbers out of nowhere. So it is
registered once more, as what backends of others are, before anybody has the group.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ProcessGroup
from torch.distributed import distributed_c10d


def mend(kind: type[Backend]) -> None:
    """From now on, for backends of this kind; where torch does it in another way, nothing."""
    make = getattr(distributed_c10d, "_create_shrunk_process_group", None)
    if make is None:
        return

    @functools.wraps(make)
    def made(new_backend: Backend, *arguments: Any, **options: Any) -> ProcessGroup:
        group = make(new_backend, *arguments, **options)
        if isinstance(new_backend, kind):
            custom = ProcessGroup.BackendType.CUSTOM
            group._register_backend(torch.device("cpu"), custom, new_backend)
            group._set_default_backend(custom)
        return group

    distributed_c10d._create_shrunk_process_group = made
