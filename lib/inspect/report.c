/* See report.h. All but hoop_report_start() runs on the service thread. */
#include "inspect/report.h"

#include "base/clock.h"
#include "base/log.h"
#include "inspect/look.h"
#include "net/socket.h"
#include "runtime/process.h"
#include "runtime/service.h"
#include "runtime/watch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define REPORT_BYTES ((size_t)1 << 20)
#define REPORT_TAIL_BYTES ((size_t)64) /* reserved for what follows the comms */
#define REPORT_PACKET_BYTES ((size_t)8192)
#define REPORT_READERS 8u
#define REPORT_PATIENCE_MS 2000u
/*
 * The listener pauses for this time when it is out of descriptors, or after REPORT_STRANGERS
 * unanswered connections within it; otherwise waiting connections would keep the loop busy. A full
 * backlog is still worked off within the second that hoopinfo waits.
 */
#define REPORT_PAUSE_MS 100u
#define REPORT_STRANGERS 256u

/* A client that is being answered. */
struct report_reader {
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *timer;
    size_t length, sent;
    char text[];
};

static uint32_t report_readers;

static struct {
    int fd;
    struct hoop_watch *watch;
    struct hoop_timer *pause;
    uint64_t round_ns; /* start of the period in which strangers are counted */
    uint32_t strangers;
} report_listener = {.fd = -1};

/* ---- The text ------------------------------------------------------------------------------- */

struct report_comms {
    struct hoop_json *json;
    uint32_t left_out;
    bool full; /* stop looking, since each comm takes time */
};

static void report_comm(void *arg, struct hoop_comm *comm)
{
    struct report_comms *comms = arg;
    if (comms->full || pthread_mutex_trylock(&comm->look_lock) != 0) {
        comms->left_out++;
        return;
    }
    const struct hoop_json before = *comms->json;
    /* Else its parameters are not set yet. A comm that is over may be freed without the lock. */
    if (comm->over || comm->member != NULL) {
        hoop_json_object(comms->json, NULL);
        hoop_look_comm(comms->json, comm);
        hoop_json_object_end(comms->json);
    }
    pthread_mutex_unlock(&comm->look_lock);
    if (comms->json->length + REPORT_TAIL_BYTES > comms->json->bytes) {
        *comms->json = before;
        comms->full = true;
        comms->left_out++;
    }
}

/* Returns false if the text does not fit. */
static bool report_write(char *text, size_t bytes, size_t *ret_length)
{
    struct hoop_json json;
    struct report_comms comms = {.json = &json};
    size_t needed = 0;
    hoop_json_init(&json, text, bytes);
    hoop_json_object(&json, NULL);
    hoop_look_process(&json);
    const uint32_t streams_left_out = hoop_look_streams(&json, bytes / 2);
    hoop_json_uint(&json, "streams_left_out", streams_left_out);
    hoop_json_array(&json, "comms");
    hoop_comm_each(report_comm, &comms);
    hoop_json_array_end(&json);
    hoop_json_uint(&json, "left_out", comms.left_out);
    hoop_json_object_end(&json);
    const hoop_result_t result = hoop_json_finish(&json, &needed);
    *ret_length = needed - 1;
    return result == HOOP_OK;
}

/* ---- Readers -------------------------------------------------------------------------------- */

static void report_end(void *arg)
{
    struct report_reader *reader = arg;
    hoop_watch_destroy(reader->watch);
    hoop_timer_destroy(reader->timer);
    hoop_fork_close(reader->fd);
    hoop_free_later(reader);
    report_readers--;
}

static void report_send(void *arg, unsigned events)
{
    struct report_reader *reader = arg;
    (void)events;
    ssize_t sent = 0;
    while (reader->sent < reader->length && sent >= 0) {
        const size_t left = reader->length - reader->sent;
        sent = hoop_socket_send(reader->fd, reader->text + reader->sent,
                                left < REPORT_PACKET_BYTES ? left : REPORT_PACKET_BYTES, NULL, 0);
        reader->sent += sent > 0 ? (size_t)sent : 0;
    }
    if (reader->sent == reader->length || sent != -EAGAIN) {
        report_end(reader);
    }
}

