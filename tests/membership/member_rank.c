/* A rank of test_bootstrap and test_machines; see member_rank.h. */
#include "membership/member_rank.h"
#include "base/clock.h"
#include "membership/membership_inside.h"
#include "memory/region.h"
#include "runtime/process.h"
#include "runtime/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANK_WORDS 64u /* of the segment: pulses from 0 on, goodbyes from here on */

extern char **environ;

static _Atomic uint64_t *rank_words(const struct rank *rank)
{
    return hoop_member_roster(rank->member)->segment;
}

/* ---- Events as lines ---------------------------------------------------------------------- */

static void rank_lost(void *arg, uint32_t peer, const char *why)
{
    const struct rank *rank = arg;
    dprintf(rank->out, "lost %u %s\n", peer, why);
}

static void rank_fetched(const struct rank *rank, const struct hoop_event *event)
{
    const uint64_t process = hoop_member_roster(rank->member)->peers[event->rank].process;
    const hoop_result_t failed = event->failure.code;
    const char *content = failed != HOOP_OK ? event->failure.text : "unusable";
    void *base = NULL;
    uint64_t bytes = 0;
    if (failed == HOOP_OK &&
        hoop_region_use(process, event->id, event->part, &base, &bytes) == HOOP_OK) {
        content = base;
    }
    dprintf(rank->out, "fetched %u %" PRIu64 " %u %d %s\n", event->rank, event->id, event->part,
            (int)failed, content);
    if (base != NULL) {
        hoop_region_unuse(process, event->id, event->part);
    }
}

static void rank_event(void *arg, const struct hoop_event *event)
{
    const struct rank *rank = arg;
    if (event->kind == HOOP_EVENT_ANSWER) {
        rank_fetched(rank, event);
    } else { /* a blob: is it from the end that sends data? */
        dprintf(rank->out, "blob %u %" PRIu64 " %d %.*s\n", event->rank, event->id,
                event->part == 0, (int)event->blob.bytes, (const char *)event->blob.data);
    }
}

static void rank_beat(void *arg)
{
    struct rank *rank = arg;
    if (rank->inside) {
        rank_words(rank)[rank->join.rank]++;
    }
}

static uint64_t rank_pulse(void *arg, uint32_t peer)
{
    struct rank *rank = arg;
    return rank->inside ? rank_words(rank)[peer] : 0;
}

static uint32_t rank_left(void *arg, uint32_t peer)
{
    struct rank *rank = arg;
    return (rank->gone >> peer & 1) != 0 ||
                   (rank->inside && rank_words(rank)[RANK_WORDS + peer] != 0)
               ? HOOP_LEFT
               : 0;
}

static void rank_gone(void *arg, uint32_t peer, uint32_t how)
{
    struct rank *rank = arg;
    rank->gone |= 1ull << peer;
    dprintf(rank->out, how == HOOP_LEFT ? "gone %u\n" : "gone %u in an unknown way\n", peer);
}

static void rank_failed(void *arg, const struct hoop_failure *failure)
{
    const struct rank *rank = arg;
    dprintf(rank->out, "raised %d %d %s\n", failure->rank, (int)failure->code, failure->text);
}

static bool rank_waiting(void *arg)
{
    struct rank *rank = arg;
    return rank->waiting;
}

void rank_say_left(struct rank *rank)
{
    rank_words(rank)[RANK_WORDS + rank->join.rank] = 1;
}

/* ---- Life --------------------------------------------------------------------------------- */

static hoop_result_t rank_met(void *arg, const struct hoop_roster *roster)
{
    struct rank *rank = arg;
    (void)roster;
    rank->unmade = rank->member == NULL;
    if (rank->spoils) {
        usleep(500 * 1000); /* the others are ready, and wait for this one's word */
        hoop_member_cancel(rank->member);
    }
    return HOOP_OK;
}

