/*
 * The log. A line is
 *
 *     host:pid:tid [rank] LEVEL subsystem: text
 *
 * with [rank] if the launcher set RANK. Each line is one write(2) of at most PIPE_BUF bytes, so
 * lines of processes that share a file, a pipe or a terminal are not interleaved. Quoted text
 * cannot forge a line, because control characters become spaces.
 *
 * Parsing the settings does not log. What was wrong in them is written at the first use of the log,
 * once log_prepare() has run; log_prepare() itself must not call hoop_log().
 */
#include "base/log.h"
#include "base/settings.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINE_BYTES 2048
#define LOG_HOST_BYTES 65
#define LOG_RANK_DIGITS 10

/* log_levels has 4 bits per subsystem, for its most verbose level; the top bit: it is valid. */
#define LOG_LEVEL_BITS 4
#define LOG_LEVEL_MASK 0xfu
#define LOG_VALID 0x80000000u

static_assert(LOG_LINE_BYTES <= PIPE_BUF, "a pipe would tear lines");
static_assert(HOOP_LOG_SUBSYSTEM_COUNT * LOG_LEVEL_BITS < 32, "log_levels is full");

static const char *const log_subsystem_names[] = {
#define LOG_NAME(name, text) [name] = (text),
    HOOP_LOG_SUBSYSTEMS(LOG_NAME)
#undef LOG_NAME
};

static const char *const log_level_names[] = {
    [HOOP_LOG_NONE] = "NONE", [HOOP_LOG_ERROR] = "ERROR", [HOOP_LOG_WARN] = "WARN",
    [HOOP_LOG_INFO] = "INFO", [HOOP_LOG_TRACE] = "TRACE",
};

static pthread_once_t log_once = PTHREAD_ONCE_INIT;

/* log_prepare() sets it by a release store: whoever sees LOG_VALID also sees log_sink. */
static atomic_uint log_levels;

/* Written by log_prepare(), read-only once log_levels is valid. */
static struct {
    int fd;
    char host[LOG_HOST_BYTES];
    char rank[LOG_RANK_DIGITS + 5]; /* "[12] " or "" */
} log_sink = {.fd = STDERR_FILENO};

/*
 * Held for reading while the callback runs, so that a replaced callback is never called again.
 * Readers do not exclude each other: if a callback waits for a lock of the program, other threads
 * that hold this lock can still log.
 */
static pthread_rwlock_t log_callback_lock = PTHREAD_RWLOCK_INITIALIZER;
static hoop_log_fn_t log_callback;
static void *log_callback_arg;

/* Writes "host:pid:tid [rank] LEVEL subsystem: " and returns its length. */
static size_t log_prefix(char line[LOG_LINE_BYTES], hoop_log_level_t level,
                         enum hoop_log_subsystem subsystem)
{
    const int length = snprintf(line, LOG_LINE_BYTES, "%s:%d:%d %s%s %s: ", log_sink.host,
                                (int)getpid(), (int)gettid(), log_sink.rank, log_level_names[level],
                                log_subsystem_names[subsystem]);
    return length > 0 ? (size_t)length : 0;
}

static void log_write(const char *line, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t written = write(log_sink.fd, line, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return; /* there is nobody to report this to */
        }
        line += written;
        bytes -= (size_t)written;
    }
}

HOOP_PRINTF(3, 0)
static void log_deliver(hoop_log_level_t level, enum hoop_log_subsystem subsystem,
                        const char *format, va_list args)
{
    const int saved_errno = errno;
    char line[LOG_LINE_BYTES];
    const size_t head = log_prefix(line, level, subsystem);
    char *text = line + head;
    errno = saved_errno; /* the format may use %m */
    const size_t length = hoop_text_format(text, sizeof(line) - head - 1, format, args);
    pthread_rwlock_rdlock(&log_callback_lock);
    const bool called = log_callback != NULL;
    if (called) {
        log_callback(log_callback_arg, level, log_subsystem_names[subsystem], text);
    }
    pthread_rwlock_unlock(&log_callback_lock);
    if (!called) {
        text[length] = '\n';
        log_write(line, head + length + 1);
    }
    errno = saved_errno;
}

/* Writes a warning from log_prepare(), which must not call hoop_log(). */
HOOP_PRINTF(2, 3)
static void log_complain(int level, const char *format, ...)
{
    if (level < HOOP_LOG_WARN) {
        return;
    }
    va_list args;
    va_start(args, format);
    log_deliver(HOOP_LOG_WARN, HOOP_LOG_ENV, format, args);
    va_end(args);
}

static void log_find_host(void)
{
    if (gethostname(log_sink.host, sizeof(log_sink.host)) != 0) {
        memcpy(log_sink.host, "?", 2);
    }
    log_sink.host[sizeof(log_sink.host) - 1] = '\0';
    log_sink.host[strcspn(log_sink.host, ".")] = '\0';
}

static void log_find_rank(void)
{
    const char *rank = getenv("RANK");
    if (rank == NULL) {
        return;
    }
    const size_t digits = strspn(rank, "0123456789");
    if (digits > 0 && digits <= LOG_RANK_DIGITS && rank[digits] == '\0') {
        snprintf(log_sink.rank, sizeof(log_sink.rank), "[%s] ", rank);
    }
}

