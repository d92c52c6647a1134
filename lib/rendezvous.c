/*
 * The rendezvous; see rendezvous.h. All on the service thread.
 *
 * Whatever contradicts (two values of n, of a setting; a rank that comes twice) fails the join of
 * all: whom to believe is the user's to say. A connection that cannot prove that it belongs never
 * gets this far (listener.c).
 */
#include "rendezvous.h"
#include "agreement.h"
#include "base/clock.h"
#include "base/log.h"
#include "control.h"
#include "memory.h"
#include "watch.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RENDEZVOUS_NAMED_RANKS 8u /* in "ranks 1, 2, ... did not arrive" */
#define RENDEZVOUS_NOBODY UINT32_MAX
#define RENDEZVOUS_GUESTS (HOOP_FRAME_MAX_RANKS + 64u)
#define RENDEZVOUS_IN_FLIGHT 512u /* descriptors; half of the usual limit of open files */

enum rendezvous_state {
    RENDEZVOUS_GATHERING,
    RENDEZVOUS_BINDING,
    RENDEZVOUS_RUNNING,
    RENDEZVOUS_FAILED
};

/* One proven connection. */
struct rendezvous_guest {
    struct rendezvous_guest *next;
    struct hoop_rendezvous *rendezvous;
    struct hoop_control *control;
    uint32_t rank; /* RENDEZVOUS_NOBODY before its JOIN */
    int wake_fd;
    bool ready;
    struct hoop_frame_join join;
};

struct hoop_rendezvous {
    struct hoop_rendezvous *next;
    struct hoop_meeting meeting;
    struct hoop_secret secret; /* the meeting's, or one made here and handed out */
    struct hoop_listener *listener;
    struct hoop_timer *timer;
    enum rendezvous_state state;
    uint64_t timeout_ms, deadline_ns; /* of the first to lose patience */
    struct rendezvous_guest *guests;
    struct rendezvous_guest **ranks;   /* [n], from the first JOIN on; borrowed from guests */
    uint32_t n, arrived, bound, ready; /* ranks: all, joined, told the roster, ready */
    uint32_t guest_count;
    struct hoop_frame_roster roster; /* from BINDING on */
    int segment;                     /* while it has to be sent */
    uint32_t expected, told;         /* failed: how many ranks may come, and how many know */
    uint8_t told_bits[HOOP_FRAME_MAX_RANKS / 8];
    struct hoop_failure failure;
};

static struct hoop_rendezvous *rendezvous_all;

/* ---- Life --------------------------------------------------------------------------------- */

static void rendezvous_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void rendezvous_dismiss(struct rendezvous_guest *guest)
{
    struct rendezvous_guest **at = &guest->rendezvous->guests;
    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    guest->rendezvous->guest_count--;
    if (guest->rank != RENDEZVOUS_NOBODY && guest->rendezvous->ranks[guest->rank] == guest) {
        guest->rendezvous->ranks[guest->rank] = NULL;
    }
    hoop_control_destroy(guest->control);
    rendezvous_close(guest->wake_fd);
    free(guest);
}

static void rendezvous_destroy(struct hoop_rendezvous *rendezvous)
{
    struct hoop_rendezvous **at = &rendezvous_all;
    while (*at != NULL && *at != rendezvous) {
        at = &(*at)->next;
    }
    if (*at == rendezvous) {
        *at = rendezvous->next;
    }
    struct rendezvous_guest *guest = rendezvous->guests;
    while (guest != NULL) {
        struct rendezvous_guest *next = guest->next;
        rendezvous_dismiss(guest);
        guest = next;
    }
    rendezvous_close(rendezvous->segment);
    hoop_timer_destroy(rendezvous->timer);
    hoop_listener_destroy(rendezvous->listener);
    hoop_secret_wipe(&rendezvous->secret, sizeof(rendezvous->secret));
    hoop_secret_wipe(&rendezvous->meeting, sizeof(rendezvous->meeting));
    free(rendezvous->ranks);
    free(rendezvous);
}

