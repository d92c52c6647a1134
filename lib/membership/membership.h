/*
 * A rank's membership in a comm: how it joins, whom it then knows, and what keeps it informed of
 * the others afterwards. It joins at the leader of its machine (tree/leader.h), which sends it the
 * roster: comm id, the machine's shared segment, a wake descriptor of every rank here, and who and
 * where all others are. When all are ready, the comm is there.
 *
 * The connection to the leader stays open: with a pidfd of every process of the machine, end of
 * file there tells of a death at once; and what all must hear comes that way. Pairs of processes of
 * a machine connect when they first need something of each other: the descriptor of a region, a
 * link's blob.
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

#define HOOP_LEFT 1u /* for good */

struct hoop_roster;

enum hoop_event_kind {
    /* the other end's blob of a link (hoop_member_send_blob()): id is the lane, part my direction,
     * 1: I send */
    HOOP_EVENT_BLOB,
    /* likewise, the data connection that hoop_member_dial() asked for, or one that rank made */
    HOOP_EVENT_SOCKET,
    /* a region that hoop_member_fetch() asked for can be used: id, and part its generation */
    HOOP_EVENT_ANSWER
};

struct hoop_event {
    struct hoop_list_node node; /* the queue's (comm/events.h), as the next */
    bool unwanted;              /* stands for one to come, which goes where this goes */
    enum hoop_event_kind kind;
    uint32_t rank; /* whom it is about */
    uint64_t id;
    uint32_t part;
    int fd;                      /* SOCKET: owned; -1: see the failure */
    struct hoop_secret key;      /* SOCKET: that its two ends have */
    struct hoop_failure failure; /* SOCKET, ANSWER; code HOOP_OK: it is well */
    struct hoop_blob blob;       /* BLOB */
};

/* What the comm wants to hear. Called on the service thread, while the member exists; must not
 * block and not call back. */
struct hoop_member_events {
    /* rank's process is dead, unreachable or silent. why completes "rank 3 (pid 7, host h) ..." */
    void (*lost)(void *arg, uint32_t rank, const char *why);
    /* what links and mappings of the comm wait for; a socket is moved: hoop_fork_close() */
    void (*event)(void *arg, const struct hoop_event *event);
    /* The roster is complete, the segment mapped, nobody is in yet: what this rank writes there now
     * all ranks of the machine see when their join is complete. NULL: it has nothing to say */
    hoop_result_t (*met)(void *arg, const struct hoop_roster *roster);
    /* heartbeat, every min(1 s, dead_after / 10): advance my pulse; read rank's, 0 while its caller
     * has not begun to use the comm: that is no silence */
    void (*beat)(void *arg);
    uint64_t (*pulse)(void *arg, uint32_t rank);
    /* has this rank said goodbye? Its end is no loss then. 0: no; HOOP_LEFT; or it went on in the
     * comm that survivors agreed on under this number */
    uint32_t (*left)(void *arg, uint32_t rank);
    /* rank, on another machine, said goodbye: from now on left() says how */
    void (*gone)(void *arg, uint32_t rank, uint32_t how);
    /* a rank of another machine has failed, and with it the comm */
    void (*failed)(void *arg, const struct hoop_failure *failure);
    /* is an operation of mine waiting for others? Silence counts only then */
    bool (*waiting)(void *arg);
    void *arg;
};

/* The first comm of a row in which each was made of the failed one before (survivors.h). */
struct hoop_lineage {
    struct hoop_secret key; /* by which its ranks know each other */
    uint32_t n;             /* that it had */
    uint32_t ranks[];       /* [n of this comm], rising: who they were there */
};

struct hoop_join {
    struct hoop_rendezvous rendezvous;
    const struct hoop_lineage *lineage; /* copied; NULL: it begins with this comm */
    bool serve; /* make the leader here if this process does not serve it yet */
    uint32_t n, rank;
    uint64_t timeout_ms; /* > 0 */
    uint64_t dead_after_ms;
    uint64_t segment_bytes; /* of the comm's shared memory; the same from all ranks */
    struct hoop_agreement agreement;
    struct hoop_cpus cpus;
    bool no_rdma; /* I cannot reach other machines by RDMA */
    bool no_cma;  /* nobody is to read this process's memory */
    int wake_fd;  /* this rank's eventfd, borrowed until hoop_member_destroy(); peers write to it */
    char comm_name[HOOP_COMM_NAME_BYTES];
};

