#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MOST ((size_t)100 << 20) /* the format's own limit */
#define WRITE_MOST ((size_t)1 << 20)

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

/* The length, then the header with blanks to a multiple of eight; NULL: no memory. To be freed. */
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

/* The name itself lasts when its folder does. Where folders can't be synced there is no more to do.
 */
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

/* The file that becomes the one of this name. -1: the problem. */
static int open_beside(const char *path, char beside[4096], struct problem *problem)
{
    if ((size_t)snprintf(beside, 4096, "%s.tmp", path) >= 4096) {
        problem_say(problem, "a name of %zu characters is too long", strlen(path));
        return -1;
    }
    const int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        problem_say(problem, "%s can not be written: %s", path, strerror(errno));
    }
    return fd;
}

bool safetensors_writable(const char *path, struct problem *problem)
{
    char beside[4096];
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        return problem_say(problem, "%s can not be written: it is there, and no file", path);
    }
    const int fd = open_beside(path, beside, problem);
    if (fd >= 0) {
        close(fd);
        unlink(beside);
    }
    return fd >= 0;
}

bool safetensors_write(const char *path, const struct safetensor *tensors, int tensor_count,
                       const struct safetensors_note *notes, int note_count,
                       struct problem *problem)
{
    char beside[4096];
    const int fd = open_beside(path, beside, problem);
    if (fd < 0) {
        return false;
    }
    size_t header_bytes = 0;
    char *header = header_make(tensors, tensor_count, notes, note_count, &header_bytes);
    bool good = header != NULL && write_file(fd, header, header_bytes, tensors, tensor_count);
    free(header);
    good = close(fd) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        problem_say(problem, "%s can not be written: %s", path, strerror(errno));
        unlink(beside);
        return false;
    }
    sync_folder(path);
    return true;
}

/* ---- JSON, as much of it as a header has --------------------------------------------------- */

static const char *json_blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Behind the string that begins here; NULL: it has no end. */
static const char *json_skip_string(const char *at)
{
    for (at++; *at != '"'; at += *at == '\\' && at[1] != '\0' ? 2 : 1) {
        if (*at == '\0') {
            return NULL;
        }
    }
    return at + 1;
}

/* Behind the value that begins here; NULL: it has no end. */
static const char *json_skip(const char *at)
{
    int depth = 0;
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

/* The value of a key of the object that begins here; NULL: none. Keys are compared as written. */
static const char *json_member(const char *object, const char *key)
{
    const size_t length = strlen(key);
    const char *at = json_blank(object);
    if (*at++ != '{') {
        return NULL;
    }
    while (*(at = json_blank(at)) == '"') {
        const char *name = at + 1;
        at = json_skip(at);
        const bool found =
            at != NULL && (size_t)(at - 1 - name) == length && strncmp(name, key, length) == 0;
        if (at == NULL || *(at = json_blank(at)) != ':') {
            return NULL;
        }
        at = json_blank(at + 1);
        if (found) {
            return at;
        }
        at = json_skip(at);
        if (at == NULL || *(at = json_blank(at)) != ',') {
            return NULL;
        }
        at++;
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

static bool read_parts(struct safetensors *file, FILE *from, size_t file_bytes,
                       struct problem *problem)
{
    uint64_t length = 0;
    if (!read_all(from, &length, sizeof(length)) || length > HEADER_MOST ||
        length > file_bytes - sizeof(length)) {
        return problem_say(
            problem, "%s: no safetensors file, or a damaged one: its header should have %llu bytes",
            file->path, (unsigned long long)length);
    }
    file->data_bytes = file_bytes - sizeof(length) - (size_t)length;
    file->header = calloc(1, (size_t)length + 1);
    file->data = malloc(file->data_bytes + 1);
    if (file->header == NULL || file->data == NULL) {
        return problem_say(problem, "%s: no memory for %zu bytes", file->path, file_bytes);
    }
    return (read_all(from, file->header, (size_t)length) &&
            read_all(from, file->data, file->data_bytes)) ||
           problem_say(problem, "%s: %s", file->path, strerror(errno));
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
    const bool good = read_parts(file, from, (size_t)status.st_size, problem);
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
    const char *tensor = json_member(file->header, name);
    const char *offsets = tensor == NULL ? NULL : json_member(tensor, "data_offsets");
    unsigned long long begin = 0, end = 0;
    if (offsets == NULL || sscanf(offsets, "[%llu ,%llu", &begin, &end) != 2) {
        problem_say(problem, "%s: there is no tensor %s in it", file->path, name);
        return NULL;
    }
    if (!json_is_string(json_member(tensor, "dtype"), type) ||
        end - begin != count * type_bytes(type)) {
        problem_say(problem, "%s: %s has %llu bytes, and not %zu elements of %s", file->path, name,
                    end - begin, count, type);
        return NULL;
    }
    if (begin > end || end > file->data_bytes || begin % type_bytes(type) != 0) {
        problem_say(problem, "%s: damaged: %s lies at bytes %llu to %llu of %zu", file->path, name,
                    begin, end, file->data_bytes);
        return NULL;
    }
    return file->data + begin;
}

bool safetensors_note(const struct safetensors *file, const char *key, char *ret, size_t bytes)
{
    const char *notes = json_member(file->header, "__metadata__");
    const char *value = notes == NULL ? NULL : json_member(notes, key);
    if (value == NULL || value[0] != '"') {
        return false;
    }
    snprintf(ret, bytes, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
    return true;
}
