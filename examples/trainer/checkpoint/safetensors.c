#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MOST ((size_t)100 << 20) /* the format's own limit */
#define WRITE_MOST ((size_t)1 << 20)
#define NAME_MOST ((size_t)4096)

static size_t type_bytes(const char *type)
{
    return strcmp(type, "U8") == 0 ? 1 : strcmp(type, "I64") == 0 ? 8 : 4;
}

static size_t tensor_bytes(const struct safetensor *tensor)
{
    size_t bytes = type_bytes(tensor->type);
    for (int i = 0; i < tensor->dims; i++) {
        bytes *= (size_t)tensor->shape[i];
    }
    return bytes;
}

/* ---- Writing ------------------------------------------------------------------------------- */

static void header_tensor(FILE *to, const struct safetensor *tensor, size_t begin)
{
    fprintf(to, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name, tensor->type);
    for (int i = 0; i < tensor->dims; i++) {
        fprintf(to, "%s%d", i > 0 ? "," : "", tensor->shape[i]);
    }
    fprintf(to, "],\"data_offsets\":[%zu,%zu]}", begin, begin + tensor_bytes(tensor));
}

/* Makes the length and the header, padded with blanks to a multiple of eight bytes. The caller
 * frees it. NULL: no memory. */
static char *header_make(const struct safetensor *tensors, int tensor_count,
                         const struct safetensors_note *notes, int note_count, size_t *ret_bytes)
{
    char *text = NULL;
    size_t bytes = 0, begin = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) {
        return NULL;
    }
    fprintf(to, "%8s{\"__metadata__\":{", "");
    for (int i = 0; i < note_count; i++) {
        fprintf(to, "%s\"%s\":\"%s\"", i > 0 ? "," : "", notes[i].key, notes[i].value);
    }
    fprintf(to, "}");
    for (int i = 0; i < tensor_count; i++) {
        header_tensor(to, &tensors[i], begin);
        begin += tensor_bytes(&tensors[i]);
    }
    fprintf(to, "}");
    fflush(to);
    fprintf(to, "%*s", (int)((8 - bytes % 8) % 8), "");
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    const uint64_t length = bytes - sizeof(length);
    memcpy(text, &length, sizeof(length));
    *ret_bytes = bytes;
    return text;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t wrote = write(fd, at, bytes < WRITE_MOST ? bytes : WRITE_MOST);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        at += wrote < 0 ? 0 : wrote;
        bytes -= wrote < 0 ? 0 : (size_t)wrote;
    }
    return true;
}

static bool write_file(int fd, const char *header, size_t header_bytes,
                       const struct safetensor *tensors, int tensor_count)
{
    if (!write_all(fd, header, header_bytes)) {
        return false;
    }
    for (int i = 0; i < tensor_count; i++) {
        if (!write_all(fd, tensors[i].data, tensor_bytes(&tensors[i]))) {
            return false;
        }
    }
    return fsync(fd) == 0;
}

/* Syncs the folder, so that the rename is on disk. If folders can't be synced nothing more can be
 * done. */
static void sync_folder(const char *path)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
    }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* Is this process the only one that writes the file? Another one may have renamed it meanwhile, so
 * the name must still lead to it. If files can't be locked that is all that is checked. */
