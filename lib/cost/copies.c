/* What a comm has learned about copying to others (see copies.h). */
#include "cost/copies.h"

#include "base/settings.h"
#include "runtime/copy.h"

/* Of this many rounds, each way gets one that is timed; at first of fewer. */
#define COPIES_EVERY 256u
#define COPIES_EVERY_AT_FIRST 64u
#define COPIES_WORTH(ns) ((ns) + (ns) / 16)

uint32_t hoop_copies_may(void)
{
    enum { MEASURED, NEVER, ALWAYS };
    const int asked = HOOP_COPY_PAST ? hoop_settings()->nontemporal : NEVER;
    return (asked != ALWAYS ? 1u << HOOP_COPY_ORDINARY : 0) |
           (asked != NEVER ? 1u << HOOP_COPY_NONTEMPORAL : 0);
}

uint32_t hoop_copies_size(uint64_t bytes)
{
    uint32_t size = 0;
    while (size < HOOP_COPIES_SIZES - 1 && bytes / HOOP_COPIES_LEAST_ROOTED >> size > 1) {
        size++;
    }
    return size;
}

/* The first way allowed, unless another one is faster by more than chance. */
static enum hoop_copy copies_fastest(const struct hoop_copies_row *row, uint32_t may)
{
    uint32_t ret = (uint32_t)__builtin_ctz(may);
    for (uint32_t how = ret + 1; how < HOOP_COPY_COUNT; how++) {
        if ((may >> how & 1) != 0 && row->ns[how] != 0 &&
            COPIES_WORTH((uint64_t)row->ns[how]) < row->ns[ret]) {
            ret = how;
        }
    }
    return (enum hoop_copy)ret;
}

/*
 * In each period one round is made in each way, at equal distances, the first way's at its
 * beginning. At first these rounds follow one another, after a round that only touches the memory.
 */
enum hoop_copy hoop_copies_next(struct hoop_copies_row *row, uint32_t around, uint32_t may,
                                bool *ret_timed)
{
    const uint32_t call = row->calls++;
    const bool early = call / around < COPIES_EVERY, first = call / around < COPIES_EVERY_AT_FIRST;
    const uint32_t every = around * (early ? COPIES_EVERY_AT_FIRST : COPIES_EVERY);
    const uint32_t apart = first ? around : every / (uint32_t)__builtin_popcount(may);
    const uint32_t turn = call % every;
    uint32_t begin = first ? around : 0;
    for (uint32_t how = 0; how < HOOP_COPY_COUNT; how++) {
        if ((may >> how & 1) != 0) {
            if (call < around || turn - begin < around) {
                *ret_timed = turn + 1 == begin + around;
                row->tries = true;
                return (enum hoop_copy)how;
            }
            begin += apart;
        }
    }
    *ret_timed = row->tries = false;
    return copies_fastest(row, may);
}

void hoop_copies_add(struct hoop_copies_row *row, enum hoop_copy how, uint64_t ns)
{
    const uint32_t took = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX, before = row->ns[how];
    /* A slow outlier, which may have any cause, counts as at most twice the mean so far. */
    const uint64_t most = 2ull * before;
    row->ns[how] = before == 0 || took <= before
                       ? took
                       : (uint32_t)((before + (took < most ? took : most)) / 2);
}
