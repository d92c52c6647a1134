/* What a comm has learned about reading and copying (see learned.h). */
#include "cost/learned.h"

#define LEARNED_EVERY 64u /* if both are equally fast, one of so many is the other one */
#define LEARNED_SHARE 100 /* trying the slower one costs at most one part in so many */
/* So many announced calls after it was found to be slower oneshot is tried again. */
#define LEARNED_WITHOUT 2048u

uint32_t hoop_learned_size(uint64_t bytes)
{
    uint32_t size = 0;
    while (size < HOOP_LEARNED_SIZES - 1 && bytes >> (size + 10) > 1) {
        size++;
    }
    return size;
}

static bool learned_is_time(const struct hoop_learned_row *row, bool faster)
{
    const uint64_t ns = row->of[faster].ns > 0 ? row->of[faster].ns : 1;
    const uint64_t every = LEARNED_EVERY + (row->of[!faster].ns - ns) / ns * LEARNED_SHARE;
    return row->since / HOOP_LEARNED_TRIES >= every;
}

static bool learned_knows(const struct hoop_learned_row *row, int way)
{
    return row->of[way].tried == HOOP_LEARNED_TRIES;
}

bool hoop_learned_reads(const struct hoop_learned *learned, enum hoop_collective collective,
                        uint64_t block_bytes, bool model)
{
    const struct hoop_learned_row *row = &learned->rows[collective][hoop_learned_size(block_bytes)];
    if (!learned_knows(row, model)) {
        return model;
    }
    return learned_knows(row, !model) ? row->of[HOOP_LEARNED_CMA].ns < row->of[HOOP_LEARNED_SLAB].ns
                                      : !model;
}

/* A fast time shows what is possible; a slow one, which may have any cause, is weighted little. */
static uint64_t learned_next(uint64_t before, uint64_t ns)
{
    return ns <= before ? ns : before + ((ns < 2 * before ? ns : 2 * before) - before) / 8;
}

static void learned_take(struct hoop_learned_time *time, uint64_t block_bytes, uint64_t ns)
{
    const uint64_t kib = block_bytes >> 10 > 0 ? block_bytes >> 10 : 1;
    const uint64_t each = ns <= UINT64_MAX >> 10 ? (ns << 10) / kib : UINT64_MAX;
    if (time->tried == HOOP_LEARNED_TRIES) {
        time->ns = learned_next(time->ns, each);
        return;
    }
    time->least = time->tried == 0 || each < time->least ? each : time->least;
    if (++time->tried == HOOP_LEARNED_TRIES) {
        time->ns = time->ns == 0 ? time->least : learned_next(time->ns, time->least);
    }
}

void hoop_learned_add(struct hoop_learned *learned, enum hoop_collective collective,
                      uint64_t block_bytes, bool read, uint64_t ns)
{
    struct hoop_learned_row *row = &learned->rows[collective][hoop_learned_size(block_bytes)];
    const bool knew = learned_knows(row, read);
    learned_take(&row->of[read], block_bytes, ns);
    row->without++;
    row->since = knew && row->of[read].ns <= row->of[!read].ns ? row->since + 1 : 0;
    if (row->since > 0 && learned_is_time(row, read)) {
        row->of[!read].tried = 0;
    }
}

/* Is oneshot the fastest, as far as is known? Of it only work is timed, not the waits. */
static bool learned_grants(const struct hoop_learned_row *row)
{
    const uint64_t slab = row->of[HOOP_LEARNED_SLAB].ns, cma = row->of[HOOP_LEARNED_CMA].ns;
    const uint64_t other = slab == 0 || (cma > 0 && cma < slab) ? cma : slab;
    return row->of[HOOP_LEARNED_ONESHOT].ns <= other - other / 8;
}

enum hoop_grant hoop_learned_grants(const struct hoop_learned *learned,
                                    enum hoop_collective collective, uint64_t block_bytes,
                                    bool both)
{
    const struct hoop_learned_row *row = &learned->rows[collective][hoop_learned_size(block_bytes)];
    const bool slab = learned_knows(row, HOOP_LEARNED_SLAB);
    const bool cma = learned_knows(row, HOOP_LEARNED_CMA);
    if (both ? !slab || !cma : !slab && !cma) {
        return HOOP_GRANT_NONE;
    }
    if (learned_knows(row, HOOP_LEARNED_ONESHOT)) {
        return learned_grants(row)              ? HOOP_GRANT_MANY
               : row->without < LEARNED_WITHOUT ? HOOP_GRANT_NONE
                                                : HOOP_GRANT_TRY;
    }
    return HOOP_GRANT_TRY;
}

void hoop_learned_add_oneshot(struct hoop_learned *learned, enum hoop_collective collective,
                              uint64_t block_bytes, uint64_t ns)
{
    struct hoop_learned_row *row = &learned->rows[collective][hoop_learned_size(block_bytes)];
    struct hoop_learned_time *time = &row->of[HOOP_LEARNED_ONESHOT];
    if (learned_knows(row, HOOP_LEARNED_ONESHOT) && !learned_grants(row)) {
        time->tried = 0;
    }
    learned_take(time, block_bytes, ns);
    row->without = 0;
}