void rank_init(struct rank *rank, const struct hoop_rendezvous *rendezvous, uint32_t n, uint32_t me)
{
    *rank = (struct rank){.out = -1, .in = -1, .order = -1};
    rank->join = (struct hoop_join){
        .rendezvous = *rendezvous,
        .serve = me == 0,
        .n = n,
        .rank = me,
        .timeout_ms = 20000,
        .dead_after_ms = 5000,
        .segment_bytes = RANK_SEGMENT_BYTES,
        .agreement = {.lanes = 2, .chunk_bytes = 131072, .oneshot_bytes = 16384},
        .cpus = {.count = 1},
        .wake_fd = -1,
    };
}

hoop_result_t rank_start(struct rank *rank)
{
    int ends[2];
    if (rank->out < 0) {
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return hoop_from_errno(errno);
        }
        rank->in = ends[0];
        rank->out = ends[1];
    }
    rank->join.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hoop_job_init(&rank->job);
    const struct hoop_member_events events = {
        .met = rank_met,
        .lost = rank_lost,
        .event = rank_event,
        .beat = rank_beat,
        .pulse = rank_pulse,
        .left = rank_left,
        .gone = rank_gone,
        .failed = rank_failed,
        .waiting = rank_waiting,
        .arg = rank,
    };
    const hoop_result_t result =
        hoop_member_create(&rank->join, &events, &rank->job, &rank->member);
    if (result != HOOP_OK) {
        (void)snprintf(rank->line, sizeof(rank->line), "%s", hoop_thread_error());
    }
    return result;
}

hoop_result_t rank_join(struct rank *rank)
{
    struct hoop_failure failure = {.rank = -1};
    const hoop_result_t result = hoop_job_wait(&rank->job, hoop_deadline_ns(30000), &failure);
    (void)snprintf(rank->line, sizeof(rank->line), "%s", failure.text);
    rank->inside = result == HOOP_OK;
    if (rank->inside) {
        rank_words(rank)[rank->join.rank]++; /* from now on silence counts */
    }
    return result;
}

void rank_finish(struct rank *rank)
{
    if (rank->pid != 0) {
        rank_reap(rank);
        return;
    }
    hoop_member_destroy(rank->member);
    hoop_job_finish(&rank->job);
    close(rank->join.wake_fd);
    close(rank->in);
    close(rank->out);
}

/* ---- A rank in a process of its own ------------------------------------------------------- */

/* This process's environment, with the host id. The caller frees the array, but not the strings. */
static char **rank_environment(const char *host_id)
{
    static char variable[32];
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **copy = calloc(count + 2, sizeof(char *));
    if (copy != NULL) {
        memcpy(copy, environ, count * sizeof(char *));
        (void)snprintf(variable, sizeof(variable), "HOOP_HOSTID=%s", host_id);
        copy[count] = host_id[0] != 0 ? variable : NULL;
    }
    return copy;
}

int rank_spawn(struct rank *rank, const char *const *environment)
{
    int lines[2];
    int orders[2];
    char join[2 * sizeof(rank->join) + 1];
    for (size_t i = 0; i < sizeof(rank->join); i++) {
        (void)snprintf(join + 2 * i, 3, "%02x", ((const uint8_t *)&rank->join)[i]);
    }
    if (pipe2(lines, O_CLOEXEC) != 0 || pipe2(orders, O_CLOEXEC) != 0) {
        return -1;
    }
    rank->in = lines[0];
    rank->order = orders[1];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, orders[0], 0);
    posix_spawn_file_actions_adddup2(&actions, lines[1], 1);
    char name[] = "rank";
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%s", environment != NULL ? "env" : "rank");
    char *argv[] = {name, mode, join, NULL};
    char **own = rank_environment(rank->host_id);
    char *const *env = environment != NULL ? (char *const *)environment : own;
    const int err = posix_spawn(&rank->pid, "/proc/self/exe", &actions, NULL, argv, env);
    free(own);
    posix_spawn_file_actions_destroy(&actions);
    close(lines[1]);
    close(orders[0]);
    return err;
}

