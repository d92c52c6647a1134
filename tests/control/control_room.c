/* Rooms, owners and raw sockets. See control_room.h. */
#include "control/control_room.h"
#include "base/clock.h"
#include "harness/fds.h"
#include "net/encrypt.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- Notes -------------------------------------------------------------------------------- */

static void room_note(struct room *room, uint32_t *note)
{
    pthread_mutex_lock(&room->lock);
    ++*note;
    pthread_cond_broadcast(&room->changed);
    pthread_mutex_unlock(&room->lock);
}

bool room_await(struct room *room, const uint32_t *note, uint32_t least)
{
    struct timespec until;
    int err = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ROOM_PATIENCE_MS / 1000;
    pthread_mutex_lock(&room->lock);
    while (*note < least && err == 0) {
        err = pthread_cond_timedwait(&room->changed, &room->lock, &until);
    }
    const bool reached = *note >= least;
    pthread_mutex_unlock(&room->lock);
    return reached;
}

/* ---- Owners ------------------------------------------------------------------------------- */

static void party_opened(void *arg, struct hoop_connection *connection)
{
    struct party *party = arg;
    (void)connection;
    if (party->on_opened != NULL) {
        party->on_opened(party);
    }
    room_note(party->room, &party->opened);
}

static bool party_message(void *arg, struct hoop_connection *connection,
                          const union hoop_frame *frame, int *fds)
{
    struct party *party = arg;
    union hoop_frame expected;
    (void)connection;
    (void)fds;
    party_fill(&expected, party->messages);
    if (frame->header.bytes != expected.header.bytes ||
        memcmp(frame, &expected, expected.header.bytes) != 0) {
        party->bad++;
    }
    memcpy(&party->last, frame, frame->header.bytes);
    if (party->on_message != NULL) {
        party->on_message(party);
    }
    room_note(party->room, &party->messages);
    return true;
}

static void party_closed(void *arg, struct hoop_connection *connection,
                         const struct hoop_failure *why)
{
    struct party *party = arg;
    party->why = *why;
    (void)connection;
    if (party->on_closed != NULL) {
        party->on_closed(party);
    } else {
        party_leave(party);
    }
    room_note(party->room, &party->closed);
}

static const struct hoop_connection_owner party_owner = {
    .opened = party_opened,
    .message = party_message,
    .closed = party_closed,
};

void party_leave(struct party *party)
{
    hoop_connection_destroy(party->connection);
    party->connection = NULL;
}

void party_detach(struct party *party)
{
    party->fd = hoop_connection_detach(party->connection);
    party->connection = NULL;
}

void party_fill(union hoop_frame *frame, uint32_t number)
{
    const uint32_t count = 1 + number % HOOP_MAX_FDS;
    hoop_frame_init(frame, HOOP_FRAME_ROSTER_PART);
    hoop_frame_set_count(frame, number % 1000, count);
    for (uint32_t i = 0; i < count; i++) {
        frame->part.entries[i].process = ((uint64_t)number << 32) + i + 1;
        frame->part.entries[i].start_time = number;
        frame->part.entries[i].cpus.count = 1;
        (void)snprintf(frame->part.entries[i].host, sizeof(frame->part.entries[i].host),
                       "host-%u-%u", number, i);
    }
}

void party_send_all(struct party *party)
{
    for (uint32_t i = 0; i < party->to_send && party->connection != NULL; i++) {
        union hoop_frame frame;
        party_fill(&frame, i);
        hoop_connection_send(party->connection, &frame.header, NULL, 0);
    }
}

struct party_call {
    struct party *party;
    party_fn *fn;
    const struct hoop_place *place;
    const struct hoop_address *from;
    const struct hoop_secret *secret;
    hoop_result_t result;
};

static void party_call(void *arg)
{
    const struct party_call *call = arg;
    call->fn(call->party);
}

void party_run(struct party *party, party_fn *fn)
{
    struct party_call call = {.party = party, .fn = fn};
    hoop_service_run(party_call, &call);
}

void party_destroy(struct party *party)
{
    party_run(party, party_leave);
}

/* Makes both ends at once. */
static hoop_result_t party_pair(struct party *party, const struct hoop_frame_hello *hello)
{
    struct room *room = party->room;
    struct hoop_connection *ends[2];
    const hoop_result_t result = hoop_connection_pair(hello, ends);
    if (result == HOOP_OK) {
        party->connection = ends[0];
        hoop_connection_adopt(ends[0], &party_owner, party);
        room->expectation.opened(room, ends[1]);
        party_opened(party, ends[0]);
    }
    return result;
}

