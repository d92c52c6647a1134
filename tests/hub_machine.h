/*
 * Machines for the tests of the hub: each is nothing but a control connection that says what the
 * test wants. It lives on the service thread; what it hears is queued for the main thread, which
 * waits for it with a deadline, and asserts. Machine `who` is host m<who> at 10.0.0.<who>:4000+who,
 * its rendezvous in process 100 + who.
 */
#ifndef HUB_MACHINE_H
#define HUB_MACHINE_H

#include "control.h"
#include "hub.h"

#define HUB_TEST_LONG_MS 20000u

enum machine_heard { MACHINE_OPENED, MACHINE_MESSAGE, MACHINE_CLOSED };

struct machine_event {
    struct machine_event *next;
    enum machine_heard kind;
    union hoop_frame frame;      /* MESSAGE */
    struct hoop_failure failure; /* CLOSED */
};

struct machine {
    struct hoop_control *control; /* the service thread's; NULL: closed */
    bool bare;                    /* asked for: fd is the socket, as soon as it is open */
    int fd;
    struct machine_event *first, **last; /* not taken yet */
    struct machine_event heard;          /* the last one taken */
};

/* ---- A hub -------------------------------------------------------------------------------- */

/* A new one, at a free port of 127.0.0.1. */
struct hoop_meeting a_meeting(void);
hoop_result_t try_serve(const struct hoop_meeting *meeting, struct hoop_address *ret_address,
                        struct hoop_failure *ret_failure);
/* Serves it, if it is not served already; says where. */
struct hoop_address serve(const struct hoop_meeting *meeting);
void retire(const struct hoop_meeting *meeting);
bool is_served(const struct hoop_meeting *meeting);
void await_end(const struct hoop_meeting *meeting);

/* ---- A machine ---------------------------------------------------------------------------- */

/* Connects with this hello, and does not wait for an answer. */
void machine_dial(struct machine *machine, const struct hoop_meeting *meeting,
                  const struct hoop_address *address, const union hoop_frame *hello, bool bare);
/* A machine's hello for this meeting. */
union hoop_frame machine_hello(const struct hoop_meeting *meeting);
/* Connects and proves itself. */
void machine_enter(struct machine *machine, const struct hoop_meeting *meeting,
                   const struct hoop_address *address);
/* Closes, without a word. What was not taken is forgotten. */
void machine_leave(struct machine *machine);

/* The address of machine `who`, and a join of a rank in its rendezvous' process. */
struct hoop_address machine_address(uint32_t who);
union hoop_frame machine_join(uint32_t who, uint32_t n, uint32_t rank);

void machine_say(struct machine *machine, const union hoop_frame *frame);
void machine_say_plain(struct machine *machine, enum hoop_frame_type type);
void machine_say_place(struct machine *machine, uint32_t who);
void machine_say_join(struct machine *machine, uint32_t who, uint32_t n, uint32_t rank);

/* What is heard next is this. */
void machine_expect(struct machine *machine, enum machine_heard kind);
const union hoop_frame *machine_expect_frame(struct machine *machine, enum hoop_frame_type type);
void machine_expect_closed(struct machine *machine, hoop_result_t code);
/* A failure, in words that begin like this; it closes as it should. */
void machine_expect_reject(struct machine *machine, hoop_result_t code, int rank,
                           const char *words);

/* ---- Several ------------------------------------------------------------------------------ */

/* `count` machines bring the first `ranks` of n ranks: rank r is on machine r % count. */
void machines_gather(struct machine *machines, uint32_t count, uint32_t n, uint32_t ranks,
                     const struct hoop_meeting *meeting);
/* All hear their places, and machine 0 the roster, of at most HOOP_FRAME_MAX_FDS ranks. */
void machines_expect_roster(struct machine *machines, uint32_t count);
/* All are told this, and so is another one, which comes late; then nothing is left. */
void machines_expect_failure(struct machine *machines, uint32_t count,
                             const struct hoop_meeting *meeting, hoop_result_t code, int rank,
                             const char *words);

#endif
