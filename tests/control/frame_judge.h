/*
 * What a reader that trusts a control message relies on, written apart from the checks of
 * lib/control/frame.c.
 */
#ifndef FRAME_JUDGE_H
#define FRAME_JUDGE_H

#include "control/frame.h"
#include <stdbool.h>

/* Every string and every index of every type. */
struct judge_field {
    uint32_t type;
    size_t at, bytes;
    uint64_t below; /* 0: a string */
};
extern const struct judge_field judge_fields[];
extern const size_t judge_field_count;

/* How many descriptors a reader would look for. far: over a network none can come. */
uint32_t judge_fds(const union hoop_frame *f, bool far);

/* Could a reader that trusts the frame come to harm? */
bool judge_is_safe(const union hoop_frame *f, size_t bytes, uint32_t fds, bool far);

#endif
