/*
 * Looks into JSON text. A value is a pointer to its first byte; nothing is copied but by
 * json_text(). What is no JSON has no members, no elements and no text.
 */
#ifndef HOOPINFO_JSON_H
#define HOOPINFO_JSON_H

#include <stddef.h>
#include <stdio.h>

/* Behind the value; NULL: it is none, or deeper than hoop writes it. What is one is well-formed: no
 * control character below 0x20 stands in it but as blank, and all is UTF-8. */
const char *json_end(const char *value);

/* The element of an array, or the key of an object, after this element or this key's value; NULL:
 * the first. Returns NULL behind the last. */
const char *json_next(const char *container, const char *after);
/* The value of a key. */
const char *json_value(const char *key);
/* The value of this key in an object; NULL: there is none. */
const char *json_member(const char *object, const char *key);

/* A string's text, or a number or word as it stands; what does not fit is cut off, control
 * characters become '?'. ret. NULL has the text "". */
char *json_text(const char *value, char *ret, size_t bytes);
/* What json_end() has seen the end of; control characters become \u007f and the like in a string,
 * spaces elsewhere. */
void json_print(const char *text, FILE *file);
/* Text of any kind as a JSON string; what is no UTF-8 as '?'. */
void json_quote(const char *text, FILE *file);
/* Of anything but a number: otherwise. */
long long json_number(const char *value, long long otherwise);

#endif
