/*
 * The settings: the table as data, the parser for an environment, and the one parsed copy that is
 * in force in this process.
 *
 * Parsing never logs, because the log asks for settings before its first line. Reports are kept in
 * a list, which hoop_log_settings() takes and logs once the log is ready.
 */
#include "base/settings.h"
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#define SETTINGS_WORD_BYTES 24  /* a choice, or a number in decimal */
#define SETTINGS_LINE_BYTES 512 /* one report */
#define SETTINGS_NAME_BYTES 64  /* longer names are not compared with known ones */
#define SETTINGS_NEAR 3         /* most edits between a name and its correction */

enum setting_kind { SETTING_NUMBER, SETTING_CHOICE, SETTING_STRING, SETTING_SECRET };

/* One line of the table. */
struct setting {
    enum setting_kind kind;
    const char *name;
    const char *text;
    const char *range;  /* for a choice: its words, separated by blanks */
    const char *number; /* the default of a number, as text */
    size_t offset;      /* of the field in struct hoop_settings */
    uint64_t preset;    /* default: a number, or the index of a choice */
    uint64_t least;
    uint64_t most;
};

#define SETTINGS_AT(field) offsetof(struct hoop_settings, field)
#define SETTINGS_NUMBER(field, variable, preset, least, most, text)                                \
    {SETTING_NUMBER, variable, text, #least " to " #most, #preset, SETTINGS_AT(field),             \
     preset,         least,    most},
#define SETTINGS_CHOICE(field, variable, preset, choices, text)                                    \
    {SETTING_CHOICE, variable, text, choices, NULL, SETTINGS_AT(field), preset, 0, 0},
#define SETTINGS_STRING(field, variable, text)                                                     \
    {SETTING_STRING, variable, text, "any text", NULL, SETTINGS_AT(field), 0, 0, 0},
#define SETTINGS_SECRET(field, variable, text)                                                     \
    {SETTING_SECRET, variable, text, "64 hexadecimal digits", NULL, SETTINGS_AT(field), 0, 0, 0},

static const struct setting settings_table[] = {
    HOOP_SETTINGS(SETTINGS_NUMBER, SETTINGS_CHOICE, SETTINGS_STRING, SETTINGS_SECRET)};

#define SETTINGS_COUNT (sizeof(settings_table) / sizeof(settings_table[0]))
static_assert(SETTINGS_COUNT <= 64, "from_environment has a bit for every line");

#define SETTINGS_ALGO_NAME(value, name) [value] = (name),
static const char *const settings_algo_names[HOOP_ALGO_COUNT] = {[HOOP_ALGO_AUTO] = "auto",
                                                                 HOOP_ALGOS(SETTINGS_ALGO_NAME)};

/* A report that waits to be logged. */
struct settings_note {
    struct settings_note *next;
    char line[];
};

/* Written by settings_load(), read after settings_once. */
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static struct hoop_settings settings_in_force;
static char settings_presets[SETTINGS_COUNT][SETTINGS_WORD_BYTES];

/* Reports not yet logged, published by a release store. Whoever takes them logs them. */
static struct settings_note *_Atomic settings_notes;

static _Thread_local char settings_value[SETTINGS_WORD_BYTES];

/* ---- Reports ------------------------------------------------------------------------------ */

struct settings_reporter {
    hoop_settings_report_fn_t fn;
    void *arg;
};

HOOP_PRINTF(2, 3)
static void settings_report(const struct settings_reporter *to, const char *format, ...)
{
    char line[SETTINGS_LINE_BYTES];
    va_list args;
    va_start(args, format);
    hoop_text_format(line, sizeof(line), format, args);
    va_end(args);
    to->fn(to->arg, line);
}

static size_t settings_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance (insertions, removals, replacements) of two names below SETTINGS_NAME_BYTES. */
static size_t settings_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[SETTINGS_NAME_BYTES];
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 0; i < a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            const size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = settings_least(replaced, settings_least(row[j], diagonal) + 1);
        }
    }
    return row[b_length];
}

