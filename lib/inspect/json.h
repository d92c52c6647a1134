/*
 * Writes JSON into a buffer of fixed size, and counts the bytes that it takes. What does not fit is
 * counted and dropped: nothing is written past the buffer, nothing is allocated, no call can fail.
 *
 *     struct hoop_json json;
 *     hoop_json_init(&json, buf, bytes);
 *     hoop_json_object(&json, NULL);
 *     hoop_json_int(&json, "ranks", 4);
 *     hoop_json_object_end(&json);
 *     return hoop_json_finish(&json, needed);         // {"ranks":4}
 *
 * key is the name of a value in an object; NULL in an array, and at the top. Commas are written
 * automatically. The caller sees to it that values in objects have names, and that all that begins
 * is ended. One thread at a time.
 */
#ifndef HOOP_BASE_JSON_H
#define HOOP_BASE_JSON_H

#include "base/error.h"
#include <stdbool.h>

struct hoop_json {
    char *buf;
    size_t bytes;  /* of buf */
    size_t length; /* of the whole text so far, whether it fits or not */
    bool comma;    /* the next value needs a comma before it */
};

/* buf is borrowed until finish. NULL with 0 bytes only counts. */
void hoop_json_init(struct hoop_json *json, char *buf, size_t bytes);

void hoop_json_object(struct hoop_json *json, const char *key);
void hoop_json_object_end(struct hoop_json *json);
void hoop_json_array(struct hoop_json *json, const char *key);
void hoop_json_array_end(struct hoop_json *json);

/* A NULL text is written as null, a byte that is not UTF-8 as U+FFFD. */
void hoop_json_string(struct hoop_json *json, const char *key, const char *text);
void hoop_json_int(struct hoop_json *json, const char *key, int64_t value);
void hoop_json_uint(struct hoop_json *json, const char *key, uint64_t value);
void hoop_json_bool(struct hoop_json *json, const char *key, bool value);

/*
 * Writes the NUL. *ret_needed (may be NULL) gets the size of the whole text with its NUL, whatever
 * the result. HOOP_INVALID_ARGUMENT: the buffer is too small, and now holds "".
 */
hoop_result_t hoop_json_finish(struct hoop_json *json, size_t *ret_needed);

#endif
