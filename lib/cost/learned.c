/* What was learned of reading and copying (see learned.h). */
#include "cost/learned.h"

#define LEARNED_EVERY 64u /* one of so many is the slower one, where both take as long */
#define LEARNED_SHARE 100 /* of what is done, at most one part is lost by trying */

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
    return row->since >= LEARNED_EVERY + (row->ns[!faster] - ns) / ns * LEARNED_SHARE;
}

bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model)
{
    const struct hoop_learned_row *row = &learned->rows[collective][learned_size(block_bytes)];
    if (row->tried[model] < HOOP_LEARNED_TRIES) {
        return model;
    }
    if (row->tried[!model] < HOOP_LEARNED_TRIES) {
        return !model;
    }
    const bool faster = row->ns[1] < row->ns[0];
    return learned_is_time(row, faster) ? !faster : faster;
}

/* One that took long, for whatever reason, says little; one that took less shows what can be. */
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
        row->ns[read] = row->tried[read] == 0 || each < row->ns[read] ? each : row->ns[read];
        row->tried[read]++;
        return;
    }
    row->ns[read] = learned_next(row->ns[read], each);
    row->since = row->ns[read] <= row->ns[!read] ? row->since + 1 : 0;
}