void rank_command(const struct rank *rank, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vdprintf(rank->order, format, args);
    va_end(args);
    dprintf(rank->order, "\n");
}

void rank_reap(struct rank *rank)
{
    if (rank->pid > 0) {
        kill(rank->pid, SIGKILL);
        waitpid(rank->pid, NULL, 0);
        rank->pid = -1;
    }
    close(rank->in);
    close(rank->order);
}

static bool rank_next_line(struct rank *rank, uint64_t deadline_ns)
{
    for (;;) {
        char *end = memchr(rank->rest, '\n', rank->rest_bytes);
        if (end != NULL) {
            const size_t bytes = (size_t)(end - rank->rest);
            (void)snprintf(rank->line, sizeof(rank->line), "%.*s", (int)bytes, rank->rest);
            rank->rest_bytes -= bytes + 1;
            memmove(rank->rest, end + 1, rank->rest_bytes);
            return true;
        }
        const uint64_t now = hoop_now_ns();
        struct pollfd ready = {.fd = rank->in, .events = POLLIN};
        const int left = now < deadline_ns ? (int)((deadline_ns - now) / HOOP_NS_PER_MS) + 1 : 0;
        if (left == 0 || poll(&ready, 1, left) <= 0) {
            return false;
        }
        const ssize_t got =
            read(rank->in, rank->rest + rank->rest_bytes, sizeof(rank->rest) - rank->rest_bytes);
        if (got <= 0) {
            return false;
        }
        rank->rest_bytes += (size_t)got;
    }
}

bool rank_any_line(struct rank *rank, int timeout_ms)
{
    return rank_next_line(rank, hoop_now_ns() + (uint64_t)timeout_ms * HOOP_NS_PER_MS);
}

bool rank_line(struct rank *rank, const char *begin, int timeout_ms)
{
    const bool got = rank_any_line(rank, timeout_ms);
    if (got && strncmp(rank->line, begin, strlen(begin)) == 0) {
        return true;
    }
    (void)fprintf(stderr, "rank %u: expected \"%s\", got \"%s\"\n", rank->join.rank, begin,
                  got ? rank->line : "nothing");
    return false;
}

bool rank_is_silent(struct rank *rank, int timeout_ms)
{
    return !rank_any_line(rank, timeout_ms);
}

/* ---- That process ------------------------------------------------------------------------- */

static void rank_share(const struct rank *rank, const char *text, void **ret_memory)
{
    struct hoop_region_ref ref = {.id = 0};
    if (hoop_region_alloc(RANK_SEGMENT_BYTES, HOOP_MEM_HOST, ret_memory) == HOOP_OK) {
        (void)snprintf(*ret_memory, RANK_SEGMENT_BYTES, "%s", text);
        hoop_region_find(*ret_memory, 1, &ref);
    }
    dprintf(rank->out, "region %" PRIu64 " %u\n", ref.id, ref.generation);
}

static void rank_say_roster(const struct rank *rank)
{
    const struct hoop_roster *roster = hoop_member_roster(rank->member);
    char line[512] = "";
    size_t at = 0;
    for (uint32_t peer = 0; peer < roster->n && at < sizeof(line); peer++) {
        const struct hoop_peer *it = &roster->peers[peer];
        const bool fits = it->same_machine == (it->wake_fd >= 0) && it->pid > 0;
        at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s%u", peer == 0 ? "" : ",",
                               fits ? "" : "?", it->machine);
    }
    dprintf(rank->out, "roster %u %u %s\n", roster->machines, roster->here, line);
}

static void rank_raise(const struct rank *rank, unsigned culprit, const char *text)
{
    struct hoop_failure failure = {.rank = -1};
    (void)hoop_failure_set(&failure, HOOP_REMOTE_ERROR, (int)culprit, "%s", text);
    hoop_member_raise(rank->member, &failure);
}

