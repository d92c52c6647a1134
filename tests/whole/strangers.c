/* See strangers.h. Every socket has a time limit, so that a full queue delays and does not hang. */
#include "whole/strangers.h"
#include "control/frame.h"
#include "harness/splitmix.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STRANGERS_ANSWER_MS 1000
#define STRANGERS_SLOW 50
#define STRANGERS_SCANS 200
#define STRANGERS_FDS 8
#define STRANGERS_OTHER_UID 65534u

static void strangers_scribble(struct strangers *strangers, void *to, size_t bytes)
{
    unsigned char *at = to;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)splitmix(&strangers->random);
    }
}

static void strangers_pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- Connections -------------------------------------------------------------------------- */

/* -1: it failed, which is no error. */
static int strangers_connect(struct strangers *strangers, const struct target *target)
{
    const struct timeval patience = {.tv_sec = 2};
    const int fd = socket(target->address.ss_family, target->kind | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&target->address, target->bytes) != 0) {
        close(fd);
        return -1;
    }
    strangers->connections++;
    return fd;
}

static bool strangers_send(struct strangers *strangers, int fd, const void *data, size_t bytes)
{
    const ssize_t sent = fd >= 0 ? send(fd, data, bytes, MSG_NOSIGNAL) : -1;
    strangers->bytes += sent > 0 ? (uint64_t)sent : 0;
    return sent == (ssize_t)bytes;
}

/* Receives the next message of the other end. False: there is none. */
static bool strangers_receive(const struct target *target, int fd, union hoop_frame *ret)
{
    const uint64_t head = sizeof(ret->header);
    size_t got = 0;
    memset(ret, 0, sizeof(*ret));
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (fd < 0 || poll(&ready, 1, STRANGERS_ANSWER_MS) != 1) {
            return false;
        }
        const size_t whole = got < head ? head : ret->header.bytes;
        const size_t want = target_is_tcp(target) ? whole - got : sizeof(*ret);
        const ssize_t more = recv(fd, (char *)ret + got, want, 0);
        if (more <= 0) {
            return false;
        }
        got += (size_t)more;
        if (got >= head && ret->header.bytes > sizeof(*ret)) {
            return false;
        }
        if (got >= head && got >= ret->header.bytes) {
            return true;
        }
    }
}

/* Reads until the end or silence, and counts welcomes, which there may not be. */
static void strangers_listen(struct strangers *strangers, const struct target *target, int fd)
{
    union hoop_frame frame;
    for (int i = 0; i < 4 && strangers_receive(target, fd, &frame); i++) {
        strangers->welcomes += frame.header.type == HOOP_FRAME_WELCOME ? 1 : 0;
    }
}

static void strangers_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* ---- Messages that are right up to a point ------------------------------------------------ */

static union hoop_frame strangers_hello(struct strangers *strangers, const struct target *target,
                                        uint32_t kind)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_HELLO);
    frame.hello.kind = kind;
    frame.hello.from = 2;
    if (target_is_tcp(target)) {
        (void)hoop_address_from_sockaddr((const struct sockaddr *)&target->address,
                                         &frame.hello.dialled);
    }
    if (kind < HOOP_HELLO_PEER) {
        (void)snprintf(frame.hello.rendezvous, sizeof(frame.hello.rendezvous), "%s",
                       strangers->rendezvous);
    } else {
        frame.hello.comm_id = splitmix(&strangers->random);
    }
    strangers_scribble(strangers, frame.hello.nonce, sizeof(frame.hello.nonce));
    return frame;
}

static uint32_t strangers_any(struct strangers *strangers)
{
    return 1 + (uint32_t)(splitmix(&strangers->random) % (HOOP_HELLO_KINDS - 1));
}

/* Sends a hello and gets a challenge, with the server's own proof; -1: none came. */
static int strangers_challenge(struct strangers *strangers, const struct target *target,
                               const union hoop_frame *hello, union hoop_frame *ret)
{
    uint8_t mac[HOOP_MAC_BYTES];
    const int fd = strangers_connect(strangers, target);
    if (!strangers_send(strangers, fd, hello, hello->header.bytes) ||
        !strangers_receive(target, fd, ret) || ret->header.type != HOOP_FRAME_CHALLENGE) {
        strangers_close(fd);
        return -1;
    }
    strangers->challenges++;
    if (hoop_hmac(&strangers->secret, "hoop server", &hello->hello, sizeof(hello->hello),
                  ret->challenge.nonce, HOOP_NONCE_BYTES, mac) != HOOP_OK ||
        !hoop_mac_equal(mac, ret->challenge.mac)) {
        strangers->weak++;
    }
    return fd;
}

static void strangers_prove(struct strangers *strangers, const struct hoop_secret *secret,
                            const union hoop_frame *hello, const union hoop_frame *challenge,
                            union hoop_frame *ret)
{
    hoop_frame_init(ret, HOOP_FRAME_PROOF);
    if (hoop_hmac(secret, "hoop client", &hello->hello, sizeof(hello->hello), &challenge->challenge,
                  sizeof(challenge->challenge), ret->proof.mac) != HOOP_OK) {
        strangers->weak++;
    }
}

