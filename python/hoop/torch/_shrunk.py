"""Groups that shrink_group() makes of hoop's groups.

torch 2.14 and 2.15 register the backend of a shrunk group on CPUs as gloo, whatever it is. DDP's logger then
takes its C++ half for gloo's, which ends in a segmentation fault, or in random numbers. So the backend is
registered once more, as a custom one, before the program gets the group.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ProcessGroup
from torch.distributed import distributed_c10d


def mend(kind: type[Backend]) -> None:
    """Corrects the registration for backends of this kind from now on. Does nothing if torch has changed."""
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