/* ---- Failing ------------------------------------------------------------------------------ */

/* This rank knows, or needs to know nothing any more. */
static void rendezvous_mark_told(const struct rendezvous_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint32_t rank = guest->join.rank;
    const uint8_t bit = (uint8_t)(1u << (rank % 8));
    if (guest->join.n > rendezvous->expected) {
        rendezvous->expected = guest->join.n;
    }
    if ((rendezvous->told_bits[rank / 8] & bit) == 0) {
        rendezvous->told_bits[rank / 8] |= bit;
        rendezvous->told++;
    }
}

static void rendezvous_reject(struct rendezvous_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_REJECT);
    frame.reject.code = (int32_t)rendezvous->failure.code;
    frame.reject.rank = rendezvous->failure.rank;
    memcpy(frame.reject.text, rendezvous->failure.text, sizeof(frame.reject.text));
    hoop_control_send(guest->control, &frame.header, NULL, 0);
    rendezvous_mark_told(guest);
    rendezvous_dismiss(guest);
}

/*
 * Fails the join of all. The rendezvous stays for those who come late, as long as the join could
 * have lasted, so that they learn the reason and do not wait for nobody.
 */
static void rendezvous_fail(struct hoop_rendezvous *rendezvous, hoop_result_t code, int rank,
                            const char *text)
{
    if (rendezvous->state == RENDEZVOUS_FAILED) {
        return;
    }
    (void)hoop_failure_set(&rendezvous->failure, code, rank, "%s", text);
    rendezvous->state = RENDEZVOUS_FAILED;
    struct rendezvous_guest *guest = rendezvous->guests;
    while (guest != NULL) {
        struct rendezvous_guest *next = guest->next;
        if (guest->rank != RENDEZVOUS_NOBODY) {
            rendezvous_reject(guest);
        }
        guest = next;
    }
    if (rendezvous->told >= rendezvous->expected) {
        rendezvous_destroy(rendezvous);
        return;
    }
    hoop_timer_start(rendezvous->timer, rendezvous->timeout_ms, 0);
}

/* "rank 2" or "ranks 2, 5 and 9 more": those who miss what `missing` says. */
static void rendezvous_list(const struct hoop_rendezvous *rendezvous,
                            bool (*missing)(const struct rendezvous_guest *guest), char *ret_text,
                            size_t bytes)
{
    uint32_t count = 0;
    size_t at = 0;
    for (uint32_t rank = 0; rank < rendezvous->n; rank++) {
        count += missing(rendezvous->ranks[rank]) ? 1 : 0;
    }
    uint32_t named = 0;
    at += (size_t)snprintf(ret_text, bytes, count == 1 ? "rank" : "ranks");
    for (uint32_t rank = 0; rank < rendezvous->n && named < RENDEZVOUS_NAMED_RANKS; rank++) {
        if (missing(rendezvous->ranks[rank])) {
            at += (size_t)snprintf(ret_text + at, bytes - at, "%s %u", named == 0 ? "" : ",", rank);
            named++;
        }
    }
    if (count > named) {
        (void)snprintf(ret_text + at, bytes - at, " and %u more", count - named);
    }
}

static bool rendezvous_is_absent(const struct rendezvous_guest *guest)
{
    return guest == NULL;
}

static bool rendezvous_is_unready(const struct rendezvous_guest *guest)
{
    return guest == NULL || !guest->ready;
}

