/* See link_raw.h. */
#include "transports/link_raw.h"
#include "base/clock.h"
#include "runtime/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAW_DEADLINE_MS 20000

bool raw_open(struct raw *raw, bool sending, enum raw_socket kind, uint32_t check)
{
    *raw = (struct raw){.fd = -1};
    raw->pair = (struct pair){.transport = hoop_transport_named("tcp"),
                              .slots = RAW_SLOTS,
                              .chunk_bytes = RAW_CHUNK,
                              .check = check};
    struct pair *pair = &raw->pair;
    if (pair_make(pair) != HOOP_OK) {
        pair_close(pair);
        return false;
    }
    if (kind == RAW_SOCKETPAIR) {
        const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
        pair->connected = socketpair(AF_UNIX, type, 0, pair->sockets) == 0;
    }
    struct hoop_link **mine = sending ? &pair->sender : &pair->receiver;
    struct hoop_link **other = sending ? &pair->receiver : &pair->sender;
    const hoop_result_t bound =
        pair_bind(*mine, sending ? &pair->receiver_blob : &pair->sender_blob);
    hoop_link_destroy(*other);
    *other = NULL;
    if (bound != HOOP_OK) {
        pair_close(pair);
        return false;
    }
    const uint32_t theirs = sending ? PAIR_RECEIVER : PAIR_SENDER;
    raw->link = *mine;
    raw->fd = pair->sockets[theirs];
    pair->sockets[theirs] = -1;
    return true;
}

void raw_hang_up(struct raw *raw)
{
    hoop_fork_close(raw->fd);
    raw->fd = -1;
}

void raw_close(struct raw *raw)
{
    raw_hang_up(raw);
    pair_close(&raw->pair);
    raw->link = NULL;
}

hoop_result_t raw_recv(struct raw *raw, struct item *item, void *data, size_t bytes,
                       uint32_t number)
{
    item_fill(item, data, bytes, number);
    return hoop_link_recv(raw->link, &item->xfer);
}

hoop_result_t raw_send(struct raw *raw, struct item *item, const void *data, size_t bytes,
                       uint32_t number)
{
    item_fill(item, (void *)(uintptr_t)data, bytes, number);
    return hoop_link_send(raw->link, &item->xfer);
}

bool raw_write(struct raw *raw, const void *data, size_t bytes)
{
    const uint64_t deadline = hoop_deadline_ns(RAW_DEADLINE_MS);
    const uint8_t *at = data;
    while (bytes > 0 && hoop_now_ns() < deadline) {
        const ssize_t taken = send(raw->fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (taken < 0 && errno != EAGAIN) {
            return false;
        }
        at += taken > 0 ? taken : 0;
        bytes -= taken > 0 ? (size_t)taken : 0;
        (void)hoop_link_progress(raw->link);
    }
    return bytes == 0;
}

bool raw_until_done(struct raw *raw, const struct item *item)
{
    const uint64_t deadline = hoop_deadline_ns(RAW_DEADLINE_MS);
    while (item->done == 0 && hoop_now_ns() < deadline) {
        if (!hoop_link_progress(raw->link)) {
            sched_yield();
        }
    }
    return item->done != 0;
}

/* Reads what is there now, behind the first *bytes bytes. False: the other end has closed. */
static bool raw_read(const struct raw *raw, uint8_t *to, size_t room, size_t *bytes)
{
    const ssize_t came = recv(raw->fd, to + *bytes, room - *bytes, MSG_DONTWAIT);
    *bytes += came > 0 ? (size_t)came : 0;
    return came > 0 || (came < 0 && errno == EAGAIN);
}

uint8_t *raw_record(const size_t *sizes, uint32_t count, uint32_t check, size_t *ret_bytes)
{
    struct raw raw;
    struct item item;
    size_t room = (size_t)1 << 20, bytes = 0;
    uint8_t *data = malloc(RAW_CHUNK), *record = malloc(room);
    bool fine = data != NULL && record != NULL && raw_open(&raw, true, RAW_TCP, check);
    const bool opened = fine;
    for (uint32_t i = 0; i < count && fine; i++) {
        pattern_fill(data, sizes[i], i);
        fine = raw_send(&raw, &item, data, sizes[i], i) == HOOP_OK;
        while (fine && item.done == 0) {
            (void)hoop_link_progress(raw.link);
            fine = raw_read(&raw, record, room, &bytes);
        }
    }
    if (opened) {
        const uint64_t deadline = hoop_deadline_ns(RAW_DEADLINE_MS);
        pair_close(&raw.pair);
        while (raw_read(&raw, record, room, &bytes) && hoop_now_ns() < deadline) {
        }
        raw_hang_up(&raw);
    }
    free(data);
    if (!fine) {
        free(record);
        return NULL;
    }
    *ret_bytes = bytes;
    return record;
}

uint32_t raw_count_open(void)
{
    const long most = sysconf(_SC_OPEN_MAX);
    uint32_t count = 0;
    for (int fd = 0; fd < (most < 65536 ? most : 65536); fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}
