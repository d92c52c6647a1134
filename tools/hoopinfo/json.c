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

static const char *json_digits_end(const char *at)
{
    return at + strspn(at, "0123456789");
}

/* The end of a number; NULL if there is none. */
static const char *json_number_end(const char *at)
{
    at += *at == '-';
    const char *end = *at == '0' ? at + 1 : json_digits_end(at);
    bool right = end > at;
    if (*end == '.') {
        at = end + 1;
        end = json_digits_end(at);
        right &= end > at;
    }
    if (*end == 'e' || *end == 'E') {
        at = end + 1;
        at += *at == '-' || *at == '+';
        end = json_digits_end(at);
        right &= end > at;
    }
    return right ? end : NULL;
}

/* The end of a number, true, false or null; NULL if there is none. */
static const char *json_word_end(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    const char *end = json_number_end(at);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t length = strlen(words[i]);
        end = strncmp(at, words[i], length) == 0 ? at + length : end;
    }
    return end != NULL && strchr(",]} \t\r\n", *end) != NULL ? end : NULL;
}

/* The length of the UTF-8 character; 0 if it is malformed. */
static size_t json_char_bytes(const char *at)
{
    static const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char lead = (unsigned char)*at;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xc0 || lead > 0xf4) {
        return 0;
    }
    const unsigned more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    unsigned code = lead & (0x3fU >> more);
    for (unsigned i = 1; i <= more; i++) {
        const unsigned char next = (unsigned char)at[i];
        if ((next & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (next & 0x3f);
    }
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code >= least[more] && code <= 0x10ffff && !surrogate ? more + 1 : 0;
}

/* The end of an escape sequence; at is the backslash. */
static const char *json_escape_end(const char *at)
{
    if (at[1] == 'u') {
        return strspn(at + 2, "0123456789abcdefABCDEF") >= 4 ? at + 6 : NULL;
    }
    return at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL ? at + 2 : NULL;
}

static const char *json_string_end(const char *at)
{
    at++;
    while (at != NULL && *at != '"') {
        const size_t bytes = (unsigned char)*at < 0x20 ? 0 : json_char_bytes(at);
        at = *at == '\\' ? json_escape_end(at) : bytes > 0 ? at + bytes : NULL;
    }
    return at != NULL ? at + 1 : NULL;
}

/* The end of a string, a number or a word. */
static const char *json_scalar_end(const char *at)
{
    return *at == '"' ? json_string_end(at) : json_word_end(at);
}

/* Does this character close the innermost bracket? */
static bool json_closes(const char *open, int depth, char c)
{
    return depth > 0 && c == (open[depth - 1] == '{' ? '}' : ']');
}

/* Skips all brackets that close here. Returns what follows. */
static const char *json_close(const char *open, int *depth, const char *at)
{
    while (*depth > 0) {
        at = json_skip_space(at);
        if (!json_closes(open, *depth, *at)) {
            return at;
        }
        at++;
        (*depth)--;
    }
    return at;
}

const char *json_value(const char *key)
{
    const char *at = *key == '"' ? json_string_end(key) : NULL;
    at = at != NULL ? json_skip_space(at) : NULL;
    return at != NULL && *at == ':' ? json_skip_space(at + 1) : NULL;
}

const char *json_end(const char *value)
{
    char open[JSON_DEPTH];
    int depth = 0;
    bool fresh = false; /* a bracket has just been opened */
    const char *at = json_skip_space(value);
    for (;;) {
        if (!fresh || !json_closes(open, depth, *at)) {
            at = depth > 0 && open[depth - 1] == '{' ? json_value(at) : at;
            fresh = at != NULL && depth < JSON_DEPTH && (*at == '{' || *at == '[');
            if (fresh) {
                open[depth++] = *at;
                at = json_skip_space(at + 1);
                continue;
            }
            at = at != NULL ? json_scalar_end(at) : NULL;
        }
        at = at != NULL ? json_close(open, &depth, at) : NULL;
        if (at == NULL || depth == 0) {
            return at;
        }
        if (*at != ',') {
            return NULL;
        }
        at = json_skip_space(at + 1);
        fresh = false;
    }
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

/* Is it a control character? Those of C1 take two bytes in UTF-8. */
static bool json_is_control(const char *at)
{
    const unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
    return c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0);
}

void json_print(const char *text, FILE *file)
{
    for (const char *at = text; *at != 0; at++) {
        if (!json_is_control(at)) {
            (void)putc(*at, file);
        } else if ((unsigned char)*at < 0x20) {
            (void)putc(' ', file);
        } else {
            at += (unsigned char)*at == 0xc2;
            (void)fprintf(file, "\\u%04x", (unsigned char)*at);
        }
    }
}

void json_quote(const char *text, FILE *file)
{
    (void)putc('"', file);
    for (const char *at = text; *at != 0;) {
        const size_t bytes = json_char_bytes(at);
        if (json_is_control(at)) {
            at += (unsigned char)*at == 0xc2;
            (void)fprintf(file, "\\u%04x", (unsigned char)*at++);
        } else if (bytes == 0) {
            (void)putc('?', file);
            at++;
        } else {
            (void)fprintf(file, *at == '"' || *at == '\\' ? "\\%.*s" : "%.*s", (int)bytes, at);
            at += bytes;
        }
    }
    (void)putc('"', file);
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
