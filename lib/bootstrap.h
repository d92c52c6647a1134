/*
 * Bootstrap: how the ranks of a new comm find and trust each other on one machine, and what keeps
 * them informed of each other afterwards.
 *
 *      rank ---- join ----> rendezvous (a listener of one process: whoever made the unique id,
 *      rank ---- join ---->             or rank 0 of an environment job)
 *      rank ---- join ---->    waits for all n, makes the comm's shared segment, then
 *           <--- roster ---    sends everyone the roster: comm id, segment, a wake descriptor of
 *           ---- ready --->    every rank, and the address of every process; when all are
 *           <--- go -------    ready: go.
 *
 * Every connection is an abstract Unix socket (SOCK_SEQPACKET, nothing in the file system) whose
 * peer must have this process's uid (SO_PEERCRED), and begins with the challenge and response of
 * base/auth.h. Messages are fixed-size structs, checked field by field (base/frame.h).
 *
 * The join connections stay open: with a pidfd of every process, end of file there tells of a
 * death at once. Pairs of processes connect when they first need something of each other: the
 * descriptor of a region, a link's blob.
 *
 * Functions may be called from any thread but the service thread, unless said otherwise.
 */
#ifndef HOOP_BOOTSTRAP_H
#define HOOP_BOOTSTRAP_H

#include "base/auth.h"
#include "base/settings.h"
#include "service.h"
#include "transports/blob.h"

#define HOOP_MEETING_NAME_BYTES 64
#define HOOP_COMM_NAME_BYTES 32

/* Where the ranks of one comm meet, and with what they prove that they belong. */
struct hoop_meeting {
    char name[HOOP_MEETING_NAME_BYTES]; /* abstract socket name, a C string */
    bool has_secret; /* false: the rendezvous hands one to every process of its uid */
    struct hoop_secret secret;
};

/*
 * hoop_get_unique_id(): a new meeting with a fresh name and secret; this process serves its
 * rendezvous from now on until the comm exists.
 */
hoop_result_t hoop_meeting_create(hoop_unique_id_t *ret_id);
/* HOOP_INVALID_ARGUMENT: the bytes are no unique id of this version. */
hoop_result_t hoop_meeting_from_id(const hoop_unique_id_t *id, struct hoop_meeting *ret);
/*
 * The next meeting of the launcher's job (see hoop_comm_init_env): the k-th call of a process
 * gives the k-th meeting. *ret_n and *ret_rank from WORLD_SIZE and RANK (also Open MPI's, Slurm's
 * and PMI's names); 1 and 0 without them. Bad or contradictory values: HOOP_INVALID_USAGE naming
 * variable and value.
 */
hoop_result_t hoop_meeting_from_env(struct hoop_meeting *ret, uint32_t *ret_n, uint32_t *ret_rank);

/* What all ranks must have set alike; a difference fails the join of all, naming rank, setting
 * and both values. */
struct hoop_agreement {
    uint32_t algo, order, lanes;
    uint32_t crowded; /* not compared: the roster's, once the comm is there */
    uint64_t chunk_bytes, oneshot_bytes;
};

/* What the comm wants to hear. Called on the service thread, while the member exists; must not
 * block and not call back into bootstrap. */
struct hoop_member_events {
    /* rank's process is dead, unreachable or silent. why completes "rank 3 (pid 7, host h) ..." */
    void (*lost)(void *arg, uint32_t rank, const char *why);
    /* a peer's end of a link: hoop_member_send_blob() of rank `from`, for my link with it */
    void (*blob)(void *arg, uint32_t from, uint32_t lane, bool from_sends,
                 const struct hoop_blob *blob);
    /* a region asked for by hoop_member_fetch() can now be used; or can't (failure) */
    void (*fetched)(void *arg, uint32_t rank, uint64_t region_id, uint32_t generation,
                    const struct hoop_failure *failure);
    /* heartbeat, every min(1 s, dead_after / 5): advance my pulse; read rank's, 0 while its caller
     * has not begun to use the comm: that is no silence */
    void (*beat)(void *arg);
    uint64_t (*pulse)(void *arg, uint32_t rank);
    /* has this rank said goodbye? Its end is no loss then */
    bool (*left)(void *arg, uint32_t rank);
    /* is an operation of mine waiting for others? Silence counts only then */
    bool (*waiting)(void *arg);
    void *arg;
};

struct hoop_join {
    struct hoop_meeting meeting;
    bool serve; /* make the rendezvous here if this process does not serve it yet */
    uint32_t n, rank;
    uint64_t timeout_ms; /* > 0 */
    uint64_t dead_after_ms;
    uint64_t segment_bytes; /* of the comm's shared memory; the same from all ranks */
    struct hoop_agreement agreement;
    bool crowded; /* I see fewer CPUs than ranks on this machine */
    int wake_fd;  /* this rank's eventfd, borrowed until hoop_member_destroy(); peers write to it */
    char comm_name[HOOP_COMM_NAME_BYTES];
};

/* What a rank knows of another after the join. */
struct hoop_peer {
    uint64_t process; /* hoop_process_id() there */
    int32_t pid;      /* as seen here; 0 when it cannot be seen */
    int wake_fd;      /* write 8 bytes to wake the rank; owned by the roster */
    bool same_process;
    char host[64];
};

struct hoop_roster {
    uint64_t comm_id; /* random, the same on all ranks */
    uint32_t epoch;
    uint32_t n;
    bool need_fence; /* some process has no membarrier: publishers fence themselves */
    bool crowded;    /* some rank sees fewer CPUs than ranks on this machine */
    void *segment;   /* the shared memory, mapped, zeroed at birth, not inherited by fork */
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

/*
 * Asks rank's process for a region; `fetched` follows, always. Non-blocking, callable while
 * driving the comm; the caller asks once per region.
 */
void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation);

/* Sends my end's blob of a link to the rank at its other end. Copied. Non-blocking. */
void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob);

#endif