/* The known name that was probably meant, or NULL. */
static const char *settings_nearest(const char *name, size_t length)
{
    if (length >= SETTINGS_NAME_BYTES) {
        return NULL;
    }
    const char *nearest = NULL;
    size_t best = SETTINGS_NEAR + 1;
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const char *known = settings_table[i].name;
        const size_t distance = settings_distance(name, length, known, strlen(known));
        if (distance < best) {
            best = distance;
            nearest = known;
        }
    }
    return nearest;
}

static bool settings_known(const char *name, size_t length)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const char *known = settings_table[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            return true;
        }
    }
    return false;
}

static void settings_report_unknown(char *const *env, const struct settings_reporter *to)
{
    for (; *env != NULL; env++) {
        const char *end = strchr(*env, '=');
        if (end == NULL || strncmp(*env, "HOOP_", 5) != 0 || strncmp(*env, "HOOP_TEST_", 10) == 0) {
            continue;
        }
        const size_t length = (size_t)(end - *env);
        if (settings_known(*env, length)) {
            continue;
        }
        const char *nearest = settings_nearest(*env, length);
        if (nearest != NULL) {
            settings_report(to, "%.*s is not a setting of hoop; did you mean %s?", (int)length,
                            *env, nearest);
        } else {
            settings_report(to, "%.*s is not a setting of hoop; `hoopinfo --settings` lists them",
                            (int)length, *env);
        }
    }
}

/* ---- Values ------------------------------------------------------------------------------- */

static bool setting_in_bytes(const struct setting *s)
{
    static const char suffix[] = "_BYTES";
    const size_t length = strlen(s->name);
    return length >= sizeof(suffix) && strcmp(s->name + length - (sizeof(suffix) - 1), suffix) == 0;
}

/* The shift that a binary suffix stands for; -1 if it is not one. */
static int settings_shift(const char *suffix)
{
    if (suffix[0] == '\0') {
        return 0;
    }
    if (suffix[1] != '\0') {
        return -1;
    }
    switch (suffix[0]) {
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    default:
        return -1;
    }
}