static void party_dial(void *arg)
{
    struct party_call *call = arg;
    union hoop_frame hello;
    raw_hello(call->party->room, &hello);
    if (call->party->room->kind == ROOM_HERE) {
        call->result = party_pair(call->party, &hello.hello);
        return;
    }
    call->result = hoop_connection_connect(call->place, call->from, &hello.hello, call->secret,
                                           &party_owner, call->party, &call->party->connection);
}

hoop_result_t party_connect_to(struct party *party, struct room *room,
                               const struct hoop_place *place, const struct hoop_address *from,
                               const struct hoop_secret *secret)
{
    struct party_call call = {.party = party, .place = place, .from = from, .secret = secret};
    party->room = room;
    party->fd = -1;
    hoop_service_run(party_dial, &call);
    return call.result;
}

hoop_result_t party_connect(struct party *party, struct room *room,
                            const struct hoop_secret *secret)
{
    return party_connect_to(party, room, &room->place, NULL, secret);
}

/* ---- The room ----------------------------------------------------------------------------- */

static void room_opened(void *arg, struct hoop_connection *connection)
{
    struct room *room = arg;
    if (room->server.connection != NULL) {
        hoop_connection_destroy(connection);
        return;
    }
    room->server.connection = connection;
    hoop_connection_adopt(connection, &party_owner, &room->server);
    party_opened(&room->server, connection);
}

int room_fds(const struct room *room)
{
    return fds_count(0) - room->fds;
}

static void room_place(enum room_kind kind, struct hoop_place *ret_place)
{
    memset(ret_place, 0, sizeof(*ret_place));
    if (kind == ROOM_TCP4 || kind == ROOM_TCP6) {
        (void)hoop_address_parse(kind == ROOM_TCP4 ? "127.0.0.1" : "::1", &ret_place->address);
    } else {
        unsigned long long random = 0;
        (void)hoop_random(&random, sizeof(random));
        (void)snprintf(ret_place->name, sizeof(ret_place->name), "hoop-room-%llx", random);
    }
}

static void room_unlisten(struct room *room)
{
    hoop_endpoint_expect_no_more(&room->expectation);
    hoop_endpoint_close(room->endpoint);
    room->endpoint = NULL;
}

static void room_listen(void *arg)
{
    struct room *room = arg;
    room_unlisten(room);
    room->result = hoop_endpoint_open(&room->place, NULL, &room->endpoint);
    if (room->result != HOOP_OK) {
        (void)fprintf(stderr, "no endpoint: %s\n", hoop_thread_error());
        return;
    }
    room->place.address = *hoop_endpoint_address(room->endpoint);
    room->expectation.hello.kind = HOOP_HELLO_RANK;
    (void)snprintf(room->expectation.hello.rendezvous, sizeof(room->expectation.hello.rendezvous),
                   "in the room");
    room->expectation.secret = &room->secret;
    room->expectation.opened = room_opened;
    room->expectation.arg = room;
    hoop_endpoint_expect(room->endpoint, &room->expectation);
}

struct room_expecting {
    struct room *room;
    bool expect;
};

static void room_expect_now(void *arg)
{
    const struct room_expecting *expecting = arg;
    struct room *room = expecting->room;
    hoop_endpoint_expect_no_more(&room->expectation);
    if (expecting->expect) {
        hoop_endpoint_expect(room->endpoint, &room->expectation);
    }
}

void room_expect(struct room *room, bool expect)
{
    struct room_expecting expecting = {room, expect};
    hoop_service_run(room_expect_now, &expecting);
}

hoop_result_t room_reopen(struct room *room)
{
    hoop_service_run(room_listen, room);
    return room->result;
}

