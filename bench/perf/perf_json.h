/*
 * A writer of JSON, just enough for the results file. On a closed writer all functions do nothing,
 * so callers need not check whether there is a file.
 */
#ifndef PERF_JSON_H
#define PERF_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PERF_JSON_DEPTH 16

struct perf_json {
    FILE *file; /* NULL: closed */
    bool lost;  /* the file could not be opened */
    int depth;
    bool filled[PERF_JSON_DEPTH]; /* the object or list at that depth has a member already */
    char closer[PERF_JSON_DEPTH];
};

/*
 * Opens path, or, if that exists already, path.1, path.2, ...: no file is ever overwritten. Writes
 * to out which one it became, or why there is none.
 */
void perf_json_open(struct perf_json *json, const char *path, FILE *out);

/* Makes the writer use an open file, which is closed with the writer. */
void perf_json_attach(struct perf_json *json, FILE *file);

/* Closes all open objects and lists, and the file. False: something could not be written, or the
 * file could not be opened. */
bool perf_json_close(struct perf_json *json);

/* The functions below write a member: with a key in an object, with key NULL in a list. */
void perf_json_begin(struct perf_json *json, const char *key, char bracket); /* '{' or '[' */
void perf_json_end(struct perf_json *json);
void perf_json_string(struct perf_json *json, const char *key, const char *text); /* NULL: null */
/* The strings "true" and "false". */
void perf_json_bool(struct perf_json *json, const char *key, bool value);
void perf_json_integer(struct perf_json *json, const char *key, int64_t value);
void perf_json_size(struct perf_json *json, const char *key, size_t value);
/* null if the value is not finite */
void perf_json_double(struct perf_json *json, const char *key, double value);
void perf_json_null(struct perf_json *json, const char *key);

#endif