/* Digits, then a suffix if one is allowed. Not strtoull(), which accepts blanks, signs and hex. */
static bool settings_parse_number(const char *value, bool suffix_allowed, uint64_t *ret_number)
{
    uint64_t number = 0;
    const char *p = value;
    for (; *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    const int shift = settings_shift(p);
    if (p == value || shift < 0 || (shift > 0 && !suffix_allowed) || number > UINT64_MAX >> shift) {
        return false;
    }
    *ret_number = number << shift;
    return true;
}

/* Copies the index-th word of choices; "" if there are fewer. */
static void settings_choice_word(const char *choices, uint64_t index,
                                 char ret_word[SETTINGS_WORD_BYTES])
{
    for (; index > 0 && *choices != '\0'; index--) {
        choices += strcspn(choices, " ");
        choices += strspn(choices, " ");
    }
    const size_t length = settings_least(strcspn(choices, " "), SETTINGS_WORD_BYTES - 1);
    memcpy(ret_word, choices, length);
    ret_word[length] = '\0';
}

/* The index of value among choices, ignoring case, since NCCL's values are capitals; -1 if none. */
static int settings_parse_choice(const char *choices, const char *value)
{
    const size_t value_length = strlen(value);
    for (int index = 0; *choices != '\0'; index++) {
        const size_t length = strcspn(choices, " ");
        if (length == value_length && strncasecmp(choices, value, length) == 0) {
            return index;
        }
        choices += length;
        choices += strspn(choices, " ");
    }
    return -1;
}

static void *setting_field(const struct setting *s, struct hoop_settings *settings)
{
    return (char *)settings + s->offset;
}

static void setting_preset(const struct setting *s, struct hoop_settings *settings)
{
    void *field = setting_field(s, settings);
    switch (s->kind) {
    case SETTING_NUMBER:
        *(uint64_t *)field = s->preset;
        break;
    case SETTING_CHOICE:
        *(int *)field = (int)s->preset;
        break;
    case SETTING_STRING:
    case SETTING_SECRET:
        *(const char **)field = NULL;
        break;
    }
}

static bool setting_set_number(const struct setting *s, const char *value, uint64_t *ret_field,
                               const struct settings_reporter *to)
{
    const bool in_bytes = setting_in_bytes(s);
    uint64_t number;
    if (settings_parse_number(value, in_bytes, &number) && number >= s->least &&
        number <= s->most) {
        *ret_field = number;
        return true;
    }
    settings_report(to, "%s: expected a whole number, %s%s; using %s in place of \"%s\"", s->name,
                    s->range, in_bytes ? " (K, M or G may follow)" : "", s->number, value);
    return false;
}

/* Would its default leave in clear what another value would have encrypted? */
static bool setting_protects(const struct setting *s)
{
    return s->offset == SETTINGS_AT(check);
}

static bool setting_set_choice(const struct setting *s, const char *value, int *ret_field,
                               const struct settings_reporter *to)
{
    const int index = settings_parse_choice(s->range, value);
    if (index >= 0) {
        *ret_field = index;
        return true;
    }
    char word[SETTINGS_WORD_BYTES];
    settings_choice_word(s->range, s->preset, word);
    settings_report(to, "%s: expected one of: %s; %s %s in place of \"%s\"", s->name, s->range,
                    setting_protects(s) ? "ranks do not join with" : "using", word, value);
    return false;
}

/* An empty secret counts as set: it must be refused, and not let the job go on without a secret. */
static bool setting_set_string(const struct setting *s, const char *value, const char **ret_field,
                               const struct settings_reporter *to)
{
    if (value[0] == '\0' && s->kind == SETTING_STRING) {
        return false;
    }
    *ret_field = strdup(value);
    if (*ret_field == NULL) {
        settings_report(to, "%s: out of memory for its value; using none", s->name);
    }
    return *ret_field != NULL;
}

/* Returns false, with the field unchanged, if the value was not accepted. */
static bool setting_set(const struct setting *s, const char *value, struct hoop_settings *settings,
                        const struct settings_reporter *to)
{
    void *field = setting_field(s, settings);
    switch (s->kind) {
    case SETTING_NUMBER:
        return setting_set_number(s, value, field, to);
    case SETTING_CHOICE:
        return setting_set_choice(s, value, field, to);
    case SETTING_STRING:
    case SETTING_SECRET:
        return setting_set_string(s, value, field, to);
    }
    return false;
}

static const char *settings_find(char *const *env, const char *name)
{
    const size_t length = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') {
            return *env + length + 1;
        }
    }
    return NULL;
}

void hoop_settings_parse(char *const *env, struct hoop_settings *ret_settings,
                         hoop_settings_report_fn_t report, void *arg)
{
    const struct settings_reporter to = {report, arg};
    memset(ret_settings, 0, sizeof(*ret_settings));
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting *s = &settings_table[i];
        setting_preset(s, ret_settings);
        const char *value = settings_find(env, s->name);
        if (value == NULL) {
            continue;
        }
        if (setting_set(s, value, ret_settings, &to)) {
            ret_settings->from_environment |= UINT64_C(1) << i;
        } else if (setting_protects(s)) {
            (void)snprintf(ret_settings->refused, sizeof(ret_settings->refused),
                           "%s is \"%.40s\", expected one of: %s", s->name, value, s->range);
            hoop_text_clean(ret_settings->refused);
        }
    }
    settings_report_unknown(env, &to);
}

hoop_result_t hoop_settings_accepted(const struct hoop_settings *settings)
{
    return settings->refused[0] == '\0'
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_ARGUMENT, "%s", settings->refused);
}

