/*
 * Strangers: everything that somebody who does not belong can do to a listening socket. They find
 * the sockets of given processes in /proc and attack each, Unix and TCP alike. Nothing here
 * asserts; what must not happen is counted. One thread.
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

/* A socket that somebody listens at. */
struct target {
    int kind; /* SOCK_STREAM, SOCK_SEQPACKET */
    struct sockaddr_storage address;
    socklen_t bytes;
    char text[128];
};

struct strangers {
    /* what an insider knows, for messages that are right up to a point */
    char rendezvous[64];
    struct hoop_secret secret;
    bool full; /* the long attack: 10 MB over 1000 connections to every target */
    uint64_t random;
    /* what came of it */
    uint64_t connections, bytes;
    uint64_t challenges; /* answers to a hello that was right */
    uint64_t welcomes;   /* strangers who got in: none may */
    uint64_t weak;       /* challenges that used a nonce again, or lacked the server's proof */
};

/* The listening sockets of these processes; returns how many (at most STRANGERS_TARGETS). */
int strangers_find(const pid_t *pids, int count, struct target ret[STRANGERS_TARGETS]);
bool target_is_tcp(const struct target *target);

/* Every kind of attack, one after the other. */
void strangers_attack(struct strangers *strangers, const struct target *target);
/* A few harmless connections, so that what is allocated once is. */
void strangers_warm(struct strangers *strangers, const struct target *target);
/* As another user of the machine, who over a Unix socket must not even get a challenge. Only root
 * can become one. */
void strangers_attack_as_other(struct strangers *strangers, const struct target *target);

/* Connections that are made and kept; every second one says a hello and reads no answer. */
struct held {
    int fds[STRANGERS_HELD];
};
void strangers_hold(struct strangers *strangers, const struct target *target, struct held *ret);
void strangers_let_go(struct held *held);

#endif
