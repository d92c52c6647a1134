/* See profile.h. */
#include "cost/profile.h"

#include "base/settings.h"
#include "runtime/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Upper limits (10 ms, 100 MB/s); beyond them a measurement has gone wrong. */
#define PROFILE_MOST_NS 10000000u
#define PROFILE_MOST_NS_PER_KIB 10000u

/* most 0: a text, which is ignored. */
struct profile_key {
    const char *name;
    size_t offset; /* in struct hoop_profile */
    uint64_t least, most;
};

#define PROFILE_AT(class, field) offsetof(struct hoop_profile, memory[class].field)
#define PROFILE_CLASS(class, word)                                                                 \
    {word "_sync_ns", PROFILE_AT(class, sync), 1, PROFILE_MOST_NS},                                \
        {word "_sync_ns_per_rank", PROFILE_AT(class, sync_per), 0, PROFILE_MOST_NS},               \
        {word "_barrier_ns", PROFILE_AT(class, barrier), 1, PROFILE_MOST_NS},                      \
        {word "_barrier_ns_per_rank", PROFILE_AT(class, barrier_per), 0, PROFILE_MOST_NS},         \
        {word "_moved_ns_per_kib", PROFILE_AT(class, moved), 1, PROFILE_MOST_NS_PER_KIB},          \
        {word "_folded_ns_per_kib", PROFILE_AT(class, folded), 1, PROFILE_MOST_NS_PER_KIB},        \
        {word "_call_ns", PROFILE_AT(class, call), 1, PROFILE_MOST_NS},                            \
        {word "_read_ns_per_kib", PROFILE_AT(class, read), 1, PROFILE_MOST_NS_PER_KIB},

static const struct profile_key profile_keys[] = {
    {"version", offsetof(struct hoop_profile, version), HOOP_PROFILE_VERSION, HOOP_PROFILE_VERSION},
    {"machine", 0, 0, 0},
    {"date", 0, 0, 0},
    {"hoop", 0, 0, 0},
    PROFILE_CLASS(HOOP_COST_MEMORY, "memory")
        PROFILE_CLASS(HOOP_COST_OVERSUBSCRIBED, "oversubscribed")};
#define PROFILE_KEYS (sizeof(profile_keys) / sizeof(profile_keys[0]))

struct profile_reader {
    const char *name;
    unsigned line;
    bool seen[PROFILE_KEYS];
    struct hoop_profile profile;
};

/* ---- Text ----------------------------------------------------------------------------------- */

/* Strips the blanks at both ends. */
static char *profile_trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && end[-1] == ' ') {
        *--end = '\0';
    }
    return text + strspn(text, " ");
}

/* Text of the file for an error message. A program with more rights than its caller may be pointed
 * at any file, so nothing is quoted until the version shows that the file is a profile. */
static const char *profile_quote(const struct profile_reader *reader, const char *text)
{
    return reader->profile.version == HOOP_PROFILE_VERSION ? text : "...";
}

/* Accepts digits only, and not too many. */
static bool profile_number(const char *text, uint64_t *ret)
{
    uint64_t number = 0;
    const size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits && digits <= 12; i++) {
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = number;
    return digits > 0 && digits <= 12 && text[digits] == '\0';
}

static hoop_result_t profile_value(struct profile_reader *reader, const struct profile_key *key,
                                   const char *value)
{
    uint64_t number = 0;
    const bool fixed = key->least == key->most;
    if (key->most == 0 || (!fixed && strcmp(value, "default") == 0)) {
        return HOOP_OK;
    }
    if (profile_number(value, &number) && number >= key->least && number <= key->most) {
        memcpy((char *)&reader->profile + key->offset, &number, sizeof(number));
        return HOOP_OK;
    }
    if (fixed) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.160s, line %u: %s is \"%.40s\", expected %llu, which this hoop reads: "
                          "hoopinfo --calibrate makes a new profile",
                          reader->name, reader->line, key->name, profile_quote(reader, value),
                          (unsigned long long)key->most);
    }
    return hoop_error(HOOP_INVALID_USAGE,
                      "%.160s, line %u: %s is \"%.40s\", expected default or a whole number from "
                      "%llu to %llu",
                      reader->name, reader->line, key->name, profile_quote(reader, value),
                      (unsigned long long)key->least, (unsigned long long)key->most);
}

static hoop_result_t profile_pair(struct profile_reader *reader, const char *name,
                                  const char *value)
{
    for (size_t i = 0; i < PROFILE_KEYS; i++) {
        if (strcmp(profile_keys[i].name, name) == 0 && reader->seen[i]) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "%.160s, line %u: %s is set a second time, expected once",
                              reader->name, reader->line, name);
        }
        if (strcmp(profile_keys[i].name, name) == 0) {
            reader->seen[i] = true;
            return profile_value(reader, &profile_keys[i], value);
        }
    }
    return hoop_error(HOOP_INVALID_USAGE, "%.160s, line %u: \"%.40s\" is not a key of a profile",
                      reader->name, reader->line, profile_quote(reader, name));
}