/* A proof with another secret; the server's own message sent back; the proof for another
 * challenge. */
static void strangers_bad_proofs(struct strangers *strangers, const struct target *target,
                                 uint32_t kind)
{
    const union hoop_frame hello = strangers_hello(strangers, target, kind);
    union hoop_frame first;
    union hoop_frame challenge;
    union hoop_frame proof;
    struct hoop_secret wrong = strangers->secret;
    wrong.bytes[7] ^= 1;
    int fd = strangers_challenge(strangers, target, &hello, &first);
    if (fd < 0) {
        return;
    }
    strangers_prove(strangers, &wrong, &hello, &first, &proof);
    strangers_send(strangers, fd, &proof, proof.header.bytes);
    strangers_listen(strangers, target, fd);
    strangers_close(fd);

    fd = strangers_challenge(strangers, target, &hello, &challenge);
    memcpy(proof.proof.mac, challenge.challenge.mac, sizeof(proof.proof.mac));
    strangers_send(strangers, fd, &proof, proof.header.bytes);
    strangers_listen(strangers, target, fd);
    strangers_close(fd);

    /* a replay: the same hello, and what an insider answered to the first challenge */
    strangers_prove(strangers, &strangers->secret, &hello, &first, &proof);
    fd = strangers_challenge(strangers, target, &hello, &challenge);
    if (fd >= 0 &&
        memcmp(first.challenge.nonce, challenge.challenge.nonce, HOOP_NONCE_BYTES) == 0) {
        strangers->weak++;
    }
    strangers_send(strangers, fd, &proof, proof.header.bytes);
    strangers_listen(strangers, target, fd);
    strangers_close(fd);
}

static void strangers_other_versions(struct strangers *strangers, const struct target *target)
{
    static const uint16_t versions[] = {0, HOOP_FRAME_VERSION + 1, 0xffff};
    for (unsigned i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        union hoop_frame hello = strangers_hello(strangers, target, strangers_any(strangers));
        const int fd = strangers_connect(strangers, target);
        hello.header.version = versions[i];
        strangers_send(strangers, fd, &hello, hello.header.bytes);
        strangers_listen(strangers, target, fd);
        strangers_close(fd);
    }
}

/* Every type of message comes first, or second, with any content and any length. */
static void strangers_wrong_messages(struct strangers *strangers, const struct target *target)
{
    for (uint32_t type = 0; type <= HOOP_FRAME_TYPE_COUNT; type++) {
        union hoop_frame hello = strangers_hello(strangers, target, strangers_any(strangers));
        union hoop_frame frame;
        strangers_scribble(strangers, &frame, sizeof(frame));
        frame.header = hello.header;
        frame.header.type = (uint16_t)type;
        frame.header.bytes = (uint32_t)splitmix(&strangers->random) % (sizeof(frame) + 1);
        const int fd = strangers_connect(strangers, target);
        if (type % 2 == 0) {
            strangers_send(strangers, fd, &hello, hello.header.bytes);
        }
        strangers_send(strangers, fd, &frame, frame.header.bytes);
        strangers_listen(strangers, target, type % 4 == 0 ? fd : -1);
        strangers_close(fd);
    }
    union hoop_frame endless = strangers_hello(strangers, target, HOOP_HELLO_RANK);
    endless.header.bytes = UINT32_MAX;
    const int fd = strangers_connect(strangers, target);
    strangers_send(strangers, fd, &endless, sizeof(endless));
    strangers_listen(strangers, target, fd);
    strangers_close(fd);
}

static void strangers_halves(struct strangers *strangers, const struct target *target)
{
    for (size_t bytes = 1; bytes < sizeof(struct hoop_frame_hello); bytes += 13) {
        const union hoop_frame hello = strangers_hello(strangers, target, strangers_any(strangers));
        const int fd = strangers_connect(strangers, target);
        strangers_send(strangers, fd, &hello, bytes);
        strangers_close(fd);
    }
}

/* ---- Crowds ------------------------------------------------------------------------------- */

static void strangers_noise(struct strangers *strangers, const struct target *target,
                            unsigned connections, size_t bytes)
{
    static unsigned char junk[65536];
    strangers_scribble(strangers, junk, sizeof(junk));
    for (unsigned i = 0; i < connections; i++) {
        const int fd = strangers_connect(strangers, target);
        size_t left = bytes / connections;
        while (left > 0) {
            const size_t drawn = 1 + (size_t)(splitmix(&strangers->random) % 8192);
            const size_t piece = drawn < left ? drawn : left;
            const size_t from = (size_t)(splitmix(&strangers->random) % (sizeof(junk) - 8192));
            if (!strangers_send(strangers, fd, junk + from, piece)) {
                break;
            }
            left -= piece;
        }
        strangers_close(fd);
    }
}

