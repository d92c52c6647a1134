/* See facts.h. */
#include "hoopinfo/facts.h"
#include "hoopinfo/json.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 48
#define VALUE_BYTES 512 /* from JSON: what does not fit is cut off */

struct fact {
    char section[KEY_BYTES];
    char key[KEY_BYTES];
    char *value;
};

struct facts {
    struct fact *all;
    size_t count, room;
    bool short_of_memory;
};

struct facts *facts_create(void)
{
    return calloc(1, sizeof(struct facts));
}

void facts_destroy(struct facts *facts)
{
    for (size_t i = 0; facts != NULL && i < facts->count; i++) {
        free(facts->all[i].value);
    }
    if (facts != NULL) {
        free(facts->all);
        free(facts);
    }
}

void facts_add(struct facts *facts, const char *section, const char *key, const char *format, ...)
{
    if (facts->count == facts->room) {
        const size_t room = facts->room * 2 + 16;
        struct fact *grown = realloc(facts->all, room * sizeof(*grown));
        if (grown == NULL) {
            facts->short_of_memory = true;
            return;
        }
        facts->all = grown;
        facts->room = room;
    }
    struct fact *fact = &facts->all[facts->count];
    snprintf(fact->section, sizeof(fact->section), "%s", section);
    snprintf(fact->key, sizeof(fact->key), "%s", key);
    va_list list;
    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was started above */
    const bool written = vasprintf(&fact->value, format, list) >= 0;
    va_end(list);
    facts->count += written;
    facts->short_of_memory |= !written;
}

/* ---- JSON of hoop ------------------------------------------------------------------------- */

/* Appends to a text; truncates what does not fit. */
static void append(char *text, size_t bytes, const char *before, const char *more)
{
    const size_t length = strlen(text);
    snprintf(text + length, bytes - length, "%s%s", length > 0 ? before : "", more);
}

static bool is_taken(const struct facts *facts, const char *section, const char *key)
{
    for (size_t i = 0; i < facts->count; i++) {
        const struct fact *fact = &facts->all[i];
        if (strcmp(fact->section, section) == 0 && strcmp(fact->key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds an object of an array as one fact, named by the first member's value. Its value lists the
 * other members with their keys. */
static void add_element(struct facts *facts, const char *section, const char *object)
{
    char name[KEY_BYTES] = "";
    char value[VALUE_BYTES] = "";
    const char *its = NULL;
    const char *key = json_next(object, NULL);
    for (bool first = true; key != NULL && (its = json_value(key)) != NULL; first = false) {
        char text[VALUE_BYTES];
        if (first) {
            json_text(its, name, sizeof(name));
        } else {
            append(value, sizeof(value), ", ", json_text(key, text, sizeof(text)));
            append(value, sizeof(value), " ", json_text(its, text, sizeof(text)));
        }
        key = json_next(object, its);
    }
    char numbered[KEY_BYTES + 16];
    snprintf(numbered, sizeof(numbered), "%s", name);
    for (unsigned number = 2; is_taken(facts, section, numbered); number++) {
        snprintf(numbered, sizeof(numbered), "%.30s (%u)", name, number);
    }
    facts_add(facts, section, numbered, "%s", value);
}

/* Texts of an array become one fact; objects one each, in a section with the array's name. */
static void add_array(struct facts *facts, const char *section, const char *key, const char *array)
{
    char texts[VALUE_BYTES] = "";
    for (const char *at = json_next(array, NULL); at != NULL; at = json_next(array, at)) {
        char text[VALUE_BYTES];
        if (*at == '{') {
            add_element(facts, key, at);
        } else {
            append(texts, sizeof(texts), " ", json_text(at, text, sizeof(text)));
        }
    }
    if (texts[0] != 0) {
        facts_add(facts, section, key, "%s", texts);
    }
}

void facts_add_json(struct facts *facts, const char *section, const char *json)
{
    const char *value = NULL;
    const char *at = json_next(json, NULL);
    while (at != NULL && (value = json_value(at)) != NULL) {
        char key[KEY_BYTES];
        char text[VALUE_BYTES];
        json_text(at, key, sizeof(key));
        if (*value == '[') {
            add_array(facts, section, key, value);
        } else {
            facts_add(facts, section, key, "%s", json_text(value, text, sizeof(text)));
        }
        at = json_next(json, value);
    }
}

/* ---- Printing ----------------------------------------------------------------------------- */

/* The next fact of the same section, or NULL. */
static const struct fact *section_next(const struct facts *facts, const struct fact *after)
{
    for (const struct fact *fact = after + 1; fact < facts->all + facts->count; fact++) {
        if (strcmp(fact->section, after->section) == 0) {
            return fact;
        }
    }
    return NULL;
}

static bool section_begins(const struct facts *facts, const struct fact *at)
{
    for (const struct fact *fact = facts->all; fact < at; fact++) {
        if (strcmp(fact->section, at->section) == 0) {
            return false;
        }
    }
    return true;
}

static void print_json(const struct facts *facts, const struct fact *first)
{
    fputs(first == facts->all ? "{" : "},\n ", stdout);
    json_quote(first->section, stdout);
    for (const struct fact *fact = first; fact != NULL; fact = section_next(facts, fact)) {
        fputs(fact == first ? ": {" : ", ", stdout);
        json_quote(fact->key, stdout);
        fputs(": ", stdout);
        json_quote(fact->value, stdout);
    }
}

static void print_page(const struct facts *facts, const struct fact *first, int width)
{
    printf("%s%s\n", first == facts->all ? "" : "\n", first->section);
    for (const struct fact *fact = first; fact != NULL; fact = section_next(facts, fact)) {
        printf("  %-*s  %s\n", width, fact->key, fact->value[0] != 0 ? fact->value : "-");
    }
}

bool facts_print(const struct facts *facts, bool as_json)
{
    int width = 0;
    for (size_t i = 0; i < facts->count; i++) {
        const int length = (int)strlen(facts->all[i].key);
        width = length > width ? length : width;
    }
    for (size_t i = 0; i < facts->count; i++) {
        if (section_begins(facts, &facts->all[i]) && as_json) {
            print_json(facts, &facts->all[i]);
        } else if (section_begins(facts, &facts->all[i])) {
            print_page(facts, &facts->all[i], width);
        }
    }
    if (as_json) {
        puts(facts->count > 0 ? "}}" : "{}");
    }
    return !facts->short_of_memory;
}
