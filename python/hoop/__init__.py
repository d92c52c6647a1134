"""hoop: collective operations for processes that train models together.

    import hoop, numpy
    with hoop.Comm() as comm:                  # who takes part comes from the launcher
        grad = hoop.empty(1_000_000)           # a numpy array that the other ranks may map
        grad[:] = comm.rank + 1
        comm.all_reduce(grad)                  # in place: the sum replaces the contribution

Run it with ``hooprun -n 4 python script.py``, torchrun, mpirun or srun. PyTorch needs none of this:
``torch.distributed.init_process_group("hoop")``, see hoop.torch.
"""

from ._buffers import Datatype, buffer
from ._comm import (
    AVG,
    MAX,
    MIN,
    PROD,
    SUM,
    Comm,
    Op,
    UniqueId,
    group,
    unique_id,
)
from ._memory import alloc, empty
from ._native import (
    Aborted,
    HoopError,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    Mismatch,
    NotAuthenticated,
    OutOfMemory,
    RemoteError,
    SystemFailure,
    TimedOut,
    Unsupported,
)
from ._stream import Stream, Ticket

__version__ = "0.1.0"

__all__ = [
    "AVG", "Aborted", "Comm", "Datatype", "HoopError", "InternalError", "InvalidArgument",
    "InvalidUsage", "MAX", "MIN", "Mismatch", "NotAuthenticated", "Op", "OutOfMemory", "PROD",
    "RemoteError", "SUM", "Stream", "SystemFailure", "Ticket", "TimedOut", "UniqueId",
    "Unsupported", "alloc", "buffer", "empty", "group", "unique_id",
]
