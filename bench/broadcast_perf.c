/* The broadcast benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void broadcast_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                            struct perf_shape *ret)
{
    (void)nranks;
    const size_t count = perf_count_whole(bytes, type_bytes);
    *ret = (struct perf_shape){
        .bytes = count * type_bytes,
        .count = count,
        .send_count = rank == root ? count : 0,
        .recv_count = count,
    };
}

/* The root's input is read once, and written by every rank. */
static double broadcast_traffic(int nranks)
{
    return 1.0 + nranks;
}

static hoop_result_t broadcast_start(const struct perf_call *call)
{
    return hoop_broadcast(call->send, call->recv, call->count, call->type, call->root, call->comm,
                          call->stream);
}

static const struct perf_collective broadcast = {
    .program = "broadcast_perf",
    .has_root = true,
    .shape = broadcast_shape,
    .bus_factor = perf_bus_once,
    .traffic = broadcast_traffic,
    .origin = perf_origin_root,
    .start = broadcast_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &broadcast);
}