static void rendezvous_due(void *arg)
{
    struct hoop_rendezvous *rendezvous = arg;
    char list[128];
    char text[HOOP_FAILURE_TEXT_BYTES];
    if (rendezvous->state == RENDEZVOUS_FAILED) {
        rendezvous_destroy(rendezvous);
    } else if (rendezvous->state == RENDEZVOUS_GATHERING) {
        rendezvous_list(rendezvous, rendezvous_is_absent, list, sizeof(list));
        (void)snprintf(text, sizeof(text), "%s of %u did not arrive within %llu ms", list,
                       rendezvous->n, (unsigned long long)rendezvous->timeout_ms);
        rendezvous_fail(rendezvous, HOOP_TIMEOUT, -1, text);
    } else if (rendezvous->state == RENDEZVOUS_BINDING) {
        rendezvous_list(rendezvous, rendezvous_is_unready, list, sizeof(list));
        (void)snprintf(text, sizeof(text), "%s of %u arrived, but did not get ready within %llu ms",
                       list, rendezvous->n, (unsigned long long)rendezvous->timeout_ms);
        rendezvous_fail(rendezvous, HOOP_TIMEOUT, -1, text);
    }
}

/* ---- The roster --------------------------------------------------------------------------- */

static hoop_result_t rendezvous_segment(uint64_t bytes, int *ret_fd)
{
    const int fd = memfd_create("hoop-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        const int err = errno;
        return hoop_error(hoop_from_errno(err), "memfd_create: %s", hoop_errno_name(err));
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        const int err = errno;
        close(fd);
        return hoop_error(hoop_from_errno(err), "cannot make %llu bytes of shared memory: %s",
                          (unsigned long long)bytes, hoop_errno_name(err));
    }
    *ret_fd = fd;
    return HOOP_OK;
}

static void rendezvous_send_parts(const struct hoop_rendezvous *rendezvous,
                                  struct hoop_control *control)
{
    union hoop_frame frame;
    int fds[HOOP_FRAME_MAX_FDS];
    for (uint32_t first = 0; first < rendezvous->n; first += HOOP_FRAME_MAX_FDS) {
        const uint32_t left = rendezvous->n - first;
        const uint32_t count = left < HOOP_FRAME_MAX_FDS ? left : HOOP_FRAME_MAX_FDS;
        hoop_frame_init(&frame, HOOP_FRAME_ROSTER_PART);
        hoop_frame_set_count(&frame, first, count);
        for (uint32_t i = 0; i < count; i++) {
            const struct rendezvous_guest *guest = rendezvous->ranks[first + i];
            struct hoop_frame_entry *entry = &frame.part.entries[i];
            entry->process = guest->join.process;
            entry->start_time = guest->join.start_time;
            entry->pid = guest->join.pid;
            memcpy(entry->host, guest->join.host, sizeof(entry->host));
            memcpy(entry->listener, guest->join.listener, sizeof(entry->listener));
            fds[i] = guest->wake_fd;
        }
        hoop_control_send(control, &frame.header, fds, count);
    }
}

/*
 * Tells the roster to as many as may hold it unread at once: the kernel limits the descriptors
 * that a user has in flight, and each roster carries n of them.
 */
static void rendezvous_tell(struct hoop_rendezvous *rendezvous)
{
    assert(rendezvous->n > 0);
    const uint32_t fitting = RENDEZVOUS_IN_FLIGHT / rendezvous->n;
    const uint32_t window = fitting > 0 ? fitting : 1;
    while (rendezvous->bound < rendezvous->n && rendezvous->bound - rendezvous->ready < window) {
        struct hoop_control *control = rendezvous->ranks[rendezvous->bound++]->control;
        hoop_control_send(control, &rendezvous->roster.header, &rendezvous->segment, 1);
        rendezvous_send_parts(rendezvous, control);
    }
}