/* Takes ownership of fd. */
static void report_answer(int fd)
{
    struct report_reader *reader = calloc(1, sizeof(*reader) + REPORT_BYTES);
    if (reader == NULL) {
        hoop_fork_close(fd);
        return;
    }
    const bool fits = report_write(reader->text, REPORT_BYTES, &reader->length);
    /* Gives unused room back at once: with many readers malloc() would keep it. */
    struct report_reader *tight = realloc(reader, sizeof(*reader) + (fits ? reader->length : 0));
    reader = tight != NULL ? tight : reader;
    report_readers++;
    reader->fd = fd;
    if (fits && hoop_timer_create(report_end, reader, &reader->timer) == HOOP_OK &&
        hoop_watch_create(fd, HOOP_WATCH_WRITE, report_send, reader, &reader->watch) == HOOP_OK) {
        hoop_timer_start(reader->timer, REPORT_PATIENCE_MS, 0);
    } else {
        report_end(reader);
    }
}

static void report_pause(void)
{
    hoop_watch_want(report_listener.watch, 0);
    hoop_timer_start(report_listener.pause, REPORT_PAUSE_MS, 0);
}

static void report_paused(void *arg)
{
    (void)arg;
    report_listener.strangers = 0;
    hoop_watch_want(report_listener.watch, HOOP_WATCH_READ);
}

/* Counts a connection that is not answered. Returns true if it is time for a pause. */
static bool report_is_flooded(void)
{
    const uint64_t now = hoop_now_ns();
    if (now - report_listener.round_ns > REPORT_PAUSE_MS * HOOP_NS_PER_MS) {
        report_listener.round_ns = now;
        report_listener.strangers = 0;
    }
    return ++report_listener.strangers >= REPORT_STRANGERS;
}

/* Accepts one connection per wake-up; the watch reports others again. */
static void report_accept(void *arg, unsigned events)
{
    int fd = -1;
    (void)arg;
    (void)events;
    const hoop_result_t result = hoop_socket_accept(report_listener.fd, &fd);
    if (result != HOOP_OK) {
        if (result != HOOP_AGAIN) {
            report_pause();
        }
        return;
    }
    if (report_readers < REPORT_READERS && hoop_socket_vouch_reader(fd) == HOOP_OK) {
        report_answer(fd);
        return;
    }
    hoop_fork_close(fd);
    if (report_is_flooded()) {
        report_pause();
    }
}

static void report_listen(void *arg)
{
    struct hoop_place place = {.name = ""};
    (void)arg;
    snprintf(place.name, sizeof(place.name), "hoop-job-%u-%d-%08x", (unsigned)geteuid(),
             (int)getpid(), (unsigned)(hoop_process_id() & 0xffffffff));
    hoop_result_t result = hoop_timer_create(report_paused, NULL, &report_listener.pause);
    if (result == HOOP_OK) {
        result = hoop_socket_listen(&place, NULL, &report_listener.fd);
    }
    if (result == HOOP_OK) {
        result = hoop_watch_create(report_listener.fd, HOOP_WATCH_READ, report_accept, NULL,
                                   &report_listener.watch);
    }
    if (result != HOOP_OK) {
        hoop_log(HOOP_LOG_INFO, HOOP_LOG_INIT, "hoopinfo --job will not see this process: %s",
                 hoop_thread_error());
    }
}

void hoop_report_start(void)
{
    static _Atomic bool started;
    char nothing = 0;
    if (!atomic_load(&started) && hoop_service_start() == HOOP_OK &&
        !atomic_exchange(&started, true)) {
        hoop_service_post(report_listen, &nothing, sizeof(nothing));
    }
}
