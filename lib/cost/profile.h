/*
 * Profiles: the constants of the cost model's classes of memory, as `hoopinfo --calibrate` measured
 * them on a machine. A file is read only where HOOP_PROFILE names one, once, before the process's
 * first communicator; the digest of its constants is compared when ranks join, so that all of them
 * choose alike.
 *
 *     # a comment                        lines of "key = value", each key once, in any order;
 *     version = 2                        of the file's format and of what its numbers mean
 *     machine = ...                      machine, date, hoop: texts for people
 *     memory_sync_ns = 113               whole numbers, or "default": what is built in
 */
#ifndef HOOP_PROFILE_H
#define HOOP_PROFILE_H

#include "base/error.h"
#include "cost/cost.h"

#define HOOP_PROFILE_VERSION 2
#define HOOP_PROFILE_MOST_BYTES ((size_t)16384)

struct hoop_profile {
    uint64_t version;
    struct hoop_cost_constants memory[HOOP_COST_MEMORIES];
};

/*
 * Reads a profile's text, which is taken apart: text[bytes] is written. name stands in sentences.
 * HOOP_INVALID_USAGE: name, line, value (behind the version only) and what was expected; *ret is
 * untouched.
 */
hoop_result_t hoop_profile_parse(const char *name, char *text, size_t bytes,
                                 struct hoop_profile *ret);

/* The same for the same constants only, as far as 64 bits can tell; never 0. */
uint64_t hoop_profile_digest(const struct hoop_profile *profile);

/*
 * Puts the profile in force that HOOP_PROFILE names, unless it is already. *ret_digest: of the one
 * in force, 0 without any. HOOP_INVALID_USAGE: it can't be read, or is none; a later call tries
 * again. Any thread.
 */
hoop_result_t hoop_profile_use(uint64_t *ret_digest);

#endif