static void rendezvous_bind(struct hoop_rendezvous *rendezvous)
{
    union hoop_frame frame;
    const uint64_t bytes = rendezvous->ranks[0]->join.segment_bytes;
    struct hoop_frame_roster *roster = &rendezvous->roster;
    hoop_frame_init(&frame, HOOP_FRAME_ROSTER);
    *roster = frame.roster;
    hoop_result_t result = rendezvous_segment(bytes, &rendezvous->segment);
    if (result == HOOP_OK) {
        result = hoop_random(&roster->comm_id, sizeof(roster->comm_id));
    }
    if (result != HOOP_OK) {
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "%s", hoop_thread_error());
        rendezvous_fail(rendezvous, result, -1, text);
        return;
    }
    roster->comm_id |= roster->comm_id == 0 ? 1 : 0;
    roster->epoch = 1;
    roster->n = rendezvous->n;
    roster->segment_bytes = bytes;
    roster->server = hoop_process_id();
    roster->dead_after_ms = HOOP_FRAME_MAX_MS;
    for (uint32_t rank = 0; rank < rendezvous->n; rank++) {
        assert(rendezvous->ranks[rank] != NULL);
        const struct hoop_frame_join *join = &rendezvous->ranks[rank]->join;
        roster->need_fence |= join->no_membarrier;
        roster->crowded |= join->crowded;
        if (join->dead_after_ms < roster->dead_after_ms) {
            roster->dead_after_ms = join->dead_after_ms;
        }
    }
    rendezvous->state = RENDEZVOUS_BINDING;
    rendezvous_tell(rendezvous);
}

static void rendezvous_go(struct hoop_rendezvous *rendezvous)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_GO);
    rendezvous->state = RENDEZVOUS_RUNNING;
    rendezvous_close(rendezvous->segment);
    rendezvous->segment = -1;
    hoop_timer_stop(rendezvous->timer);
    hoop_listener_destroy(rendezvous->listener);
    rendezvous->listener = NULL;
    for (uint32_t rank = 0; rank < rendezvous->n; rank++) {
        struct rendezvous_guest *guest = rendezvous->ranks[rank];
        hoop_control_send(guest->control, &frame.header, NULL, 0);
        rendezvous_close(guest->wake_fd);
        guest->wake_fd = -1;
    }
    hoop_log(HOOP_LOG_TRACE, HOOP_LOG_INIT, "%s: all %u ranks are in", rendezvous->meeting.name,
             rendezvous->n);
}

/* ---- Joining ------------------------------------------------------------------------------ */

/* Does the newcomer agree with those who came before? If not, the join of all has failed. */
static bool rendezvous_agrees(struct rendezvous_guest *guest)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const struct hoop_frame_join *mine = &guest->join;
    const struct hoop_frame_join *other = NULL;
    char text[HOOP_FAILURE_TEXT_BYTES];
    struct hoop_difference difference;
    for (uint32_t rank = 0; rank < rendezvous->n && other == NULL; rank++) {
        other = rendezvous->ranks[rank] != NULL ? &rendezvous->ranks[rank]->join : NULL;
    }
    if (other == NULL) {
        return true;
    }
    const char *host = mine->host;
    if (mine->n != rendezvous->n) {
        (void)snprintf(text, sizeof(text),
                       "rank %u (pid %d, host %s) joined with %u ranks, rank %u (pid %d) with %u",
                       mine->rank, mine->pid, host, mine->n, other->rank, other->pid, other->n);
        rendezvous_fail(rendezvous, HOOP_MISMATCH, (int)mine->rank, text);
        return false;
    }
    if (rendezvous->ranks[mine->rank] != NULL) {
        (void)snprintf(text, sizeof(text), "rank %u came twice: as pid %d and as pid %d",
                       mine->rank, rendezvous->ranks[mine->rank]->join.pid, mine->pid);
        rendezvous_fail(rendezvous, HOOP_INVALID_USAGE, (int)mine->rank, text);
        return false;
    }
    if (hoop_agreement_differs(mine, other, &difference)) {
        (void)snprintf(text, sizeof(text),
                       "%s must be the same on all ranks: it is %s on rank %u (pid %d, host %s) "
                       "and %s on rank %u (pid %d)",
                       difference.name, difference.a, mine->rank, mine->pid, host, difference.b,
                       other->rank, other->pid);
        rendezvous_fail(rendezvous, HOOP_MISMATCH, (int)mine->rank, text);
        return false;
    }
    return true;
}

