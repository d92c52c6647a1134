/*
 * A rank's membership in a comm: how it joins, what it then knows of the others, and how it learns
 * of their end. It joins at the leader of its machine (tree/leader.h), which sends it the roster:
 * comm id, the machine's shared segment, a wake descriptor of every rank here, and where all ranks
 * are. When all are ready the comm exists.
 *
 * The connection to the leader stays open. Its end, like a pidfd, shows a death at once, and it
 * brings the news that all ranks must hear. Two processes connect when one first needs something
 * from the other: the descriptor of a region, or a link's blob.
 *
 * Functions may be called from any thread but the service thread, unless said otherwise.
 */
#ifndef HOOP_MEMBERSHIP_H
#define HOOP_MEMBERSHIP_H

#include "base/list.h"
#include "base/settings.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"
#include "runtime/wait.h"
#include "transports/blob.h"

#define HOOP_LEFT 1u /* how a rank left: for good */

struct hoop_roster;

enum hoop_event_kind {
    /* a blob from a link's other end (hoop_member_send_blob()): id is the lane, part 1 if I send */
    HOOP_EVENT_BLOB,
    /* a data connection that hoop_member_dial() asked for, or the other rank made; likewise */
    HOOP_EVENT_SOCKET,
    /* the region that hoop_member_fetch() asked for is usable, or failed; part: its generation */
    HOOP_EVENT_ANSWER
};

struct hoop_event {
    struct hoop_list_node node; /* of a queue (comm/events.h), like unwanted */
    bool unwanted;              /* stands for an event to come, which is dropped with it */
    enum hoop_event_kind kind;
    uint32_t rank; /* the other rank */
    uint64_t id;
    uint32_t part;
    int fd;                      /* SOCKET: owned; -1: failed, see failure */
    struct hoop_secret key;      /* SOCKET: known only to its two ends */
    struct hoop_failure failure; /* SOCKET, ANSWER: HOOP_OK if it succeeded */
    struct hoop_blob blob;       /* BLOB */
};

/* What the comm is told, on the service thread. These functions must not block or call back. */
struct hoop_member_events {
    /* rank's process is dead, unreachable or silent. why completes "rank 3 (pid 7, host h) ..." */
    void (*lost)(void *arg, uint32_t rank, const char *why);
    /* an event for links or mappings of the comm; a socket becomes the comm's: hoop_fork_close() */
    void (*event)(void *arg, const struct hoop_event *event);
    /* the roster is complete and the segment mapped, but nobody is in yet: all ranks of the machine
     * see what this rank writes to the segment now, once their join is complete. May be NULL */
    hoop_result_t (*met)(void *arg, const struct hoop_roster *roster);
    /* heartbeat, every min(1 s, dead_after / 10): advances this rank's pulse. pulse reads rank's; 0
     * while its caller does not use the comm yet, which is not silence */
    void (*beat)(void *arg);
    uint64_t (*pulse)(void *arg, uint32_t rank);
    /* has rank said goodbye, so that its end is no loss? 0: no; HOOP_LEFT: for good; else the
     * number of the survivors' comm in which it goes on */
    uint32_t (*left)(void *arg, uint32_t rank);
    /* rank, on another machine, said goodbye; left() must now return how */
    void (*gone)(void *arg, uint32_t rank, uint32_t how);
    /* a rank of another machine has failed, and so has the comm */
    void (*failed)(void *arg, const struct hoop_failure *failure);
    /* does an operation wait for other ranks? Only then does silence count */
    bool (*waiting)(void *arg);
    void *arg;
};

/* The first comm of a series in which each was made from the failed one before (survivors.h). */
struct hoop_lineage {
    struct hoop_secret key; /* by which its ranks know each other */
    uint32_t n;             /* size of the first comm */
    uint32_t ranks[];       /* [n of this comm], ascending: their ranks in the first comm */
};

struct hoop_join {
    struct hoop_rendezvous rendezvous;
    const struct hoop_lineage *lineage; /* copied; NULL if this comm is the first */
    bool serve; /* serve the rendezvous here, if this process does not already */
    uint32_t n, rank;
    uint64_t timeout_ms; /* > 0 */
    uint64_t dead_after_ms;
    uint64_t segment_bytes; /* of the comm's shared memory; the same on all ranks */
    struct hoop_agreement agreement;
    struct hoop_cpus cpus;
    bool no_cma; /* others must not read this process's memory */
    int wake_fd; /* this rank's eventfd, borrowed until hoop_member_destroy(); peers write to it */
};