void room_open(struct room *room, enum room_kind kind)
{
    pthread_condattr_t attributes;
    if (hoop_service_start() != HOOP_OK) {
        abort();
    }
    *room = (struct room){.kind = kind, .server = {.fd = -1}, .fds = fds_count(0)};
    room->server.room = room;
    pthread_mutex_init(&room->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&room->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    (void)hoop_random(&room->secret, sizeof(room->secret));
    room_place(kind, &room->place);
    if (room_reopen(room) != HOOP_OK) {
        abort();
    }
}

static void room_shut(void *arg)
{
    struct room *room = arg;
    party_leave(&room->server);
    room_unlisten(room);
}

int room_close(struct room *room)
{
    hoop_service_run(room_shut, room);
    pthread_cond_destroy(&room->changed);
    pthread_mutex_destroy(&room->lock);
    return room_fds(room);
}

static void room_nothing(void *arg)
{
    (void)arg;
}

void room_settle(void)
{
    hoop_service_run(room_nothing, NULL);
}

bool room_is_far(const struct room *room)
{
    return room->kind == ROOM_TCP4 || room->kind == ROOM_TCP6;
}

/* ---- Raw sockets -------------------------------------------------------------------------- */

static int raw_socket(const struct hoop_place *place, struct sockaddr_storage *ret_address,
                      socklen_t *ret_bytes)
{
    const struct timeval patience = {.tv_sec = ROOM_PATIENCE_MS / 1000};
    const int one = 1;
    const bool far = place->address.family != 0;
    if (far) {
        *ret_bytes = hoop_address_to_sockaddr(&place->address, ret_address);
    } else {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        memcpy(un.sun_path + 1, place->name, strlen(place->name));
        *ret_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(place->name));
        memcpy(ret_address, &un, sizeof(un));
    }
    const int fd = socket(ret_address->ss_family, far ? SOCK_STREAM : SOCK_SEQPACKET, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (far) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    return fd;
}

bool room_can(enum room_kind kind)
{
    struct hoop_place place;
    struct sockaddr_storage address;
    socklen_t bytes;
    room_place(kind, &place);
    const int fd = raw_socket(&place, &address, &bytes);
    const bool can = fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return can;
}

int raw_connect(const struct room *room)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    const int fd = raw_socket(&room->place, &address, &bytes);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int raw_listen(const struct room *room, int backlog, struct hoop_place *ret_place)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    room_place(room->kind, ret_place);
    const int fd = raw_socket(ret_place, &address, &bytes);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(fd, backlog) != 0) {
        return -1;
    }
    bytes = sizeof(address);
    if (room_is_far(room) && getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) {
        (void)hoop_address_from_sockaddr((const struct sockaddr *)&address, &ret_place->address);
    }
    return fd;
}

