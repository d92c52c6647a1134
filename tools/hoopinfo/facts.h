/*
 * What hoopinfo prints, as facts in sections: first collected, then printed as a page for people or
 * as one JSON object {"section": {"key": "value", ...}, ...}. Values are texts.
 */
#ifndef HOOPINFO_FACTS_H
#define HOOPINFO_FACTS_H

#include <stdbool.h>
#include <stddef.h>

struct facts; /* one thread at a time */

/* Returns NULL if there is no memory. */
struct facts *facts_create(void);
void facts_destroy(struct facts *facts);

/*
 * Adds a fact; all is copied. Facts of a section are printed together; keys within a section
 * differ. If memory runs out facts are left out, and facts_print() fails.
 */
void facts_add(struct facts *facts, const char *section, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * Adds the members of one of hoop's JSON objects as facts of section. An array of objects becomes a
 * section of its own, with a fact per object, named by its first member, and numbered if two have
 * the same name, as ports of one device do.
 */
void facts_add_json(struct facts *facts, const char *section, const char *json);

/* Prints to standard output. Returns false if facts are missing for lack of memory. */
bool facts_print(const struct facts *facts, bool as_json);

#endif