/* Expands %h and %p in pattern. Returns false if the path does not fit. */
static bool log_expand(const char *pattern, char *ret_path, size_t bytes)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    size_t used = 0;
    for (const char *p = pattern; *p != '\0'; p++) {
        const char *from = p;
        size_t length = 1;
        if (p[0] == '%' && (p[1] == 'h' || p[1] == 'p' || p[1] == '%')) {
            from = p[1] == 'h' ? log_sink.host : p[1] == 'p' ? pid : "%";
            length = strlen(from);
            p++;
        }
        if (length >= bytes - used) {
            return false;
        }
        memcpy(ret_path + used, from, length);
        used += length;
    }
    ret_path[used] = '\0';
    return true;
}

/*
 * The file's name can be guessed and its directory may be writable by all. So a symbolic link is
 * not followed, except in /dev, where /dev/stderr and its like lead to this process's descriptors.
 * A pipe stays non-blocking: a slow reader loses lines rather than stalls this process.
 */
static int log_open_file(const char *path)
{
    const int follow = strncmp(path, "/dev/", strlen("/dev/")) == 0 ? 0 : O_NOFOLLOW;
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const int fd = open(path, flags | follow, 0600);
    struct stat about;
    if (fd >= 0 && fstat(fd, &about) == 0 && !S_ISFIFO(about.st_mode)) {
        (void)fcntl(fd, F_SETFL, O_APPEND);
    }
    return fd;
}

static void log_open(const char *pattern, int level)
{
    char path[PATH_MAX];
    if (!log_expand(pattern, path, sizeof(path))) {
        log_complain(level,
                     "HOOP_DEBUG_FILE is longer than the %zu bytes of a path; the log "
                     "stays on stderr",
                     sizeof(path) - 1);
        return;
    }
    const int fd = log_open_file(path);
    if (fd < 0) {
        log_complain(level, "HOOP_DEBUG_FILE: cannot open %s: %s; the log stays on stderr", path,
                     hoop_errno_name(errno));
        return;
    }
    log_sink.fd = fd;
}

static int log_subsystem_find(const char *name, size_t length)
{
    for (int i = 0; i < HOOP_LOG_SUBSYSTEM_COUNT; i++) {
        if (strlen(log_subsystem_names[i]) == length &&
            memcmp(log_subsystem_names[i], name, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* The subsystems named in a comma list, as bits. Blanks around a name are allowed. */
static unsigned log_parse_subsystems(const char *list, int level)
{
    unsigned named = 0;
    while (*list != '\0') {
        list += strspn(list, ", ");
        const size_t length = strcspn(list, ", ");
        if (length == 0) {
            break;
        }
        const int found = log_subsystem_find(list, length);
        if (found >= 0) {
            named |= 1u << found;
        } else {
            log_complain(level,
                         "HOOP_DEBUG_SUBSYS: expected init, comm, net, mem, plan or env; there is "
                         "no subsystem \"%.*s\"",
                         (int)length, list);
        }
        list += length;
    }
    return named;
}

static void log_prepare(void)
{
    const struct hoop_settings *settings = hoop_settings();
    const int level = settings->debug;
    log_find_host();
    log_find_rank();
    if (settings->debug_file != NULL) {
        log_open(settings->debug_file, level);
    }
    const unsigned named =
        settings->debug_subsys != NULL ? log_parse_subsystems(settings->debug_subsys, level) : ~0u;
    unsigned levels = LOG_VALID;
    for (unsigned i = 0; i < HOOP_LOG_SUBSYSTEM_COUNT; i++) {
        const bool quiet = (named & 1u << i) == 0 && level > HOOP_LOG_WARN;
        levels |= (unsigned)(quiet ? HOOP_LOG_WARN : level) << (i * LOG_LEVEL_BITS);
    }
    /* pairs with the acquire in hoop_log_enabled() and publishes log_sink */
    atomic_store_explicit(&log_levels, levels, memory_order_release);
}

static void log_note(void *arg, const char *line)
{
    (void)arg;
    hoop_log(HOOP_LOG_WARN, HOOP_LOG_ENV, "%s", line);
}

void hoop_log_settings(void)
{
    int cancel = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_once(&log_once, log_prepare);
    hoop_settings_take_notes(log_note, NULL);
    pthread_setcancelstate(cancel, &cancel);
}

bool hoop_log_enabled(hoop_log_level_t level, enum hoop_log_subsystem subsystem)
{
    unsigned levels = atomic_load_explicit(&log_levels, memory_order_acquire);
    if ((levels & LOG_VALID) == 0) {
        hoop_log_settings();
        levels = atomic_load_explicit(&log_levels, memory_order_acquire);
    }
    const unsigned most = levels >> ((unsigned)subsystem * LOG_LEVEL_BITS) & LOG_LEVEL_MASK;
    return level > HOOP_LOG_NONE && (unsigned)level <= most;
}

void hoop_log(hoop_log_level_t level, enum hoop_log_subsystem subsystem, const char *format, ...)
{
    const int saved_errno = errno;
    if (hoop_log_enabled(level, subsystem)) {
        int cancel = 0;
        va_list args;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* logging takes locks */
        va_start(args, format);
        errno = saved_errno;
        log_deliver(level, subsystem, format, args);
        va_end(args);
        pthread_setcancelstate(cancel, &cancel);
    }
    errno = saved_errno;
}

void hoop_log_set_callback(hoop_log_fn_t fn, void *arg)
{
    pthread_rwlock_wrlock(&log_callback_lock);
    log_callback = fn;
    log_callback_arg = arg;
    pthread_rwlock_unlock(&log_callback_lock);
}