int raw_accept(int listen_fd)
{
    const struct timeval patience = {.tv_sec = ROOM_PATIENCE_MS / 1000};
    const int fd = accept(listen_fd, NULL, NULL);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

bool raw_send(int fd, const void *data, size_t bytes, size_t step)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        const ssize_t sent = send(fd, at, bytes < step ? bytes : step, MSG_NOSIGNAL);
        if (sent < 0) {
            return false;
        }
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

bool raw_receive(const struct room *room, int fd, union hoop_frame *ret_frame)
{
    const size_t header = sizeof(ret_frame->header);
    if (!room_is_far(room)) {
        const ssize_t got = recv(fd, ret_frame, sizeof(*ret_frame), 0);
        return got >= (ssize_t)header && ret_frame->header.bytes == (size_t)got;
    }
    return recv(fd, ret_frame, header, MSG_WAITALL) == (ssize_t)header &&
           ret_frame->header.bytes >= header && ret_frame->header.bytes <= sizeof(*ret_frame) &&
           (ret_frame->header.bytes == header ||
            recv(fd, (uint8_t *)ret_frame + header, ret_frame->header.bytes - header,
                 MSG_WAITALL) == (ssize_t)(ret_frame->header.bytes - header));
}

bool raw_ended(int fd)
{
    uint8_t sink[4096];
    ssize_t got;
    do {
        got = recv(fd, sink, sizeof(sink), 0);
    } while (got > 0);
    return got == 0 || errno == ECONNRESET || errno == EPIPE;
}

/* What the latest connection seals messages with. */
static struct {
    bool encrypts;
    struct hoop_secret own, key;
    uint64_t number;
} raw_session;

static void raw_nonce(bool encrypts, uint8_t ret_nonce[HOOP_NONCE_BYTES])
{
    (void)hoop_random(&raw_session.own, sizeof(raw_session.own));
    memcpy(ret_nonce, &raw_session.own, HOOP_NONCE_BYTES);
    if (encrypts) {
        (void)hoop_x25519_public(&raw_session.own, ret_nonce);
    }
}

void raw_hello(const struct room *room, union hoop_frame *ret_frame)
{
    hoop_frame_init(ret_frame, HOOP_FRAME_HELLO);
    ret_frame->hello.kind = HOOP_HELLO_RANK;
    ret_frame->hello.dialled = room->place.address;
    ret_frame->hello.from = 3;
    (void)snprintf(ret_frame->hello.rendezvous, sizeof(ret_frame->hello.rendezvous), "in the room");
    ret_frame->hello.encrypts = room_is_far(room) && hoop_settings()->check == HOOP_CHECK_AEAD;
    raw_nonce(ret_frame->hello.encrypts != 0, ret_frame->hello.nonce);
}

void raw_proof(const struct room *room, const union hoop_frame *hello,
               const union hoop_frame *challenge, union hoop_frame *ret_proof)
{
    hoop_frame_init(ret_proof, HOOP_FRAME_PROOF);
    (void)hoop_hmac(&room->secret, "hoop client", hello, sizeof(hello->hello), challenge,
                    sizeof(challenge->challenge), ret_proof->proof.mac);
}

void raw_challenge(const struct room *room, const union hoop_frame *hello,
                   union hoop_frame *ret_challenge)
{
    hoop_frame_init(ret_challenge, HOOP_FRAME_CHALLENGE);
    raw_nonce(hello->hello.encrypts != 0, ret_challenge->challenge.nonce);
    (void)hoop_hmac(&room->secret, "hoop server", hello, sizeof(hello->hello),
                    ret_challenge->challenge.nonce, HOOP_NONCE_BYTES, ret_challenge->challenge.mac);
}

static void raw_derive(const struct room *room, bool greets, const union hoop_frame *hello,
                       const union hoop_frame *challenge)
{
    struct {
        struct hoop_frame_challenge challenge;
        struct hoop_secret shared;
    } said = {.challenge = challenge->challenge};
    raw_session.encrypts = hello->hello.encrypts != 0;
    raw_session.number = 0;
    if (raw_session.encrypts) {
        (void)hoop_x25519_shared(&raw_session.own,
                                 greets ? challenge->challenge.nonce : hello->hello.nonce,
                                 &said.shared);
    }
    (void)hoop_hmac(
        &room->secret, greets ? "hoop key client" : "hoop key server", hello, sizeof(hello->hello),
        &said, raw_session.encrypts ? sizeof(said) : sizeof(said.challenge), raw_session.key.bytes);
}

void raw_seal(const struct room *room, union hoop_frame *frame)
{
    uint8_t mac[HOOP_MAC_BYTES];
    if (room_is_far(room) && raw_session.encrypts) {
        struct hoop_aead *aead = NULL;
        uint8_t *const body = (uint8_t *)frame + sizeof(frame->header);
        (void)hoop_aead_create(&raw_session.key, true, &aead);
        (void)hoop_aead_seal(aead, raw_session.number++,
                             (uint32_t)frame->header.type << 24 | frame->header.bytes, body,
                             frame->header.bytes - sizeof(frame->header), body, frame->header.mac);
        hoop_aead_destroy(aead);
    } else if (room_is_far(room)) {
        memset(frame->header.mac, 0, sizeof(frame->header.mac));
        (void)hoop_hmac(&raw_session.key, "hoop frame", &raw_session.number,
                        sizeof(raw_session.number), frame, frame->header.bytes, mac);
        memcpy(frame->header.mac, mac, sizeof(frame->header.mac));
        raw_session.number++;
    }
}

bool raw_shake(const struct room *room, int fd, size_t step)
{
    union hoop_frame hello;
    union hoop_frame answer;
    union hoop_frame proof;
    raw_hello(room, &hello);
    if (!raw_send(fd, &hello, hello.header.bytes, step) || !raw_receive(room, fd, &answer) ||
        answer.header.type != HOOP_FRAME_CHALLENGE) {
        return false;
    }
    raw_proof(room, &hello, &answer, &proof);
    raw_derive(room, true, &hello, &answer);
    return raw_send(fd, &proof, proof.header.bytes, step) && raw_receive(room, fd, &answer) &&
           answer.header.type == HOOP_FRAME_WELCOME;
}

bool raw_serve(const struct room *room, int fd)
{
    union hoop_frame hello;
    union hoop_frame challenge;
    union hoop_frame proof;
    if (!raw_receive(room, fd, &hello) || hello.header.type != HOOP_FRAME_HELLO) {
        return false;
    }
    raw_challenge(room, &hello, &challenge);
    raw_derive(room, false, &hello, &challenge);
    return raw_send(fd, &challenge, challenge.header.bytes, sizeof(challenge)) &&
           raw_receive(room, fd, &proof) && proof.header.type == HOOP_FRAME_PROOF;
}
