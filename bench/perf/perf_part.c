/* See perf_part.h. */
#include "perf/perf_part.h"

#include <string.h>

#include "perf/perf_buffer.h"
#include "perf/perf_failure.h"

#define CHECK_ELEMENTS 1024

size_t perf_shape_in_place(const struct perf_shape *shape)
{
    size_t send_end = shape->in_place_send_at + shape->send_count;
    size_t recv_end = shape->in_place_recv_at + shape->recv_count;
    return send_end > recv_end ? send_end : recv_end;
}

/* Where the window in use begins in the buffer that holds both. */
static char *part_area(const struct perf_part *part)
{
    return part->area + (part->call.recv - part->recv);
}

void perf_part_prepare(const struct perf_part *part, const struct perf_case *data, bool in_place)
{
    size_t type_bytes = perf_type_bytes(data->type);
    size_t send_bytes = part->shape.send_count * type_bytes;
    size_t recv_bytes = part->shape.recv_count * type_bytes;
    char *input = part->send + (part->call.recv - part->recv);
    memset(part->call.recv, 0xa5, recv_bytes);
    if (in_place) {
        perf_buffer_guard(part_area(part), perf_shape_in_place(&part->shape) * type_bytes);
    } else {
        perf_buffer_guard(part->call.recv, recv_bytes);
        perf_buffer_guard(input, send_bytes);
    }
    perf_data_input(data, part->rank->rank, 0, part->shape.send_count, input);
}

static char *part_there(const struct perf_part *part, const char *at)
{
    char *there = perf_buffer_there(&part->rank->send, at);
    return there ? there : perf_buffer_there(&part->rank->recv, at);
}

void perf_part_aim(struct perf_part *part)
{
    part->there = part->call;
    if (part->rank->device >= 0) {
        part->there.send = part_there(part, part->call.send);
        part->there.recv = part_there(part, part->call.recv);
    }
}

int perf_part_put(const struct perf_part *part, bool in_place)
{
    size_t type_bytes = perf_type_bytes(part->call.type);
    if (in_place) {
        PERF_TRY(perf_buffer_put(&part->rank->recv, part_area(part),
                                 perf_shape_in_place(&part->shape) * type_bytes));
        return PERF_SUCCESS;
    }
    PERF_TRY(
        perf_buffer_put(&part->rank->recv, part->call.recv, part->shape.recv_count * type_bytes));
    PERF_TRY(
        perf_buffer_put(&part->rank->send, part->call.send, part->shape.send_count * type_bytes));
    return PERF_SUCCESS;
}

int perf_part_get(const struct perf_part *part, bool in_place)
{
    size_t type_bytes = perf_type_bytes(part->call.type);
    if (in_place) {
        PERF_TRY(perf_buffer_get(&part->rank->recv, part_area(part),
                                 perf_shape_in_place(&part->shape) * type_bytes));
        return PERF_SUCCESS;
    }
    char *input = part->send + (part->call.recv - part->recv);
    PERF_TRY(
        perf_buffer_get(&part->rank->recv, part->call.recv, part->shape.recv_count * type_bytes));
    PERF_TRY(perf_buffer_get(&part->rank->send, input, part->shape.send_count * type_bytes));
    return PERF_SUCCESS;
}

/* What n elements of the receive buffer from first on must be. */
static void part_expect(const struct perf_part *part, const struct perf_collective *collective,
                        const struct perf_case *data, size_t first, size_t n, char *want)
{
    size_t block_count = part->shape.count;
    while (n > 0) {
        size_t within = first % block_count;
        size_t piece = block_count - within < n ? block_count - within : n;
        struct perf_origin origin =
            collective->origin(data, block_count, part->rank->rank, (int)(first / block_count));
        if (collective->has_op) {
            perf_data_reduced(data, origin.at + within, piece, want);
        } else {
            perf_data_input(data, origin.rank, origin.at + within, piece, want);
        }
        first += piece;
        n -= piece;
        want += piece * perf_type_bytes(data->type);
    }
}

size_t perf_part_wrong(const struct perf_part *part, const struct perf_collective *collective,
                       const struct perf_case *data)
{
    char want[CHECK_ELEMENTS * 8];
    size_t type_bytes = perf_type_bytes(data->type);
    size_t wrong = 0;
    for (size_t first = 0; first < part->shape.recv_count; first += CHECK_ELEMENTS) {
        size_t rest = part->shape.recv_count - first;
        size_t n = rest < CHECK_ELEMENTS ? rest : CHECK_ELEMENTS;
        part_expect(part, collective, data, first, n, want);
        wrong += perf_data_wrong(data, part->call.recv + first * type_bytes, want, n);
    }
    return wrong;
}

/* Bytes of the inputs from element first up to end that are not what they were. */
static size_t part_changed(const struct perf_part *part, const struct perf_case *data, size_t first,
                           size_t end)
{
    char want[CHECK_ELEMENTS * 8];
    size_t type_bytes = perf_type_bytes(data->type);
    size_t changed = 0;
    for (; first < end; first += CHECK_ELEMENTS) {
        size_t n = end - first < CHECK_ELEMENTS ? end - first : CHECK_ELEMENTS;
        const char *got = part->call.send + first * type_bytes;
        perf_data_input(data, part->rank->rank, first, n, want);
        for (size_t i = 0; memcmp(got, want, n * type_bytes) != 0 && i < n * type_bytes; i++) {
            changed += got[i] != want[i];
        }
    }
    return changed;
}

size_t perf_part_damage(const struct perf_part *part, const struct perf_case *data, bool in_place)
{
    const struct perf_shape *shape = &part->shape;
    size_t type_bytes = perf_type_bytes(data->type);
    if (!in_place) {
        return perf_buffer_damage(part->call.recv, shape->recv_count * type_bytes) +
               perf_buffer_damage(part->call.send, shape->send_count * type_bytes) +
               part_changed(part, data, 0, shape->send_count);
    }
    size_t send_end = shape->in_place_send_at + shape->send_count;
    size_t recv_end = shape->in_place_recv_at + shape->recv_count;
    size_t before = shape->in_place_recv_at < send_end ? shape->in_place_recv_at : send_end;
    size_t behind = recv_end > shape->in_place_send_at ? recv_end : shape->in_place_send_at;
    size_t first = shape->in_place_send_at;
    return perf_buffer_damage(part_area(part), perf_shape_in_place(shape) * type_bytes) +
           part_changed(part, data, 0, before > first ? before - first : 0) +
           part_changed(part, data, behind - first, shape->send_count);
}
