/* The send and receive benchmark: what is particular to this collective. */
#include "perf/perf.h"

static void sendrecv_shape(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
                           struct perf_shape *ret)
{
    (void)nranks;
    (void)rank;
    (void)root;
    const size_t count = perf_count_whole(bytes, type_bytes);
    *ret = (struct perf_shape){
        .bytes = count * type_bytes,
        .count = count,
        .send_count = count,
        .recv_count = count,
    };
}

/* Every rank reads its input and writes its output. */
static double sendrecv_traffic(int nranks)
{
    return 2.0 * nranks;
}

/* Every rank sends to the next one and receives from the one before. */
static struct perf_origin sendrecv_origin(const struct perf_case *data, size_t count, int rank,
                                          int block)
{
    (void)count;
    (void)block;
    return (struct perf_origin){(rank + data->nranks - 1) % data->nranks, 0};
}

static hoop_result_t sendrecv_start(const struct perf_call *call)
{
    const int next = (call->rank + 1) % call->nranks;
    const int before = (call->rank + call->nranks - 1) % call->nranks;
    const hoop_result_t result =
        hoop_send(call->send, call->count, call->type, next, call->comm, NULL);
    return result != HOOP_OK
               ? result
               : hoop_recv(call->recv, call->count, call->type, before, call->comm, NULL);
}

static const struct perf_collective sendrecv = {
    .program = "sendrecv_perf",
    .not_in_place = true,
    .grouped = true,
    .shape = sendrecv_shape,
    .bus_factor = perf_bus_once,
    .traffic = sendrecv_traffic,
    .origin = sendrecv_origin,
    .start = sendrecv_start,
};

int main(int argc, char **argv)
{
    return perf_main(argc, argv, &sendrecv);
}
