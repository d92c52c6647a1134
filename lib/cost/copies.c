/* How to copy to others, as it was learned (see copies.h). */
#include "cost/copies.h"

/* Of so many rounds one is by either. */
#define COPIES_EVERY 64u
#define COPIES_WORTH(ns) ((ns) + (ns) / 16)

struct hoop_copies_row *hoop_copies_row(struct hoop_copies *copies, enum hoop_collective collective,
                                        uint64_t bytes)
{
    uint32_t size = 0;
    while (size < HOOP_COPIES_SIZES - 1 && bytes / HOOP_COPIES_LEAST >> size > 1) {
        size++;
    }
    return &copies->rows[collective][size];
}

bool hoop_copies_next(struct hoop_copies_row *row, uint32_t around, bool *ret_timed)
{
    const uint32_t every = COPIES_EVERY * around, call = row->calls++;
    const uint32_t turn = call % every;
    /* A round by ordinary stores begins each period, one by others its second half; at first the
     * second follows the first. */
    const uint32_t second = call < every ? around : every / 2;
    const bool past = turn >= second;
    if (turn < around || turn - second < around) {
        *ret_timed = turn + 1 == around || turn + 1 == second + around;
        return past;
    }
    *ret_timed = false;
    return COPIES_WORTH((uint64_t)row->ns[1]) < row->ns[0];
}

void hoop_copies_add(struct hoop_copies_row *row, bool past, uint64_t ns)
{
    const uint32_t took = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX, before = row->ns[past];
    /* One that took long, for whatever reason, says less than one that took less. */
    const uint64_t most = 2ull * before;
    row->ns[past] = before == 0 || took <= before
                        ? took
                        : (uint32_t)((before + (took < most ? took : most)) / 2);
}
