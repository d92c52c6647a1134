/* The allgather benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void all_gather_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                             struct perf_shape *ret)
{
    (void)root;
    const size_t count = perf_count_part(bytes, type_bytes, nranks);
    const size_t all = count * (size_t)nranks;
    *ret = (struct perf_shape){
        .bytes = all * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = all,
        .in_place_send_at = count * (size_t)rank,
    };
}

/* Each part is read once, and written by every rank. */
static double all_gather_traffic(int nranks)
{
    return 1.0 + nranks;
}

static hoop_result_t all_gather_start(const struct perf_call *call)
{
    return hoop_all_gather(call->send, call->recv, call->count, call->type, call->comm,
                           call->stream);
}

static const struct perf_collective all_gather = {
    .program = "all_gather_perf",
    .shape = all_gather_shape,
    .bus_factor = perf_bus_others,
    .traffic = all_gather_traffic,
    .origin = perf_origin_ranks,
    .start = all_gather_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &all_gather);
}