static bool rendezvous_begin(struct hoop_rendezvous *rendezvous, const struct hoop_frame_join *join)
{
    if (rendezvous->ranks != NULL) {
        return true;
    }
    rendezvous->ranks = calloc(join->n, sizeof(struct rendezvous_guest *));
    rendezvous->n = join->n;
    return rendezvous->ranks != NULL;
}

static void rendezvous_take_join(struct rendezvous_guest *guest, const struct hoop_frame_join *join,
                                 int *fds)
{
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    guest->join = *join;
    if (rendezvous->state == RENDEZVOUS_FAILED) {
        rendezvous_reject(guest);
        if (rendezvous->told >= rendezvous->expected) {
            rendezvous_destroy(rendezvous);
        }
        return;
    }
    if (!rendezvous_begin(rendezvous, join)) {
        hoop_control_refuse(guest->control, HOOP_OUT_OF_MEMORY, "no memory for the ranks");
        return;
    }
    /* told with the others if it does not agree, but it is no rank of theirs */
    guest->rank = join->rank < rendezvous->n ? join->rank : 0;
    if (!rendezvous_agrees(guest)) {
        return;
    }
    guest->wake_fd = fds[0];
    fds[0] = -1;
    rendezvous->ranks[guest->rank] = guest;
    rendezvous->arrived++;
    const uint64_t deadline = hoop_now_ns() + join->left_ms * HOOP_NS_PER_MS;
    if (rendezvous->arrived == 1 || deadline < rendezvous->deadline_ns) {
        rendezvous->deadline_ns = deadline;
        rendezvous->timeout_ms = join->timeout_ms;
        hoop_timer_start(rendezvous->timer, join->left_ms, 0);
    }
    if (rendezvous->arrived == rendezvous->n) {
        rendezvous_bind(rendezvous);
    }
}

/* ---- What a proven connection does -------------------------------------------------------- */

static void guest_message(void *arg, struct hoop_control *control, const union hoop_frame *frame,
                          int *fds)
{
    struct rendezvous_guest *guest = arg;
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const bool joined = guest->rank != RENDEZVOUS_NOBODY;
    if (frame->header.type == HOOP_FRAME_JOIN && !joined &&
        frame->join.rank == hoop_control_hello(control)->from) {
        rendezvous_take_join(guest, &frame->join, fds);
    } else if (frame->header.type == HOOP_FRAME_READY && joined && !guest->ready &&
               rendezvous->state == RENDEZVOUS_BINDING && guest->rank < rendezvous->bound) {
        guest->ready = true;
        rendezvous->ready++;
        if (rendezvous->ready == rendezvous->n) {
            rendezvous_go(rendezvous);
        } else {
            rendezvous_tell(rendezvous);
        }
    } else if (frame->header.type == HOOP_FRAME_REJECT && joined &&
               rendezvous->state == RENDEZVOUS_BINDING) {
        /* this rank cannot use what it got: nobody can go on without it */
        char text[HOOP_FAILURE_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "rank %u (pid %d, host %s): %.240s", guest->rank,
                       guest->join.pid, guest->join.host, frame->reject.text);
        rendezvous_fail(rendezvous, (hoop_result_t)frame->reject.code, (int)guest->rank, text);
    } else {
        hoop_control_refuse(control, HOOP_REMOTE_ERROR, "it sent an unexpected %s",
                            hoop_frame_name(frame->header.type));
    }
}

static void rendezvous_tell_lost(struct hoop_rendezvous *rendezvous, uint32_t lost)
{
    union hoop_frame frame;
    hoop_frame_init(&frame, HOOP_FRAME_LOST);
    frame.lost.rank = lost;
    for (struct rendezvous_guest *guest = rendezvous->guests; guest != NULL; guest = guest->next) {
        hoop_control_send(guest->control, &frame.header, NULL, 0);
    }
}