static hoop_result_t profile_line(struct profile_reader *reader, char *line, size_t bytes)
{
    if (strlen(line) != bytes) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%.160s, line %u holds a NUL byte, expected key = value", reader->name,
                          reader->line);
    }
    hoop_text_clean(line);
    char *name = profile_trim(line);
    char *value = strchr(name, '=');
    if (name[0] == '\0' || name[0] == '#') {
        return HOOP_OK;
    }
    if (value == NULL) {
        return hoop_error(HOOP_INVALID_USAGE, "%.160s, line %u: \"%.40s\", expected key = value",
                          reader->name, reader->line, profile_quote(reader, name));
    }
    *value = '\0';
    return profile_pair(reader, profile_trim(name), profile_trim(value + 1));
}

/* All keys are required, and every line has a newline: so a truncated file is noticed. */
static hoop_result_t profile_whole(const struct profile_reader *reader)
{
    for (size_t i = 0; i < PROFILE_KEYS; i++) {
        if (!reader->seen[i]) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "%.160s ends after line %u, expected %s as well: it may be cut off",
                              reader->name, reader->line, profile_keys[i].name);
        }
    }
    return HOOP_OK;
}

hoop_result_t hoop_profile_parse(const char *name, char *text, size_t bytes,
                                 struct hoop_profile *ret)
{
    struct profile_reader reader = {.name = name};
    hoop_result_t result = HOOP_OK;
    hoop_cost_get_memory(reader.profile.memory);
    text[bytes] = '\0';
    for (char *at = text, *end = NULL; result == HOOP_OK && at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + bytes - at));
        reader.line++;
        if (end == NULL) {
            return hoop_error(HOOP_INVALID_USAGE,
                              "%.160s, line %u does not end with a newline: it may be cut off",
                              name, reader.line);
        }
        *end = '\0';
        result = profile_line(&reader, at, (size_t)(end - at));
    }
    result = result == HOOP_OK ? profile_whole(&reader) : result;
    if (result == HOOP_OK) {
        *ret = reader.profile;
    }
    return result;
}

/* FNV-1a over the numbers of a profile. */
uint64_t hoop_profile_digest(const struct hoop_profile *profile)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < PROFILE_KEYS; i++) {
        uint64_t number = 0;
        if (profile_keys[i].most > 0) {
            memcpy(&number, (const char *)profile + profile_keys[i].offset, sizeof(number));
        }
        for (unsigned shift = 0; shift < 64; shift += 8) {
            hash = (hash ^ (number >> shift & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return hash != 0 ? hash : 1;
}

/* ---- In force ------------------------------------------------------------------------------- */

static pthread_mutex_t profile_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t profile_digest; /* under profile_lock; 0: no profile is in force */

static hoop_result_t profile_unreadable(const char *name, const char *why)
{
    return hoop_error(HOOP_INVALID_USAGE,
                      "%.200s: %s, expected a file that hoopinfo --calibrate wrote", name, why);
}

/* Opens without blocking, whatever the path leads to. */
static hoop_result_t profile_read(const char *name, const char *path, char *text, size_t room,
                                  size_t *ret_bytes)
{
    struct stat about;
    size_t bytes = 0;
    ssize_t got = 1;
    int err = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return profile_unreadable(name, hoop_errno_name(errno));
    }
    const bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    while (regular && err == 0 && got != 0 && bytes < room) {
        got = read(fd, text + bytes, room - bytes);
        err = got < 0 && errno != EINTR ? errno : 0;
        bytes += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (!regular || err != 0) {
        return profile_unreadable(name, regular ? hoop_errno_name(err) : "no regular file");
    }
    *ret_bytes = bytes;
    return bytes < room ? HOOP_OK : profile_unreadable(name, "more than 16 KiB");
}

static hoop_result_t profile_load(const char *path)
{
    const size_t room = HOOP_PROFILE_MOST_BYTES + 1;
    char *text = malloc(room + 1); /* not on the stack, which may be small */
    char name[256];
    struct hoop_profile profile;
    size_t bytes = 0;
    if (text == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for HOOP_PROFILE");
    }
    snprintf(name, sizeof(name), "HOOP_PROFILE %.200s", path);
    hoop_text_clean(name);
    hoop_result_t result = profile_read(name, path, text, room, &bytes);
    if (result == HOOP_OK) {
        result = hoop_profile_parse(name, text, bytes, &profile);
    }
    free(text);
    if (result == HOOP_OK) {
        hoop_cost_set_memory(profile.memory);
        profile_digest = hoop_profile_digest(&profile);
    }
    return result;
}

hoop_result_t hoop_profile_use(uint64_t *ret_digest)
{
    const char *path = hoop_settings()->profile;
    *ret_digest = 0;
    if (path == NULL) {
        return HOOP_OK;
    }
    if (hoop_is_forked()) {
        return hoop_forked_error(); /* another thread may have held the lock */
    }
    pthread_mutex_lock(&profile_lock);
    const hoop_result_t result = profile_digest == 0 ? profile_load(path) : HOOP_OK;
    *ret_digest = profile_digest;
    pthread_mutex_unlock(&profile_lock);
    return result;
}