void hoop_settings_finish(struct hoop_settings *settings)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting *s = &settings_table[i];
        if (s->kind == SETTING_STRING || s->kind == SETTING_SECRET) {
            const char **field = setting_field(s, settings);
            free((void *)*field);
            *field = NULL;
        }
    }
}

/* ---- In force ----------------------------------------------------------------------------- */

struct settings_note_list {
    struct settings_note *first;
    struct settings_note **end;
};

/* If there is no memory the report is lost, but the default is in force all the same. */
static void settings_keep_note(void *arg, const char *line)
{
    struct settings_note_list *list = arg;
    const size_t bytes = strlen(line) + 1;
    struct settings_note *note = malloc(sizeof(*note) + bytes);
    if (note == NULL) {
        return;
    }
    note->next = NULL;
    memcpy(note->line, line, bytes);
    *list->end = note;
    list->end = &note->next;
}

static bool settings_names_file(const char *name)
{
    return strcmp(name, "HOOP_CUDA") == 0 || strcmp(name, "HOOP_DEBUG_FILE") == 0 ||
           strcmp(name, "HOOP_PROFILE") == 0;
}

/*
 * A program with more rights than its user (setuid) must not load, write or quote a file that the
 * user chose. Secrets and what tells jobs apart may come from the user.
 */
static void settings_distrust(struct hoop_settings *settings, struct settings_note_list *notes)
{
    char line[SETTINGS_LINE_BYTES];
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting *s = &settings_table[i];
        const uint64_t bit = UINT64_C(1) << i;
        if ((settings->from_environment & bit) != 0 && settings_names_file(s->name)) {
            const char **field = setting_field(s, settings);
            free((void *)*field);
            *field = NULL;
            settings->from_environment &= ~bit;
            (void)snprintf(line, sizeof(line),
                           "%s is ignored: this program has more rights than its user", s->name);
            settings_keep_note(notes, line);
        }
    }
}

static void settings_load(void)
{
    static char *const nothing[] = {NULL};
    struct settings_note_list list = {.first = NULL, .end = &list.first};
    hoop_settings_parse(environ != NULL ? environ : nothing, &settings_in_force, settings_keep_note,
                        &list);
    if (getauxval(AT_SECURE) != 0) {
        settings_distrust(&settings_in_force, &list);
    }
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting *s = &settings_table[i];
        if (s->kind == SETTING_CHOICE) {
            settings_choice_word(s->range, s->preset, settings_presets[i]);
        } else if (s->kind == SETTING_NUMBER) {
            snprintf(settings_presets[i], SETTINGS_WORD_BYTES, "%s", s->number);
        }
    }
    atomic_store_explicit(&settings_notes, list.first, memory_order_release);
}

void hoop_settings_take_notes(hoop_settings_report_fn_t report, void *arg)
{
    (void)hoop_settings();
    struct settings_note *note =
        atomic_exchange_explicit(&settings_notes, NULL, memory_order_acquire);
    while (note != NULL) {
        struct settings_note *next = note->next;
        report(arg, note->line);
        free(note);
        note = next;
    }
}

const struct hoop_settings *hoop_settings(void)
{
    pthread_once(&settings_once, settings_load);
    return &settings_in_force;
}

static const char *setting_show(const struct setting *s, const struct hoop_settings *settings)
{
    const void *field = (const char *)settings + s->offset;
    switch (s->kind) {
    case SETTING_NUMBER:
        snprintf(settings_value, sizeof(settings_value), "%" PRIu64, *(const uint64_t *)field);
        return settings_value;
    case SETTING_CHOICE:
        settings_choice_word(s->range, (uint64_t) * (const int *)field, settings_value);
        return settings_value;
    case SETTING_STRING:
    case SETTING_SECRET:
        break;
    }
    const char *value = *(const char *const *)field;
    if (value == NULL) {
        return "";
    }
    return s->kind == SETTING_SECRET ? "(set)" : value;
}

