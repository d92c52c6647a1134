/*
 * What hoopinfo has to say, as facts in sections: collected first, printed then, as a page for
 * people or as one JSON object {"section": {"key": "value", ...}, ...}. Values are texts.
 */
#ifndef HOOPINFO_FACTS_H
#define HOOPINFO_FACTS_H

#include <stdbool.h>
#include <stddef.h>

struct facts; /* one thread at a time */

/* NULL: no memory. */
struct facts *facts_create(void);
void facts_destroy(struct facts *facts);

/*
 * Adds one. Facts of a section are printed together; keys within a section differ. All is
 * copied. What does not fit in memory is left out, and facts_print() fails.
 */
void facts_add(struct facts *facts, const char *section, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * Adds what a JSON object of hoop says: each member a fact of section; an array of objects is a
 * section of its own, each object a fact that its first member names (and a number, where two
 * have the same: ports of one device).
 */
void facts_add_json(struct facts *facts, const char *section, const char *json);

/* To standard output; false: not all of it was written. */
bool facts_print(const struct facts *facts, bool as_json);

#endif