static void strangers_slow(struct strangers *strangers, const struct target *target, long for_ms)
{
    int fds[STRANGERS_SLOW];
    const union hoop_frame hello = strangers_hello(strangers, target, HOOP_HELLO_RANK);
    for (int i = 0; i < STRANGERS_SLOW; i++) {
        fds[i] = strangers_connect(strangers, target);
    }
    for (long at = 0; at < for_ms / 10; at++) {
        const char *byte = (const char *)&hello + (size_t)at % hello.header.bytes;
        for (int i = 0; i < STRANGERS_SLOW; i++) {
            strangers_send(strangers, fds[i], byte, 1);
        }
        strangers_pause_ms(10);
    }
    for (int i = 0; i < STRANGERS_SLOW; i++) {
        strangers_close(fds[i]);
    }
}

static void strangers_scan(struct strangers *strangers, const struct target *target)
{
    for (int i = 0; i < STRANGERS_SCANS; i++) {
        strangers_close(strangers_connect(strangers, target));
    }
}

/* Sends descriptors with a hello that is never proved: they must all be closed. */
static void strangers_give_descriptors(struct strangers *strangers, const struct target *target)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(STRANGERS_FDS * sizeof(int))];
    } ancillary;
    union hoop_frame hello = strangers_hello(strangers, target, HOOP_HELLO_RANK);
    struct iovec iov = {.iov_base = &hello, .iov_len = hello.header.bytes};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof(ancillary)};
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fds[STRANGERS_FDS];
    for (int i = 0; i < STRANGERS_FDS; i++) {
        fds[i] = null;
    }
    memset(&ancillary, 0, sizeof(ancillary));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(header), fds, sizeof(fds));
    for (int i = 0; i < 20; i++) {
        const int fd = strangers_connect(strangers, target);
        if (fd >= 0) {
            (void)sendmsg(fd, &message, MSG_NOSIGNAL);
        }
        strangers_listen(strangers, target, i % 4 == 0 ? fd : -1);
        strangers_close(fd);
    }
    strangers_close(null);
}

void strangers_hold(struct strangers *strangers, const struct target *target, struct held *ret)
{
    for (int i = 0; i < STRANGERS_HELD; i++) {
        ret->fds[i] = strangers_connect(strangers, target);
        if (i % 2 == 0) {
            const union hoop_frame hello = strangers_hello(
                strangers, target, target_is_tcp(target) ? HOOP_HELLO_TO_ROOT : HOOP_HELLO_RANK);
            strangers_send(strangers, ret->fds[i], &hello, hello.header.bytes);
        }
    }
}

void strangers_let_go(struct held *held)
{
    for (int i = 0; i < STRANGERS_HELD; i++) {
        strangers_close(held->fds[i]);
    }
}

/* ---- All of it ---------------------------------------------------------------------------- */

void strangers_warm(struct strangers *strangers, const struct target *target)
{
    strangers_noise(strangers, target, 100, 100000);
    strangers_halves(strangers, target);
}

void strangers_attack(struct strangers *strangers, const struct target *target)
{
    const unsigned connections = strangers->full ? 1000 : 100;
    strangers_noise(strangers, target, connections, (size_t)connections * 10000);
    strangers_noise(strangers, target, 2, 400000);
    strangers_halves(strangers, target);
    strangers_scan(strangers, target);
    strangers_wrong_messages(strangers, target);
    strangers_other_versions(strangers, target);
    for (uint32_t kind = 1; kind < HOOP_HELLO_KINDS; kind++) {
        strangers_bad_proofs(strangers, target, kind);
    }
    if (!target_is_tcp(target)) {
        strangers_give_descriptors(strangers, target);
    }
    /* longer than an unproven connection may stay */
    strangers_slow(strangers, target, strangers->full ? 7000 : 300);
}

/* Is anything sent to a client that is silent? */
static bool strangers_are_told(struct strangers *strangers, const struct target *target)
{
    char byte = 0;
    const int fd = strangers_connect(strangers, target);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    const bool told = fd >= 0 && poll(&ready, 1, STRANGERS_ANSWER_MS) == 1 &&
                      recv(fd, &byte, sizeof(byte), 0) > 0;
    strangers_close(fd);
    return told;
}

void strangers_attack_as_other(struct strangers *strangers, const struct target *target)
{
    struct strangers other = *strangers;
    int status = 0;
    const pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid == 0) {
        if (setgid(STRANGERS_OTHER_UID) != 0 || setuid(STRANGERS_OTHER_UID) != 0) {
            _exit(0);
        }
        other.welcomes = other.challenges = 0;
        strangers_noise(&other, target, 20, 20000);
        strangers_wrong_messages(&other, target);
        for (uint32_t kind = 1; kind < HOOP_HELLO_KINDS; kind++) {
            strangers_bad_proofs(&other, target, kind);
        }
        const bool told = strangers_are_told(&other, target);
        _exit(!told && other.welcomes == 0 && (target_is_tcp(target) || other.challenges == 0) ? 0
                                                                                               : 1);
    }
    if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0)) {
        strangers->welcomes++;
    }
}
