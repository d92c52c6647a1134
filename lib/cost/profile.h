/*
 * Profiles: the constants of the cost model's memory classes, as `hoopinfo --calibrate` measured
 * them on a machine. A file is read only if HOOP_PROFILE names one, once, before the process's
 * first communicator. Ranks compare the digest of the constants when they join, so that all make
 * the same choices.
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
 * Parses a profile's text in place: the text is modified, and text[bytes] is written. name is used
 * in messages. HOOP_INVALID_USAGE: the message has name, line, value (only after the version) and
 * what was expected; *ret is untouched.
 */
hoop_result_t hoop_profile_parse(const char *name, char *text, size_t bytes,
                                 struct hoop_profile *ret);

/* Equal for equal constants, and with 64 bits practically only for these; never 0. */
uint64_t hoop_profile_digest(const struct hoop_profile *profile);

/*
 * Puts the profile that HOOP_PROFILE names in force, unless it is already. *ret_digest: of the
 * profile in force, 0 without one. HOOP_INVALID_USAGE: the file cannot be read or is not a profile;
 * a later call tries again. Any thread.
 */
hoop_result_t hoop_profile_use(uint64_t *ret_digest);

#endif