static bool lock_beside(int fd, const char *beside)
{
    struct stat opened, there;
    return (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(fd, &opened) == 0 &&
           stat(beside, &there) == 0 && opened.st_ino == there.st_ino;
}

/* Opens the temporary file that will replace path, or, if path is a link, its target. -1: the
 * problem. */
static int open_beside(const char *path, char beside[NAME_MOST], char target[NAME_MOST],
                       struct problem *problem)
{
    struct stat status;
    char *real = realpath(path, NULL);
    if (real == NULL && lstat(path, &status) == 0) {
        problem_say(problem, "%s cannot be written: it is a link that leads to no file", path);
        return -1;
    }
    const size_t bytes = (size_t)snprintf(target, NAME_MOST, "%s", real != NULL ? real : path);
    free(real);
    if (bytes >= NAME_MOST || (size_t)snprintf(beside, NAME_MOST, "%s.tmp", target) >= NAME_MOST) {
        problem_say(problem, "a name of %zu characters is too long", bytes);
        return -1;
    }
    const int fd = open(beside, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    const bool locked = fd >= 0 && lock_beside(fd, beside);
    if (locked && ftruncate(fd, 0) == 0) {
        return fd;
    }
    problem_say(problem, "%s cannot be written: %s", path,
                fd < 0 || locked ? strerror(errno) : "another process is writing it");
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

bool safetensors_writable(const char *path, struct problem *problem)
{
    char beside[NAME_MOST], target[NAME_MOST];
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        return problem_say(problem, "%s cannot be written: it exists, but is not a regular file",
                           path);
    }
    const int fd = open_beside(path, beside, target, problem);
    if (fd >= 0) {
        unlink(beside);
        close(fd);
    }
    return fd >= 0;
}

bool safetensors_write(const char *path, const struct safetensor *tensors, int tensor_count,
                       const struct safetensors_note *notes, int note_count,
                       struct problem *problem)
{
    char beside[NAME_MOST], target[NAME_MOST];
    const int fd = open_beside(path, beside, target, problem);
    if (fd < 0) {
        return false;
    }
    size_t header_bytes = 0;
    char *header = header_make(tensors, tensor_count, notes, note_count, &header_bytes);
    const bool good = header != NULL &&
                      write_file(fd, header, header_bytes, tensors, tensor_count) &&
                      rename(beside, target) == 0;
    if (good) {
        sync_folder(target);
    } else {
        problem_say(problem, "%s cannot be written: %s", path, strerror(errno));
        unlink(beside);
    }
    free(header);
    close(fd); /* also unlocks, after the rename */
    return good;
}

/* ---- JSON, as much as headers need ----------------------------------------------------------- */

static const char *json_blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* The end of the string that begins at `at`; NULL: it has none. */
static const char *json_skip_string(const char *at)
{
    for (at++; *at != '"'; at += *at == '\\' && at[1] != '\0' ? 2 : 1) {
        if (*at == '\0') {
            return NULL;
        }
    }
    return at + 1;
}

/* The end of the value that begins at `at`; NULL: it has none, or there is no value. */
static const char *json_skip(const char *at)
{
    int depth = 0;
    if (strchr("}],:", *json_blank(at)) != NULL) {
        return NULL;
    }
    do {
        at = json_blank(at);
        if (*at == '\0') {
            return NULL;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        if (*at == '"') {
            at = json_skip_string(at);
        } else {
            at += strchr("{}[],:", *at) != NULL ? 1 : strcspn(at, ",:{}[]\" \t\r\n");
        }
    } while (at != NULL && depth > 0);
    return at;
}

struct json_member {
    const char *key, *value;
    size_t key_length;
};

/* Reads the next member of an object; at: the object's beginning, or the end of the member before.
 * Returns the member's end; NULL: no more members. */
static const char *json_next(const char *at, struct json_member *ret)
{
    at = json_blank(at);
    if (*at != '{' && *at != ',') {
        return NULL;
    }
    ret->key = json_blank(at + 1) + 1;
    at = ret->key[-1] == '"' ? json_skip(ret->key - 1) : NULL;
    if (at == NULL || *json_blank(at) != ':') {
        return NULL;
    }
    ret->key_length = (size_t)(at - 1 - ret->key);
    ret->value = json_blank(json_blank(at) + 1);
    return json_skip(ret->value);
}

static bool json_has_key(const struct json_member *member, const char *key)
{
    return member->key_length == strlen(key) && strncmp(member->key, key, strlen(key)) == 0;
}

/* The value of a key of an object; NULL: none. Keys are compared as written, with escapes. */
static const char *json_value(const char *object, const char *key)
{
    struct json_member member;
    for (const char *at = object; *json_blank(object) == '{' && at != NULL;) {
        at = json_next(at, &member);
        if (at != NULL && json_has_key(&member, key)) {
            return member.value;
        }
    }
    return NULL;
}

static bool json_is_string(const char *value, const char *expected)
{
    const size_t length = strlen(expected);
    return value != NULL && value[0] == '"' && strncmp(value + 1, expected, length) == 0 &&
           value[1 + length] == '"';
}

/* ---- Reading ------------------------------------------------------------------------------- */

static bool read_all(FILE *from, void *data, size_t bytes)
{
    return fread(data, 1, bytes, from) == bytes;
}

/* Where in the data a tensor lies. */
static bool tensor_place(const char *tensor, unsigned long long *begin, unsigned long long *end)
{
    const char *offsets = json_value(tensor, "data_offsets");
    return offsets != NULL && sscanf(offsets, "[%llu ,%llu", begin, end) == 2;
}

struct place {
    unsigned long long begin, end;
};

static int place_compare(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    const int order = (p->begin > q->begin) - (p->begin < q->begin);
    return order != 0 ? order : (p->end > q->end) - (p->end < q->end);
}

/* The tensors must be contiguous and make up all the data: else some would read data of others. */
static bool check_places(const struct safetensors *file, size_t length, struct problem *problem)
{
    struct place *places = calloc(length / sizeof("\"\":{data_offsets") + 1, sizeof(*places));
    unsigned long long end = 0;
    size_t count = 0, i = 0;
    struct json_member member;
    if (places == NULL) {
        return problem_say(problem, "%s: no memory for its header", file->path);
    }
    for (const char *at = json_next(file->header, &member); at != NULL;
         at = json_next(at, &member)) {
        count += !json_has_key(&member, "__metadata__") &&
                 tensor_place(member.value, &places[count].begin, &places[count].end);
    }
    qsort(places, count, sizeof(*places), place_compare);
    while (i < count && places[i].begin == end && places[i].end >= end) {
        end = places[i++].end;
    }
    free(places);
    return (i == count && end == file->data_bytes) ||
           problem_say(problem,
                       "%s: damaged: its tensors do not fill its %zu bytes of data one after the "
                       "other: see byte %llu",
                       file->path, file->data_bytes, end);
}

/* The header must be exactly one object: else its length is wrong, and all data would be read from
 * the wrong offset. */
static bool check_header(const struct safetensors *file, size_t length, struct problem *problem)
{
    const char *end = file->header[0] == '{' ? json_skip(file->header) : NULL;
    return (end != NULL && json_blank(end) == file->header + length) ||
           problem_say(problem,
                       "%s: not a safetensors file, or a damaged one: its header is no JSON object "
                       "of %zu bytes",
                       file->path, length);
}

static bool read_parts(struct safetensors *file, FILE *from, size_t file_bytes,
                       struct problem *problem)
{
    uint64_t length = 0;
    if (!read_all(from, &length, sizeof(length)) || length > HEADER_MOST ||
        length > file_bytes - sizeof(length)) {
        return problem_say(
            problem,
            "%s: not a safetensors file, or a damaged one: its header should have %llu bytes",
            file->path, (unsigned long long)length);
    }
    file->data_bytes = file_bytes - sizeof(length) - (size_t)length;
    file->header = calloc(1, (size_t)length + 1);
    file->data = malloc(file->data_bytes + 1);
    if (file->header == NULL || file->data == NULL) {
        return problem_say(problem, "%s: no memory for %zu bytes", file->path, file_bytes);
    }
    if (!read_all(from, file->header, (size_t)length) ||
        !read_all(from, file->data, file->data_bytes)) {
        return problem_say(problem, "%s: %s", file->path, strerror(errno));
    }
    return check_header(file, (size_t)length, problem) &&
           check_places(file, (size_t)length, problem);
}

bool safetensors_read(struct safetensors *file, const char *path, struct problem *problem)
{
    *file = (struct safetensors){.path = path};
    FILE *from = fopen(path, "rbe");
    struct stat status;
    if (from == NULL || fstat(fileno(from), &status) != 0) {
        problem_say(problem, "%s: %s", path, strerror(errno));
        if (from != NULL) {
            fclose(from);
        }
        return false;
    }
    const bool good = S_ISREG(status.st_mode)
                          ? read_parts(file, from, (size_t)status.st_size, problem)
                          : problem_say(problem, "%s: it exists, but is not a regular file", path);
    fclose(from);
    return good;
}

void safetensors_free(struct safetensors *file)
{
    free(file->header);
    free(file->data);
    *file = (struct safetensors){0};
}

const void *safetensors_find(const struct safetensors *file, const char *name, const char *type,
                             size_t count, struct problem *problem)
{
    const char *tensor = json_value(file->header, name);
    unsigned long long begin = 0, end = 0;
    if (tensor == NULL || !tensor_place(tensor, &begin, &end)) {
        problem_say(problem, "%s: it has no tensor %s", file->path, name);
        return NULL;
    }
    if (!json_is_string(json_value(tensor, "dtype"), type) ||
        end - begin != count * type_bytes(type)) {
        problem_say(problem, "%s: %s has %llu bytes, expected %zu elements of %s", file->path, name,
                    end - begin, count, type);
        return NULL;
    }
    if (begin % type_bytes(type) != 0) {
        problem_say(problem, "%s: damaged: %s lies at bytes %llu to %llu of %zu", file->path, name,
                    begin, end, file->data_bytes);
        return NULL;
    }
    return file->data + begin;
}

bool safetensors_has_shape(const struct safetensors *file, const char *name, int dims,
                           const int *shape)
{
    const char *tensor = json_value(file->header, name);
    const char *at = tensor == NULL ? NULL : json_value(tensor, "shape");
    bool same = at != NULL && *at == '[';
    for (int i = 0; same && i < dims; i++) {
        char *end = NULL;
        same = strtol(at + 1, &end, 10) == shape[i] && end != at + 1; /* skips blanks */
        at = json_blank(end);
        same = same && (i == dims - 1 || *at == ',');
    }
    return same && *json_blank(dims == 0 ? at + 1 : at) == ']';
}

bool safetensors_note(const struct safetensors *file, const char *key, char *ret, size_t bytes)
{
    const char *notes = json_value(file->header, "__metadata__");
    const char *value = notes == NULL ? NULL : json_value(notes, key);
    if (value == NULL || value[0] != '"') {
        return false;
    }
    snprintf(ret, bytes, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
    return true;
}