hoop_result_t hoop_settings_next(size_t *cursor, hoop_setting_t *ret_setting)
{
    assert(cursor != NULL && ret_setting != NULL);
    const size_t i = *cursor;
    if (i >= SETTINGS_COUNT) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "cursor is %zu: there are %zu settings", i,
                          SETTINGS_COUNT);
    }
    const struct hoop_settings *settings = hoop_settings();
    const struct setting *s = &settings_table[i];
    const bool set = (settings->from_environment >> i & 1) != 0;
    *ret_setting = (hoop_setting_t){
        .name = s->name,
        .text = s->text,
        .range = s->range,
        .preset = settings_presets[i],
        .value = setting_show(s, settings),
        .origin = set ? "environment" : "default",
    };
    *cursor = i + 1;
    return HOOP_OK;
}

/* ---- What all ranks have alike ------------------------------------------------------------ */

#define AGREED_NUMBER(field, variable, preset, least, most, text)                                  \
    {variable, "", offsetof(struct hoop_agreement, field)},
#define AGREED_CHOICE(field, variable, preset, choices, text)                                      \
    {variable, choices, offsetof(struct hoop_agreement, field)},

static const struct agreed {
    const char *name, *choices; /* "" for a number */
    size_t offset;
} settings_agreed[] = {HOOP_SETTINGS_AGREED(AGREED_NUMBER, AGREED_CHOICE)};

struct hoop_agreement hoop_settings_agreement(const struct hoop_settings *settings)
{
#define AGREED_TAKE(field, ...) .field = (uint64_t)settings->field,
    return (struct hoop_agreement){HOOP_SETTINGS_AGREED(AGREED_TAKE, AGREED_TAKE)};
#undef AGREED_TAKE
}

static uint64_t agreed_value(const struct agreed *of, const struct hoop_agreement *agreement)
{
    uint64_t value;
    memcpy(&value, (const char *)agreement + of->offset, sizeof(value));
    return value;
}

/* The word of a choice; of a profile, which has no row, the digest. The number, if the setting is
 * one or another rank sent an invalid index. */
static void agreed_show(const struct agreed *of, uint64_t value, char ret[SETTINGS_WORD_BYTES])
{
    if (of != NULL) {
        settings_choice_word(of->choices, value, ret);
    }
    if (value == HOOP_UNUSABLE || (of == NULL && value == 0)) {
        snprintf(ret, SETTINGS_WORD_BYTES, value == 0 ? "unset" : "unusable");
    } else if (of == NULL) {
        snprintf(ret, SETTINGS_WORD_BYTES, "%016" PRIx64, value);
    } else if (ret[0] == '\0') {
        snprintf(ret, SETTINGS_WORD_BYTES, "%" PRIu64, value);
    }
}

bool hoop_agreement_differs(const struct hoop_agreement *a, const struct hoop_agreement *b,
                            struct hoop_difference *ret)
{
    static_assert(sizeof(ret->a) == SETTINGS_WORD_BYTES, "a difference has room for any word");
    for (size_t i = 0; i < sizeof(settings_agreed) / sizeof(settings_agreed[0]); i++) {
        const struct agreed *of = &settings_agreed[i];
        if (agreed_value(of, a) != agreed_value(of, b)) {
            ret->name = of->name;
            agreed_show(of, agreed_value(of, a), ret->a);
            agreed_show(of, agreed_value(of, b), ret->b);
            return true;
        }
    }
    if (a->profile != b->profile) {
        ret->name = "HOOP_PROFILE";
        agreed_show(NULL, a->profile, ret->a);
        agreed_show(NULL, b->profile, ret->b);
        return true;
    }
    return false;
}

const char *hoop_algo_name(enum hoop_algo algo)
{
    return (unsigned)algo < HOOP_ALGO_COUNT ? settings_algo_names[algo] : "?";
}

enum hoop_algo hoop_algo_parse(const char *name)
{
    const int found = settings_parse_choice(HOOP_ALGO_WORDS, name);
    return found < 0 ? HOOP_ALGO_COUNT : (enum hoop_algo)found;
}
