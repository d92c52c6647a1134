/*
 * Strangers: everything that an outsider can do to a listening socket. They find the sockets of
 * given processes in /proc, and attack each, Unix and TCP alike. Nothing here asserts; what must
 * not happen is counted. One thread.
 */
#ifndef HOOP_TESTS_STRANGERS_H
#define HOOP_TESTS_STRANGERS_H

#include "base/crypto.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define STRANGERS_TARGETS 16
#define STRANGERS_HELD 300

/* A listening socket. */
struct target {
    int kind; /* SOCK_STREAM, SOCK_SEQPACKET */
    struct sockaddr_storage address;
    socklen_t bytes;
    char text[128];
};

struct strangers {
    /* what an insider knows, for messages that are partly right */
    char rendezvous[64];
    struct hoop_secret secret;
    bool full; /* the long attack: 10 MB over 1000 connections to every target */
    uint64_t random;
    /* the results */
    uint64_t connections, bytes;
    uint64_t challenges; /* answers to a valid hello */
    uint64_t welcomes;   /* strangers who got in, which must be 0 */
    uint64_t weak;       /* challenges with an old nonce, or without the server's proof */
};

/* Finds the listening sockets of these processes. Returns how many, at most STRANGERS_TARGETS. */
int strangers_find(const pid_t *pids, int count, struct target ret[STRANGERS_TARGETS]);
bool target_is_tcp(const struct target *target);

/* Makes every kind of attack, one after the other. */
void strangers_attack(struct strangers *strangers, const struct target *target);
/* A few harmless connections, so that memory that is allocated once is allocated. */
void strangers_warm(struct strangers *strangers, const struct target *target);
/* As another user of the machine, who must not even get a challenge over a Unix socket.
 * Needs root. */
void strangers_attack_as_other(struct strangers *strangers, const struct target *target);

/* Connections that are kept open; every second one sends a hello and reads no answer. */
struct held {
    int fds[STRANGERS_HELD];
};
void strangers_hold(struct strangers *strangers, const struct target *target, struct held *ret);
void strangers_let_go(struct held *held);

#endif
