/*
 * Reads JSON text. A value is a pointer to its first byte; only json_text() copies. Malformed text
 * has no members, no elements and no text.
 */
#ifndef HOOPINFO_JSON_H
#define HOOPINFO_JSON_H

#include <stddef.h>
#include <stdio.h>

/* The end of a value; NULL if it is malformed, or nested deeper than hoop's JSON. Otherwise it is
 * valid UTF-8, and has control characters below 0x20 only as white space. */
const char *json_end(const char *value);

/* The next element of an array, or key of an object, after this element or this key's value. NULL
 * gives the first. Returns NULL at the end. */
const char *json_next(const char *container, const char *after);
/* The value of a key. */
const char *json_value(const char *key);
/* The value of this key in an object, or NULL. */
const char *json_member(const char *object, const char *key);

/* Copies a string's text, or a number or word, truncated to fit. Control characters become '?'. */
char *json_text(const char *value, char *ret, size_t bytes);
/* Prints a value that json_end() accepted. Control characters become \u007f and the like in a
 * string, spaces elsewhere. */
void json_print(const char *text, FILE *file);
/* Prints any text as a JSON string. Bytes that are not UTF-8 become '?'. */
void json_quote(const char *text, FILE *file);
/* The value of a number; `otherwise` if it is something else. */
long long json_number(const char *value, long long otherwise);

#endif
