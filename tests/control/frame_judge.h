/*
 * What code that trusts a control message relies on, written independently of the checks in
 * lib/control/frame.c.
 */
#ifndef FRAME_JUDGE_H
#define FRAME_JUDGE_H

#include "control/frame.h"
#include <stdbool.h>

/* Every string and every index of every type of message. */
struct judge_field {
    uint32_t type;
    size_t at, bytes;
    uint64_t below; /* the index must be below this; 0: a string */
};
extern const struct judge_field judge_fields[];
extern const size_t judge_field_count;

/* How many descriptors the frame claims to bring. far: it came over a network, which carries
 * none. */
uint32_t judge_fds(const union hoop_frame *f, bool far);

/* Can the frame do no harm to a reader that trusts it? */
bool judge_is_safe(const union hoop_frame *f, size_t bytes, uint32_t fds, bool far);

#endif
