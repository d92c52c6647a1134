/*
 * Clients of a root or of a leader. Each is only a control connection that proves the secret and
 * then sends what the test wants. What it receives is queued for the main thread, which waits for
 * it with a deadline, and asserts. Of the server only its address is known.
 *
 * A client plays a machine at a root, or a rank at a leader. Machine `who` is host m<who> at
 * 10.0.0.<who>:4000+who, with its leader in process 100 + who. A rank is in this process.
 */
#ifndef TREE_CLIENT_H
#define TREE_CLIENT_H

#include "control/connection.h"
#include "rendezvous/rendezvous.h"

#define TREE_TEST_LONG_MS 20000u

enum client_heard { CLIENT_OPENED, CLIENT_MESSAGE, CLIENT_CLOSED };

struct client_event {
    struct client_event *next;
    enum client_heard kind;
    union hoop_frame frame;      /* MESSAGE */
    struct hoop_failure failure; /* CLOSED */
};

struct client {
    struct hoop_connection *connection; /* for the service thread; NULL: closed */
    bool bare; /* set by the test: fd becomes the socket as soon as it is open */
    int fd;
    struct client_event *first, **last; /* not taken yet */
    struct client_event heard;          /* the last one taken */
};

/* ---- Any ---------------------------------------------------------------------------------- */

/* Connects with this hello, and does not wait for an answer. False: nobody listens. */
bool client_dial(struct client *client, const struct hoop_place *place,
                 const struct hoop_rendezvous *rendezvous, const union hoop_frame *hello,
                 bool bare);
/* Closes without a goodbye. Events that were not taken are dropped. */
void client_leave(struct client *client);

void client_say(struct client *client, const union hoop_frame *frame);
void client_say_with(struct client *client, const union hoop_frame *frame, int fd);
void client_say_plain(struct client *client, enum hoop_frame_type type);

/* The next event must be this. */
void client_expect(struct client *client, enum client_heard kind);
/* Is the client let in? */
bool client_opens(struct client *client);
const union hoop_frame *client_expect_frame(struct client *client, enum hoop_frame_type type);
void client_expect_closed(struct client *client, hoop_result_t code);
/* Expects a failure with a text that begins like this, and then the end of the connection. */
void client_expect_reject(struct client *client, hoop_result_t code, int rank, const char *words);

/* A machine's leader dials the one that it takes for its parent. */
void child_dial(struct client *child, const struct hoop_rendezvous *rendezvous,
                const struct hoop_address *parent, uint32_t machine);

/* A valid join, as the tests use it. */
union hoop_frame client_join(uint32_t n, uint32_t rank);

/* ---- A root, and machines ----------------------------------------------------------------- */

/* A new rendezvous, at a port of 127.0.0.1 that was free a moment ago. */
struct hoop_rendezvous a_meeting(void);
hoop_result_t try_serve(const struct hoop_rendezvous *rendezvous, struct hoop_address *ret_address,
                        struct hoop_failure *ret_failure);
/* Serves the rendezvous, if it is not served already. Returns where. */
struct hoop_address serve(const struct hoop_rendezvous *rendezvous);
void retire(const struct hoop_rendezvous *rendezvous);
/* Its process gives up the join. */
void give_up(const struct hoop_rendezvous *rendezvous);
/* Does somebody at its address accept machines? */
bool is_served(const struct hoop_rendezvous *rendezvous);
void await_end(const struct hoop_rendezvous *rendezvous);

/* A machine's hello for this rendezvous. */
union hoop_frame machine_hello(const struct hoop_rendezvous *rendezvous);
void machine_dial(struct client *client, const struct hoop_rendezvous *rendezvous,
                  const struct hoop_address *address, const union hoop_frame *hello, bool bare);
/* Connects and proves itself. */
void machine_enter(struct client *client, const struct hoop_rendezvous *rendezvous,
                   const struct hoop_address *address);

/* The address of machine `who`, and the join of a rank in its leader's process. */
struct hoop_address machine_address(uint32_t who);
union hoop_frame machine_join(uint32_t who, uint32_t n, uint32_t rank);
void machine_say_place(struct client *client, uint32_t who);
void machine_say_join(struct client *client, uint32_t who, uint32_t n, uint32_t rank);

/* `count` machines bring the first `ranks` of n ranks: rank r is on machine r % count. */
void machines_gather(struct client *machines, uint32_t count, uint32_t n, uint32_t ranks,
                     const struct hoop_rendezvous *rendezvous);
/* All machines are told their places, and machine 0 the roster, of at most HOOP_MAX_FDS ranks. */
void machines_expect_roster(struct client *machines, uint32_t count);
/* All are told this failure, and so is another machine, which comes late; then nothing is left. */
void machines_expect_failure(struct client *machines, uint32_t count,
                             const struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                             const char *words);

/* ---- A leader, and ranks ------------------------------------------------------------------ */

/* A new rendezvous for this machine alone, which is served. */
struct hoop_rendezvous a_local_meeting(void);
void serve_leader(const struct hoop_rendezvous *rendezvous);
/* Does somebody accept ranks? */
bool is_led(const struct hoop_rendezvous *rendezvous);
void await_leader_end(const struct hoop_rendezvous *rendezvous);

/* Connects as this rank, and proves itself. */
void rank_enter(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t rank);
/* The same without waiting. False: nobody listens. */
bool rank_dial(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t rank);
/* Sends a join, with a wake descriptor. */
void rank_say_join(struct client *client, const union hoop_frame *join);
void rank_expect_roster(struct client *client, uint32_t n);

/* The first `count` of n ranks enter and join. */
void ranks_gather(struct client *ranks, uint32_t count, uint32_t n,
                  const struct hoop_rendezvous *rendezvous);
/* This rank comes late, and is told this failure. */
void rank_expect_late(struct client *client, const struct hoop_rendezvous *rendezvous, uint32_t n,
                      uint32_t rank, hoop_result_t code, int blamed, const char *words);
/* The first `count` ranks are told this failure. The others, up to n, come late and are told the
 * same; then nothing is left. */
void ranks_expect_failure(struct client *ranks, uint32_t count, uint32_t n,
                          const struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                          const char *words);

#endif
