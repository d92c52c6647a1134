/*
 * Bootstrap: how the ranks of a new comm find and trust each other, and what keeps them informed of
 * each other afterwards.
 *
 *      rank ---- join ----> rendezvous (a listener in one process of each machine)
 *      rank ---- join ---->    |  waits for all n, makes the machine's shared segment, then
 *           <--- roster ---    |  sends its ranks the roster: comm id, segment, a wake descriptor
 *           ---- ready --->    |  of every rank here, and who and where all others are; when all
 *           <--- go -------    |  are ready: go.
 *                              |
 *      only with several machines: each machine's rendezvous joins its ranks at the hub, a TCP port
 *      at the meeting's address. The hub arranges the machines as a tree of TCP connections; down
 *      it travel roster and go, up it ready, and along it, for the life of the comm, everything
 *      that all must hear (losses, goodbyes, failures) and what links tell each other (blobs).
 *
 * On a machine, every connection is an abstract Unix socket (SOCK_SEQPACKET, nothing in the file
 * system) whose peer must have this process's uid (SO_PEERCRED). Every connection, these and TCP,
 * begins with the challenge and response of base/auth.h. Messages are fixed-size structs, checked
 * field by field (base/frame.h).
 *
 * The join connections stay open: with a pidfd of every process of the machine, end of file there
 * tells of a death at once. Pairs of processes of a machine connect when they first need something
 * of each other: the descriptor of a region, a link's blob.
 *
 * Functions may be called from any thread but the service thread, unless said otherwise.
 */
#ifndef HOOP_BOOTSTRAP_H
#define HOOP_BOOTSTRAP_H

#include "base/address.h"
#include "base/auth.h"
#include "base/settings.h"
#include "service.h"
#include "transports/blob.h"

#define HOOP_MEETING_NAME_BYTES 64
#define HOOP_MEETING_ADDRESSES 16
#define HOOP_COMM_NAME_BYTES 32

/* Where the ranks of one comm meet, and with what they prove that they belong. */
struct hoop_meeting {
    char name[HOOP_MEETING_NAME_BYTES]; /* abstract socket name, a C string */
    bool has_secret; /* false: the rendezvous hands one to every process of its uid */
    struct hoop_secret secret;
    /*
     * Several machines: where the hub may be, in the order in which to try them; the process that
     * serves opens it at the first that it can. 0: one machine. Needs has_secret.
     */
    uint32_t address_count;
    struct hoop_address addresses[HOOP_MEETING_ADDRESSES];
    /* Where others learn of the hub's address (lib/meeting_file.h), in the process that serves a
     * meeting at a file; else NULL. Owned: hoop_meeting_finish(). */
    char *file;
    const char *hint; /* ends the sentence that somebody did not come; NULL: none. Static */
};

/* Wipes the secret, frees. */
void hoop_meeting_finish(struct hoop_meeting *meeting);

/*
 * hoop_get_unique_id(): a new meeting with a fresh name and secret; this process serves its
 * rendezvous from now on until the comm exists.
 */
hoop_result_t hoop_meeting_create(hoop_unique_id_t *ret_id);
/* The same for ranks that are all on this machine: no port is opened. */
hoop_result_t hoop_meeting_create_here(hoop_unique_id_t *ret_id);
/* HOOP_INVALID_ARGUMENT: the bytes are no unique id of this version. */
hoop_result_t hoop_meeting_from_id(const hoop_unique_id_t *id, struct hoop_meeting *ret);
/*
 * The next meeting of the launcher's job (see hoop_comm_init_env): the k-th call of a process
 * gives the k-th meeting. *ret_n and *ret_rank from WORLD_SIZE and RANK (also Open MPI's, Slurm's
 * and PMI's names); 1 and 0 without them. HOOP_INIT says where. Bad or contradictory values:
 * HOOP_INVALID_USAGE naming variable and value. timeout_ms: a name may be looked up, or a file
 * awaited, for that long. To be finished.
 */
hoop_result_t hoop_meeting_from_env(uint64_t timeout_ms, struct hoop_meeting *ret, uint32_t *ret_n,
                                    uint32_t *ret_rank);

/*
 * The k-th meeting at a url of this process: env://, tcp://host:port, file:///path, with n and rank
 * from the caller. HOOP_INVALID_ARGUMENT quotes the url and says what is expected.
 */
hoop_result_t hoop_meeting_from_url(const char *url, uint32_t n, uint32_t rank, uint64_t timeout_ms,
                                    struct hoop_meeting *ret);

/* What all ranks must have set alike; a difference fails the join of all, naming rank, setting
 * and both values. */
struct hoop_agreement {
    uint32_t algo, order, lanes;
    uint32_t crowded; /* not compared: the roster's, once the comm is there */
    uint64_t chunk_bytes, oneshot_bytes, bruck_bytes;
    uint32_t transport, check; /* enum hoop_transport_choice, hoop_check */
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
    /* rank, on another machine, said goodbye: from now on left() is true of it */
    void (*gone)(void *arg, uint32_t rank);
    /* a rank of another machine has failed, and with it the comm */
    void (*failed)(void *arg, const struct hoop_failure *failure);
    /*
     * The data connection of a link with rank: the one that hoop_member_dial() asked for (sending),
     * or one that rank made to me. fd is moved: close with hoop_fork_close(). Or it can't be had:
     * fd -1, and the failure says why.
     */
    void (*stream)(void *arg, uint32_t rank, uint32_t lane, bool sending, int fd,
                   const struct hoop_failure *failure);
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
    int wake_fd;      /* write 8 bytes to wake the rank; owned by the roster; -1: elsewhere */
    uint32_t machine; /* its number, by the lowest rank on each */
    bool same_process, same_machine;
    char host[64];
};

struct hoop_roster {
    uint64_t comm_id; /* random, the same on all ranks */
    uint32_t epoch;
    uint32_t n;
    uint32_t machines; /* how many */
    uint32_t here;     /* how many of the ranks are on this one */
    bool need_fence;   /* some process has no membarrier: publishers fence themselves */
    bool crowded;      /* some rank sees fewer CPUs than ranks on this machine */
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

/*
 * Asks rank's process for a region; `fetched` follows, always. Non-blocking, callable while
 * driving the comm; the caller asks once per region.
 */
void hoop_member_fetch(struct hoop_member *member, uint32_t rank, uint64_t region_id,
                       uint32_t generation);

/* Tells all ranks of other machines that the comm has failed, once. Copied. Non-blocking. */
void hoop_member_raise(struct hoop_member *member, const struct hoop_failure *failure);

/*
 * Where this process takes in data connections for this member, opening a door if need be: on the
 * interface that reaches the other machines, or loopback if there are none. Blocks shortly.
 */
hoop_result_t hoop_member_dock(struct hoop_member *member, struct hoop_address *ret);

/* Connects to rank's dock for the link in this lane that sends to it; `stream` follows, always. */
void hoop_member_dial(struct hoop_member *member, uint32_t rank, uint32_t lane,
                      const struct hoop_address *address);

/* Sends my end's blob of a link to the rank at its other end. Copied. Non-blocking. */
void hoop_member_send_blob(struct hoop_member *member, uint32_t rank, uint32_t lane, bool sending,
                           const struct hoop_blob *blob);

#endif
