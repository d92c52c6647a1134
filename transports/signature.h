/* An operation as far as all ranks must agree on it. */
#ifndef HOOP_SIGNATURE_H
#define HOOP_SIGNATURE_H

#include "base/collective.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Must be equal on all ranks, otherwise HOOP_MISMATCH. Plain data without padding, as it
 * travels. */
struct hoop_signature {
    uint32_t collective; /* enum hoop_collective */
    uint32_t type, op;
    int32_t root; /* -1: none */
    uint64_t count;
};

_Static_assert(sizeof(struct hoop_signature) == 3 * sizeof(uint64_t), "three words");

/* The op of one block of an alltoallv; the announcement of an alltoallv has no count. */
#define HOOP_ALLTOALLV_BLOCK 1u
/* The op of the all_gather by which comms are made from others; no user called it as such. */
#define HOOP_ALL_GATHER_OF_BIRTH 1u

static inline bool hoop_signature_equal(const struct hoop_signature *a,
                                        const struct hoop_signature *b)
{
    uint64_t left[3], right[3]; /* whole words, because every operation comes here */
    memcpy(left, a, sizeof(left));
    memcpy(right, b, sizeof(right));
    return ((left[0] ^ right[0]) | (left[1] ^ right[1]) | (left[2] ^ right[2])) == 0;
}

/* "all_reduce of 12 float sum"; also for an invalid signature, which a peer may have sent. */
void hoop_signature_describe(const struct hoop_signature *signature, char *buf, size_t bytes);

/* What a rank called. */
struct hoop_called {
    uint32_t rank, op;
    bool transfer; /* op counts the transfers between two ranks */
    struct hoop_signature signature;
};

/* The failure of two calls that should have been the same: HOOP_MISMATCH, with both. */
hoop_result_t hoop_called_fail(const struct hoop_called *mine, const struct hoop_called *theirs,
                               struct hoop_failure *failure);
/* Parses such a message, which may come from elsewhere; for a transfer the receiver comes first.
 * Fills in all but the signatures. */
bool hoop_called_find(const char *text, struct hoop_called ret[2]);

#endif
