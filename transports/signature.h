/* What an operation is, as far as all ranks must agree on it. */
#ifndef HOOP_SIGNATURE_H
#define HOOP_SIGNATURE_H

#include "base/collective.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Equal on all ranks, or HOOP_MISMATCH. Plain data without padding: it travels. */
struct hoop_signature {
    uint32_t collective; /* enum hoop_collective */
    uint32_t type, op;
    int32_t root; /* -1: none */
    uint64_t count;
};

static inline bool hoop_signature_equal(const struct hoop_signature *a,
                                        const struct hoop_signature *b)
{
    return a->count == b->count && a->type == b->type && a->op == b->op &&
           a->collective == b->collective && a->root == b->root;
}

/* "all_reduce of 12 float sum"; also of one that makes no sense, which a peer may have sent. */
void hoop_signature_describe(const struct hoop_signature *signature, char *buf, size_t bytes);

#endif