static void guest_closed(void *arg, struct hoop_control *control, const struct hoop_failure *why)
{
    struct rendezvous_guest *guest = arg;
    struct hoop_rendezvous *rendezvous = guest->rendezvous;
    const uint32_t rank = guest->rank;
    char text[HOOP_FAILURE_TEXT_BYTES];
    (void)control;
    (void)snprintf(text, sizeof(text), "rank %u (pid %d, host %s) ended during the join: %.200s",
                   rank, guest->join.pid, guest->join.host, why->text);
    if (rank != RENDEZVOUS_NOBODY) {
        rendezvous_mark_told(guest);
    }
    rendezvous_dismiss(guest);
    if (rank == RENDEZVOUS_NOBODY) {
        return;
    }
    if (rendezvous->state == RENDEZVOUS_RUNNING) {
        rendezvous_tell_lost(rendezvous, rank);
        if (rendezvous->guests == NULL) {
            rendezvous_destroy(rendezvous);
        }
        return;
    }
    rendezvous_fail(rendezvous, HOOP_REMOTE_ERROR, (int)rank, text);
}

static const struct hoop_control_owner rendezvous_guest_owner = {
    .message = guest_message,
    .closed = guest_closed,
};

static bool rendezvous_admit(void *arg, const struct hoop_frame_hello *hello,
                             struct hoop_admission *ret, struct hoop_failure *ret_failure)
{
    const struct hoop_rendezvous *rendezvous = arg;
    if (hello->kind != HOOP_HELLO_JOIN || strcmp(hello->meeting, rendezvous->meeting.name) != 0) {
        (void)hoop_failure_set(ret_failure, HOOP_NOT_AUTHENTICATED, -1,
                               "a join of another meeting came to %s", rendezvous->meeting.name);
        return false;
    }
    ret->secret = rendezvous->secret;
    ret->hand_out = !rendezvous->meeting.has_secret;
    return true;
}

static void rendezvous_opened(void *arg, struct hoop_control *control)
{
    struct hoop_rendezvous *rendezvous = arg;
    struct rendezvous_guest *guest =
        rendezvous->guest_count < RENDEZVOUS_GUESTS ? calloc(1, sizeof(*guest)) : NULL;
    if (guest == NULL) {
        hoop_control_destroy(control);
        return;
    }
    guest->rendezvous = rendezvous;
    guest->control = control;
    guest->rank = RENDEZVOUS_NOBODY;
    guest->wake_fd = -1;
    guest->next = rendezvous->guests;
    rendezvous->guests = guest;
    rendezvous->guest_count++;
    hoop_control_adopt(control, &rendezvous_guest_owner, guest);
}

static const struct hoop_listener_owner rendezvous_listener_owner = {
    .admit = rendezvous_admit,
    .opened = rendezvous_opened,
};

hoop_result_t hoop_rendezvous_serve(const struct hoop_meeting *meeting,
                                    struct hoop_failure *failure)
{
    for (const struct hoop_rendezvous *at = rendezvous_all; at != NULL; at = at->next) {
        if (at->listener != NULL && strcmp(at->meeting.name, meeting->name) == 0) {
            return HOOP_OK;
        }
    }
    struct hoop_rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    if (rendezvous == NULL) {
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a rendezvous");
    }
    rendezvous->meeting = *meeting;
    rendezvous->secret = meeting->secret;
    rendezvous->failure.rank = -1;
    rendezvous->segment = -1;
    hoop_result_t result = HOOP_OK;
    if (!meeting->has_secret) {
        result = hoop_random(&rendezvous->secret, sizeof(rendezvous->secret));
    }
    if (result == HOOP_OK) {
        result = hoop_timer_create(rendezvous_due, rendezvous, &rendezvous->timer);
    }
    if (result != HOOP_OK) {
        (void)hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
    } else {
        result = hoop_listener_create(meeting->name, &rendezvous_listener_owner, rendezvous,
                                      &rendezvous->listener, failure);
    }
    if (result != HOOP_OK) {
        rendezvous_destroy(rendezvous);
        return result;
    }
    rendezvous->next = rendezvous_all;
    rendezvous_all = rendezvous;
    return HOOP_OK;
}
