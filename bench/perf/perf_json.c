/* See perf_json.h. */
#include "perf/perf_json.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SUFFIXES 100000

void perf_json_attach(struct perf_json *json, FILE *file)
{
    *json = (struct perf_json){.file = file};
}

void perf_json_open(struct perf_json *json, const char *path, FILE *out)
{
    size_t bytes = strlen(path) + 16;
    char *tried = malloc(bytes);
    FILE *file = NULL;
    for (int suffix = 0; tried && suffix < MOST_SUFFIXES; suffix++) {
        if (suffix == 0) {
            snprintf(tried, bytes, "%s", path);
        } else {
            snprintf(tried, bytes, "%s.%d", path, suffix);
        }
        file = fopen(tried, "wx");
        if (file || errno != EEXIST) {
            break;
        }
    }
    if (file) {
        fprintf(out, "# Writing JSON output to %s\n", tried);
    } else {
        fprintf(out, "# skipping JSON output: %s: %s\n", path, strerror(errno));
    }
    free(tried);
    perf_json_attach(json, file);
    json->lost = file == NULL;
}

bool perf_json_close(struct perf_json *json)
{
    if (!json->file) {
        return !json->lost;
    }
    while (json->depth > 0) {
        perf_json_end(json);
    }
    fputc('\n', json->file);
    bool written = !ferror(json->file);
    written = fclose(json->file) == 0 && written;
    json->file = NULL;
    return written;
}

static void json_quote(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            fprintf(file, "\\%c", byte);
        } else if (byte < 0x20 || byte >= 0x7f) {
            fprintf(file, "\\u%04x", byte); /* bytes of unknown encoding: read as Latin-1 */
        } else {
            fputc(byte, file);
        }
    }
    fputc('"', file);
}

/* The comma before a member, unless it is the first, and its key. */
static void json_separate(struct perf_json *json, const char *key)
{
    if (json->depth > 0) {
        fprintf(json->file, "%s\n%*s", json->filled[json->depth - 1] ? "," : "", 2 * json->depth,
                "");
        json->filled[json->depth - 1] = true;
    }
    if (key) {
        json_quote(json->file, key);
        fputs(": ", json->file);
    }
}

void perf_json_begin(struct perf_json *json, const char *key, char bracket)
{
    if (!json->file) {
        return;
    }
    assert(json->depth < PERF_JSON_DEPTH);
    json_separate(json, key);
    fputc(bracket, json->file);
    json->filled[json->depth] = false;
    json->closer[json->depth] = bracket == '{' ? '}' : ']';
    json->depth++;
}

void perf_json_end(struct perf_json *json)
{
    if (!json->file) {
        return;
    }
    assert(json->depth > 0);
    json->depth--;
    if (json->filled[json->depth]) {
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    }
    fputc(json->closer[json->depth], json->file);
}

void perf_json_string(struct perf_json *json, const char *key, const char *text)
{
    if (!text) {
        perf_json_null(json, key);
    } else if (json->file) {
        json_separate(json, key);
        json_quote(json->file, text);
    }
}

void perf_json_bool(struct perf_json *json, const char *key, bool value)
{
    perf_json_string(json, key, value ? "true" : "false");
}

void perf_json_integer(struct perf_json *json, const char *key, int64_t value)
{
    if (json->file) {
        json_separate(json, key);
        fprintf(json->file, "%lld", (long long)value);
    }
}

void perf_json_size(struct perf_json *json, const char *key, size_t value)
{
    if (json->file) {
        json_separate(json, key);
        fprintf(json->file, "%zu", value);
    }
}

void perf_json_double(struct perf_json *json, const char *key, double value)
{
    if (!isfinite(value)) {
        perf_json_null(json, key);
    } else if (json->file) {
        json_separate(json, key);
        fprintf(json->file, "%.9g", value);
    }
}

void perf_json_null(struct perf_json *json, const char *key)
{
    if (json->file) {
        json_separate(json, key);
        fputs("null", json->file);
    }
}