/* What a rank knows of another after the join. */
struct hoop_peer {
    uint64_t process;    /* hoop_process_id() there */
    uint64_t process_at; /* where that lies in its memory; 0: nobody is to read there */
    int32_t pid;         /* as seen here; 0 when it cannot be seen */
    int wake_fd;         /* write 8 bytes to wake the rank; not the caller's; -1: elsewhere */
    uint32_t machine;    /* its number, by the lowest rank on each */
    bool same_process, same_machine;
    char host[64];
};

/* "rank 3 (pid 7, host h)"; without the pid where it cannot be seen. */
void hoop_peer_describe(const struct hoop_peer *peer, uint32_t rank, char *ret_text, size_t bytes);

struct hoop_roster {
    uint64_t comm_id; /* random, the same on all ranks */
    uint32_t n;
    uint32_t machines;      /* how many */
    uint32_t here;          /* how many of the ranks are on this one */
    uint64_t dead_after_ms; /* the smallest of all ranks */
    bool need_fence;        /* some process has no membarrier: publishers fence themselves */
    bool crowded;           /* the ranks of this machine outnumber the CPUs that they may use */
    bool oversubscribed;    /* those of some machine do */
    bool no_rdma;           /* some rank has none */
    void
        *segment; /* this machine's shared memory, mapped, zeroed at birth, not inherited by fork */
    uint64_t segment_bytes;
    struct hoop_peer *peers; /* [n], by rank; mine included */
};

/* A rank's membership in a comm, owned by the service thread from start to destroy. */
struct hoop_member;

/*
 * Begins to join; returns at once. job is completed when all ranks are in, with events flowing
 * from then on, or with a failure: HOOP_TIMEOUT naming the ranks that never arrived,
 * HOOP_NOT_AUTHENTICATED, HOOP_MISMATCH (nranks or settings differ), HOOP_INVALID_USAGE (a rank
 * came twice), ... join and events are copied, job is borrowed until complete. On failure of this
 * call itself nothing was started.
 */
hoop_result_t hoop_member_create(const struct hoop_join *join,
                                 const struct hoop_member_events *events, struct hoop_job *job,
                                 struct hoop_member **ret_member);

/* After the job completed well: the roster, owned by the member. */
const struct hoop_roster *hoop_member_roster(const struct hoop_member *member);

/*
 * Ends the membership, joined or not: no event comes after it returns. Cancels a join under way
 * (its job completes with HOOP_ABORTED). Unmaps the segment. NULL is allowed.
 */
void hoop_member_destroy(struct hoop_member *member);

/* The join, if it is not complete, completes with HOOP_ABORTED. Non-blocking. */
void hoop_member_cancel(struct hoop_member *member);

/*
 * Asks rank's process for a region; an ANSWER follows, always. Non-blocking, callable while
 * driving the comm; the caller asks once per region.
 */
void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation);

/* Tells all ranks of other machines that the comm has failed, once. Copied. Non-blocking. */
void hoop_member_raise(struct hoop_member *member, const struct hoop_failure *failure);

/*
 * Expects rank's data connection of that lane, once. Where: at an endpoint that is opened if need
 * be, on the interface that reaches the other machines, or loopback if there are none. Blocks
 * shortly.
 */
hoop_result_t hoop_member_data_address(struct hoop_member *member, uint32_t rank, uint32_t lane,
                                       struct hoop_address *ret);

/* Connects to rank's data_connection for the link in this lane that sends to it; a SOCKET
 * follows, always. */
void hoop_member_dial(struct hoop_member *member, uint32_t rank, uint32_t lane,
                      const struct hoop_address *address);

/* Sends my end's blob of a link to the rank at its other end. Copied. Non-blocking. */
void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob);

/* The end of the process is near: hoop_linger(), which is also done at exit(). */
hoop_result_t hoop_member_linger(void);

#endif
