"""A barrier that reports which ranks are missing, and does not change the group. It uses the store, since it is
meant for cases in which the group does not work. The messages are gloo's, which programs look for."""

from __future__ import annotations

from datetime import timedelta

from torch.distributed import DistBackendError, Store


def monitored_barrier(
    store: Store, rank: int, size: int, limit: timedelta, wait_all_ranks: bool
) -> None:
    store.set(str(rank), "here")
    reached = (f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
               "for send/recv from rank 0: ")
    if rank == 0:
        said = _verdict(store, size, limit, wait_all_ranks)
        store.set("verdict", said)
    elif _came(store, ["verdict"], 2 * limit):  # rank 0 may have begun to wait later
        said = store.get("verdict").decode()
        said = said and reached + said
    else:
        said = reached + "it did not come"
    if said:
        raise DistBackendError(said)


def _verdict(store: Store, size: int, limit: timedelta, wait_all_ranks: bool) -> str:
    """The message of rank 0; empty if all ranks came."""
    milliseconds = limit // timedelta(milliseconds=1)
    if milliseconds <= 0:
        return f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms."
    names = [str(rank) for rank in range(size)]
    if _came(store, names, limit):
        return ""
    missing = [name for name in names if not store.check([name])]
    whom = f"Ranks {', '.join(missing)}" if wait_all_ranks else f"Rank {missing[0]}"
    return f"{whom} failed to pass monitoredBarrier in {milliseconds} ms"


def _came(store: Store, names: list[str], limit: timedelta) -> bool:
    try:
        store.wait(names, limit)
        return True
    except RuntimeError:
        return False
