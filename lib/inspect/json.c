/* The JSON writer. Only json_put() touches the buffer. */
#include "inspect/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void json_put(struct hoop_json *json, const char *text, size_t length)
{
    if (json->length < json->bytes) {
        const size_t room = json->bytes - json->length;
        memcpy(json->buf + json->length, text, length < room ? length : room);
    }
    json->length += length;
}

void hoop_json_init(struct hoop_json *json, char *buf, size_t bytes)
{
    *json = (struct hoop_json){.buf = buf, .bytes = buf != NULL ? bytes : 0};
}

/*
 * The length of the UTF-8 character at p, or 0 if it is malformed. As RFC 3629 says, overlong
 * forms, surrogates and values above U+10FFFF are rejected. Does not read past the NUL.
 */
static size_t json_utf8_length(const unsigned char *p)
{
    const unsigned char lead = p[0];
    size_t length;
    unsigned char least = 0x80; /* range of the second byte */
    unsigned char most = 0xbf;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        least = lead == 0xe0 ? 0xa0 : least;
        most = lead == 0xed ? 0x9f : most;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        least = lead == 0xf0 ? 0x90 : least;
        most = lead == 0xf4 ? 0x8f : most;
    } else {
        return 0;
    }
    if (p[1] < least || p[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

static void json_put_escape(struct hoop_json *json, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *found = strchr(from, c);
    if (found != NULL) {
        const char pair[2] = {'\\', to[found - from]};
        json_put(json, pair, sizeof(pair));
    } else {
        char code[8];
        snprintf(code, sizeof(code), "\\u%04x", c);
        json_put(json, code, 6);
    }
}

static void json_put_quoted(struct hoop_json *json, const char *text)
{
    json_put(json, "\"", 1);
    while (*text != '\0') {
        const unsigned char c = (unsigned char)*text;
        const size_t length = json_utf8_length((const unsigned char *)text);
        if (length == 0) {
            json_put(json, "\xef\xbf\xbd", 3);
        } else if (c < 0x20 || c == '"' || c == '\\') {
            json_put_escape(json, c);
        } else {
            json_put(json, text, length);
        }
        text += length == 0 ? 1 : length;
    }
    json_put(json, "\"", 1);
}

/* Begins a value, with its name if key is not NULL. */
static void json_begin_value(struct hoop_json *json, const char *key)
{
    if (json->comma) {
        json_put(json, ",", 1);
    }
    json->comma = true;
    if (key != NULL) {
        json_put_quoted(json, key);
        json_put(json, ":", 1);
    }
}

static void json_put_value(struct hoop_json *json, const char *key, const char *text)
{
    json_begin_value(json, key);
    json_put(json, text, strlen(text));
}

static void json_begin(struct hoop_json *json, const char *key, const char *bracket)
{
    json_put_value(json, key, bracket);
    json->comma = false;
}

static void json_end(struct hoop_json *json, const char *bracket)
{
    json_put(json, bracket, 1);
    json->comma = true;
}

void hoop_json_object(struct hoop_json *json, const char *key)
{
    json_begin(json, key, "{");
}

void hoop_json_object_end(struct hoop_json *json)
{
    json_end(json, "}");
}

void hoop_json_array(struct hoop_json *json, const char *key)
{
    json_begin(json, key, "[");
}

void hoop_json_array_end(struct hoop_json *json)
{
    json_end(json, "]");
}

void hoop_json_string(struct hoop_json *json, const char *key, const char *text)
{
    if (text == NULL) {
        json_put_value(json, key, "null");
        return;
    }
    json_begin_value(json, key);
    json_put_quoted(json, text);
}

void hoop_json_int(struct hoop_json *json, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    json_put_value(json, key, text);
}

void hoop_json_uint(struct hoop_json *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    json_put_value(json, key, text);
}

void hoop_json_bool(struct hoop_json *json, const char *key, bool value)
{
    json_put_value(json, key, value ? "true" : "false");
}

hoop_result_t hoop_json_finish(struct hoop_json *json, size_t *ret_needed)
{
    const size_t needed = json->length + 1;
    if (ret_needed != NULL) {
        *ret_needed = needed;
    }
    if (needed <= json->bytes) {
        json->buf[json->length] = '\0';
        return HOOP_OK;
    }
    if (json->bytes > 0) {
        json->buf[0] = '\0';
    }
    return hoop_error(HOOP_INVALID_ARGUMENT, "the text takes %zu bytes; the buffer has %zu", needed,
                      json->bytes);
}
