/* See json.h. */
#include "hoopinfo/json.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH 16

static const char *json_skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Behind a string, a number or a word. */
static const char *json_scalar_end(const char *at)
{
    if (*at != '"') {
        const size_t length = strcspn(at, ",:]}[{\" \t\r\n");
        return length > 0 ? at + length : NULL;
    }
    for (at++; *at != '"'; at++) {
        at += *at == '\\';
        if ((unsigned char)*at < 0x20) {
            return NULL;
        }
    }
    return at + 1;
}

/* Brackets are counted, not matched: what is well-formed ends where its first one closes. */
const char *json_end(const char *value)
{
    const char *at = value;
    int depth = 0;
    do {
        at = json_skip_space(at);
        if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth > 0 && (*at == ',' || *at == ':')) {
            at++;
        } else {
            at = *at != 0 ? json_scalar_end(at) : NULL;
        }
    } while (at != NULL && depth > 0 && depth <= JSON_DEPTH);
    return depth == 0 ? at : NULL;
}

const char *json_next(const char *container, const char *after)
{
    if (container == NULL || (*container != '{' && *container != '[')) {
        return NULL;
    }
    const char *at = container;
    if (after != NULL) {
        at = json_end(after);
        at = at != NULL ? json_skip_space(at) : NULL;
        if (at == NULL || *at != ',') {
            return NULL;
        }
    }
    at = json_skip_space(at + 1);
    return *at != '}' && *at != ']' && *at != 0 ? at : NULL;
}

const char *json_value(const char *key)
{
    const char *at = json_end(key);
    at = at != NULL ? json_skip_space(at) : NULL;
    return at != NULL && *at == ':' ? json_skip_space(at + 1) : NULL;
}

const char *json_member(const char *object, const char *key)
{
    const size_t length = strlen(key);
    const char *at = object != NULL && *object == '{' ? json_next(object, NULL) : NULL;
    while (at != NULL) {
        const char *value = json_value(at);
        if (*at == '"' && strncmp(at + 1, key, length) == 0 && at[length + 1] == '"') {
            return value;
        }
        at = value != NULL ? json_next(object, value) : NULL;
    }
    return NULL;
}

/* Also those of C1, which are two bytes in UTF-8. */
static bool json_is_control(const char *at)
{
    const unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
    return c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0);
}

char *json_text(const char *value, char *ret, size_t bytes)
{
    const char *end = value != NULL ? json_scalar_end(value) : NULL;
    const bool quoted = end != NULL && *value == '"';
    const char *at = quoted ? value + 1 : value;
    size_t length = 0;
    end = quoted ? end - 1 : end;
    while (end != NULL && at < end && length + 1 < bytes) {
        const bool escaped = *at == '\\';
        at += escaped;
        const bool plain = !escaped || strchr("\"\\/", *at) != NULL;
        ret[length++] = '?';
        if (plain && !json_is_control(at)) {
            ret[length - 1] = *at;
        }
        at += plain && json_is_control(at) && (unsigned char)*at == 0xc2 ? 2
              : escaped && *at == 'u'                                    ? 5
                                                                         : 1;
    }
    ret[length] = 0;
    return ret;
}

long long json_number(const char *value, long long otherwise)
{
    char *end = NULL;
    const long long number = value != NULL ? strtoll(value, &end, 10) : 0;
    return value != NULL && end != value ? number : otherwise;
}
