/*
 * Writes JSON into a buffer of fixed size, and counts what it takes. What does not fit is counted
 * and dropped: nothing is ever written past the buffer, nothing is allocated, no call can fail.
 *
 *     struct hoop_json json;
 *     hoop_json_init(&json, buf, bytes);
 *     hoop_json_object(&json, NULL);
 *     hoop_json_int(&json, "ranks", 4);
 *     hoop_json_object_end(&json);
 *     return hoop_json_finish(&json, needed);         // {"ranks":4}
 *
 * key: the name of the value in an object; NULL in an array, and of the whole. Commas come by
 * themselves. That objects hold pairs and that what begins ends is the caller's care. One thread at
 * a time.
 */
#ifndef HOOP_BASE_JSON_H
#define HOOP_BASE_JSON_H

#include "base/error.h"
#include <stdbool.h>

struct hoop_json {
    char *buf;
    size_t bytes;  /* of buf */
    size_t length; /* of the text so far, whether it fits or not */
    bool comma;    /* the next value follows another one */
};

/* buf is borrowed until finish; NULL with bytes 0: only count. */
void hoop_json_init(struct hoop_json *json, char *buf, size_t bytes);

void hoop_json_object(struct hoop_json *json, const char *key);
void hoop_json_object_end(struct hoop_json *json);
void hoop_json_array(struct hoop_json *json, const char *key);
void hoop_json_array_end(struct hoop_json *json);

/* NULL is written as null; a byte that is no UTF-8 as U+FFFD. */
void hoop_json_string(struct hoop_json *json, const char *key, const char *text);
void hoop_json_int(struct hoop_json *json, const char *key, int64_t value);
void hoop_json_uint(struct hoop_json *json, const char *key, uint64_t value);
void hoop_json_bool(struct hoop_json *json, const char *key, bool value);

/*
 * Writes the NUL. *ret_needed gets the bytes of the whole text, NUL included, whatever the result
 * (NULL: not wanted). HOOP_INVALID_ARGUMENT when the buffer has fewer: it then holds "".
 */
hoop_result_t hoop_json_finish(struct hoop_json *json, size_t *ret_needed);

#endif
