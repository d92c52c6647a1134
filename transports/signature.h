/* What an operation is, as far as all ranks must agree on it. */
#ifndef HOOP_SIGNATURE_H
#define HOOP_SIGNATURE_H

#include "base/collective.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Equal on all ranks, or HOOP_MISMATCH. Plain data without padding: it travels. */
struct hoop_signature {
    uint32_t collective; /* enum hoop_collective */
    uint32_t type, op;
    int32_t root; /* -1: none */
    uint64_t count;
};

_Static_assert(sizeof(struct hoop_signature) == 3 * sizeof(uint64_t), "three words");

/* The op of a block of an alltoallv, whose announcement has no count. */
#define HOOP_ALLTOALLV_BLOCK 1u
/* The op of the all_gather by which comms are made of others: no user called it by that name. */
#define HOOP_ALL_GATHER_OF_BIRTH 1u

static inline bool hoop_signature_equal(const struct hoop_signature *a,
                                        const struct hoop_signature *b)
{
    uint64_t left[3], right[3]; /* whole words: this is on every operation's way */
    memcpy(left, a, sizeof(left));
    memcpy(right, b, sizeof(right));
    return ((left[0] ^ right[0]) | (left[1] ^ right[1]) | (left[2] ^ right[2])) == 0;
}

/* "all_reduce of 12 float sum"; also of one that makes no sense, which a peer may have sent. */
void hoop_signature_describe(const struct hoop_signature *signature, char *buf, size_t bytes);

/* What a rank called, where it should have been what another did. */
struct hoop_called {
    uint32_t rank, op;
    bool transfer; /* op counts those from one rank to another */
    struct hoop_signature signature;
};

/* HOOP_MISMATCH of these, with the sentence of it. */
hoop_result_t hoop_called_fail(const struct hoop_called *mine, const struct hoop_called *theirs,
                               struct hoop_failure *failure);
/* Back from the sentence, which may come from elsewhere; of transfers the receiver is first. All
 * but signature. */
bool hoop_called_find(const char *text, struct hoop_called ret[2]);

#endif
