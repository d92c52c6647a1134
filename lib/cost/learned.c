/* What a comm has learned about reading and copying (see learned.h). */
#include "cost/learned.h"

#define LEARNED_EVERY 64u /* if both are equally fast, one of so many is the other one */
#define LEARNED_SHARE 100 /* trying the slower one costs at most one part in so many */

static uint32_t learned_size(uint64_t bytes)
{
    uint32_t size = 0;
    while (size < HOOP_LEARNED_SIZES - 1 && bytes >> (size + 10) > 1) {
        size++;
    }
    return size;
}

static bool learned_is_time(const struct hoop_learned_row *row, bool faster)
{
    const uint64_t ns = row->ns[faster] > 0 ? row->ns[faster] : 1;
    const uint64_t every = LEARNED_EVERY + (row->ns[!faster] - ns) / ns * LEARNED_SHARE;
    return row->since / HOOP_LEARNED_TRIES >= every;
}

bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model)
{
    const struct hoop_learned_row *row = &learned->rows[collective][learned_size(block_bytes)];
    if (row->tried[model] < HOOP_LEARNED_TRIES) {
        return model;
    }
    return row->tried[!model] < HOOP_LEARNED_TRIES ? !model : row->ns[1] < row->ns[0];
}

/* A fast time shows what is possible; a slow one, which may have any cause, is weighted little. */
static uint64_t learned_next(uint64_t before, uint64_t ns)
{
    return ns <= before ? ns : before + ((ns < 2 * before ? ns : 2 * before) - before) / 8;
}

void hoop_learned_add(struct hoop_learned *learned, enum hoop_collective collective,
                      uint64_t block_bytes, bool read, uint64_t ns)
{
    struct hoop_learned_row *row = &learned->rows[collective][learned_size(block_bytes)];
    const uint64_t kib = block_bytes >> 10 > 0 ? block_bytes >> 10 : 1;
    const uint64_t each = ns <= UINT64_MAX >> 10 ? (ns << 10) / kib : UINT64_MAX;
    if (row->tried[read] < HOOP_LEARNED_TRIES) {
        row->least = row->tried[read] == 0 || each < row->least ? each : row->least;
        if (++row->tried[read] == HOOP_LEARNED_TRIES) {
            row->ns[read] =
                row->ns[read] == 0 ? row->least : learned_next(row->ns[read], row->least);
            row->since = 0;
        }
        return;
    }
    row->ns[read] = learned_next(row->ns[read], each);
    row->since = row->ns[read] <= row->ns[!read] ? row->since + 1 : 0;
    if (row->since > 0 && learned_is_time(row, read)) {
        row->tried[!read] = 0;
    }
}