/* What a rank knows of another after the join. */
struct hoop_peer {
    uint64_t process;    /* hoop_process_id() there */
    uint64_t process_at; /* address of that number in its memory; 0: do not read there */
    int32_t pid;         /* as seen here; 0 if it cannot be seen */
    int wake_fd;         /* write 8 bytes to wake the rank; not the caller's; -1: elsewhere */
    uint32_t machine;    /* machines are numbered by their lowest ranks */
    bool same_process, same_machine;
    char host[64];
};

/* "rank 3 (pid 7, host h)"; without the pid if it cannot be seen. */
void hoop_peer_describe(const struct hoop_peer *peer, uint32_t rank, char *ret_text, size_t bytes);

struct hoop_roster {
    uint64_t comm_id; /* random, the same on all ranks */
    uint32_t n;
    uint32_t machines;       /* number of machines */
    uint32_t here;           /* number of ranks on this one */
    uint64_t dead_after_ms;  /* the smallest of all ranks */
    bool need_fence;         /* some process has no membarrier: publishers must fence */
    bool crowded;            /* this machine's ranks outnumber the CPUs that they may use */
    uint32_t oversubscribed; /* ranks that share a CPU where most do; 0: every rank has its own */
    bool no_rdma;            /* some rank has no RDMA */
    void *segment; /* this machine's shared memory, mapped, initially zero, not inherited by fork */
    uint64_t segment_bytes;
    struct hoop_peer *peers; /* [n], by rank, including this one */
};

/* A rank's membership in a comm, owned by the service thread from create to destroy. */
struct hoop_member;

/*
 * Begins to join and returns at once. job completes when all ranks are in, and events may come from
 * then on; or it fails: HOOP_TIMEOUT naming the ranks that did not arrive, HOOP_NOT_AUTHENTICATED,
 * HOOP_MISMATCH (different n or settings), HOOP_INVALID_USAGE (a rank came twice), ... join and
 * events are copied, job is borrowed until complete. *ret_member is set before the first event,
 * which may come before the call returns. If the call itself fails nothing was started, and it is
 * not set.
 */
hoop_result_t hoop_member_create(const struct hoop_join *join,
                                 const struct hoop_member_events *events, struct hoop_job *job,
                                 _Atomic(struct hoop_member *) *ret_member);

/* The roster, owned by the member. Valid once the job has succeeded. */
const struct hoop_roster *hoop_member_roster(const struct hoop_member *member);

/*
 * Ends the membership, joined or not: no event comes after it returns. A join under way is
 * cancelled (its job completes with HOOP_ABORTED). Unmaps the segment. NULL is allowed.
 */
void hoop_member_destroy(struct hoop_member *member);

/* Completes a join that is under way with HOOP_ABORTED. Non-blocking. */
void hoop_member_cancel(struct hoop_member *member);

/*
 * Asks rank's process for a region; an ANSWER always follows. Non-blocking, callable while driving
 * the comm. Ask only once per region.
 */
void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation);

/* Tells all ranks of other machines, once, that the comm has failed. Copied. Non-blocking. */
void hoop_member_raise(struct hoop_member *member, const struct hoop_failure *failure);

/*
 * Expects rank's data connection for that lane, once. *ret is the address to dial: an endpoint,
 * which is opened if need be, on the interface that reaches the other machines, or on loopback if
 * there are none. Blocks briefly.
 */
hoop_result_t hoop_member_data_address(struct hoop_member *member, uint32_t rank, uint32_t lane,
                                       struct hoop_address *ret);

/* Dials the address for the link in this lane that sends to rank; a SOCKET always follows. */
void hoop_member_dial(struct hoop_member *member, uint32_t rank, uint32_t lane,
                      const struct hoop_address *address);

/* Sends the blob of this end of a link to the rank at its other end. Copied. Non-blocking. */
void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob);

/* Before the process ends: hoop_linger(), which also runs at exit(). */
hoop_result_t hoop_member_linger(void);

#endif
