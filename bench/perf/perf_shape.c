/* See perf.h. */
#include "perf/perf.h"

size_t perf_count_whole(size_t bytes, size_t type_bytes)
{
    return bytes / type_bytes;
}

size_t perf_count_part(size_t bytes, size_t type_bytes, int nranks)
{
    return bytes / type_bytes / (size_t)nranks & ~(16 / type_bytes - 1);
}

void perf_shape_whole(size_t bytes, size_t type_bytes, int nranks, int rank, int root,
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

double perf_traffic_both(int nranks)
{
    return 2.0 * nranks;
}

double perf_bus_once(int nranks)
{
    (void)nranks;
    return 1;
}

double perf_bus_others(int nranks)
{
    return (double)(nranks - 1) / nranks;
}

struct perf_origin perf_origin_same(const struct perf_case *data, size_t count, int rank, int block)
{
    (void)data;
    (void)count;
    (void)block;
    return (struct perf_origin){rank, 0};
}

struct perf_origin perf_origin_ranks(const struct perf_case *data, size_t count, int rank,
                                     int block)
{
    (void)data;
    (void)count;
    (void)rank;
    return (struct perf_origin){block, 0};
}

struct perf_origin perf_origin_root(const struct perf_case *data, size_t count, int rank, int block)
{
    (void)count;
    (void)rank;
    (void)block;
    return (struct perf_origin){data->root, 0};
}