/* Forks a child that lives on, and reports whether hoop refuses to work in it. */
static void rank_fork(const struct rank *rank)
{
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = hoop_service_start() == HOOP_INVALID_USAGE;
        dprintf(rank->out, refused ? "forked\n" : "hoop works in a forked child\n");
        close(rank->out);
        /* It outlives the test, so it must not keep the output open. */
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        (void)alarm(20);
        for (;;) {
            pause();
        }
    }
}

/* Carries out an order. False: it was "quit". */
static bool rank_obey(struct rank *rank, const char *order, void **memory)
{
    unsigned a = 0;
    unsigned b = 0;
    uint64_t id = 0;
    char text[64] = "";
    struct hoop_blob blob;
    if (sscanf(order, "blob %u %u %63s", &a, &b, text) == 3) {
        blob.bytes = (uint32_t)strlen(text);
        memcpy(blob.data, text, blob.bytes);
        hoop_member_send_blob(rank->member, a, b, true, &blob);
    } else if (sscanf(order, "share %63s", text) == 1) {
        rank_share(rank, text, memory);
    } else if (sscanf(order, "fetch %u %" SCNu64 " %u", &a, &id, &b) == 3) {
        hoop_member_fetch(rank->member, a, id, b);
    } else if (strncmp(order, "free", 4) == 0) {
        (void)hoop_region_free(*memory);
        *memory = NULL;
    } else if (strncmp(order, "imports", 7) == 0) {
        struct hoop_region_stats stats;
        hoop_region_stats(&stats);
        dprintf(rank->out, "imports %" PRIu64 "\n", stats.imports);
    } else if (strncmp(order, "wait", 4) == 0) {
        rank->waiting = true;
    } else if (strncmp(order, "left", 4) == 0) {
        rank_say_left(rank);
    } else if (strncmp(order, "fork", 4) == 0) {
        rank_fork(rank);
    } else if (strncmp(order, "roster", 6) == 0) {
        rank_say_roster(rank);
    } else if (strncmp(order, "gate", 4) == 0) {
        dprintf(rank->out, "gate %d\n", rank->member->server == hoop_process_id());
    } else if (sscanf(order, "raise %u %63s", &a, text) == 2) {
        rank_raise(rank, a, text);
    } else {
        return false;
    }
    return true;
}

int rank_main(int argc, char **argv)
{
    static struct rank rank;
    char order[256];
    void *memory = NULL;
    rank = (struct rank){.out = 1, .in = -1, .order = -1};
    if (argc < 3 || strlen(argv[2]) != 2 * sizeof(rank.join)) {
        return 2;
    }
    for (size_t i = 0; i < sizeof(rank.join); i++) {
        const char digits[3] = {argv[2][2 * i], argv[2][2 * i + 1], 0};
        ((uint8_t *)&rank.join)[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    if (strcmp(argv[1], "env") == 0) {
        const hoop_result_t result =
            hoop_rendezvous_find(NULL, 10000, &rank.join.rendezvous, &rank.join.n, &rank.join.rank);
        if (result != HOOP_OK) {
            dprintf(1, "failed %d %s\n", (int)result, hoop_thread_error());
            return 1;
        }
        rank.join.serve = rank.join.rank == 0;
    }
    hoop_result_t result = rank_start(&rank);
    if (result == HOOP_OK) {
        result = rank_join(&rank);
    }
    if (result != HOOP_OK) {
        dprintf(1, "failed %d %s\n", (int)result, rank.line);
        (void)fgets(order, sizeof(order), stdin); /* what this rank serves goes on meanwhile */
        return 1;
    }
    dprintf(1, "joined\n");
    while (fgets(order, sizeof(order), stdin) != NULL && rank_obey(&rank, order, &memory)) {
    }
    hoop_member_destroy(rank.member);
    hoop_job_finish(&rank.job);
    if (memory != NULL) {
        (void)hoop_region_free(memory);
    }
    return 0;
}
