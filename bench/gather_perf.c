/* The gather benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void gather_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                         struct perf_shape *ret)
{
    const size_t count = perf_count_part(bytes, type_bytes, nranks);
    const size_t all = count * (size_t)nranks;
    *ret = (struct perf_shape){
        .bytes = all * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = rank == root ? all : 0,
        .in_place_send_at = rank == root ? count * (size_t)root : 0,
    };
}

/* Each part is read once and written once. */
static double gather_traffic(int nranks)
{
    (void)nranks;
    return 2;
}

static hoop_result_t gather_start(const struct perf_call *call)
{
    return hoop_gather(call->send, call->recv, call->count, call->type, call->root, call->comm,
                       call->stream);
}

static const struct perf_collective gather = {
    .program = "gather_perf",
    .has_root = true,
    .shape = gather_shape,
    .bus_factor = perf_bus_others,
    .traffic = gather_traffic,
    .origin = perf_origin_ranks,
    .start = gather_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &gather);
}
