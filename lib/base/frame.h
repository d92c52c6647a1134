/*
 * The messages of control connections, as they lie on the wire, and their checks.
 *
 *      join:  HELLO -> [<- SECRET] <- CHALLENGE, PROOF ->, <- WELCOME, JOIN ->
 *             <- ROSTER, <- ROSTER_PART ..., READY ->, <- GO, then <- LOST when a rank is lost;
 *             <- REJECT instead of anything, once
 *      peer:  the same beginning, then REGION_GET -> <- REGION_IS, <- REGION_DEAD,
 *             REGION_DROPPED ->, BLOB ->
 *
 * Between machines the same messages travel without descriptors, as a stream:
 *
 *      machine: HELLO ... WELCOME, <- GATE, MACHINE ->, JOIN -> ..., <- TREE, to one: <- ROSTER,
 *             <- ROSTER_PART ...; <- REJECT instead of anything, once; REJECT ->; READY -> from one
 *      branch:  HELLO ... WELCOME, GATE both ways, <- ROSTER, <- ROSTER_PART ..., READY ->, <- GO,
 *             then BLOB, LOST, GONE, FAIL and BEAT both ways
 *      data:  HELLO ... WELCOME, and from then on what the transport says
 *
 * One message is one packet: a header and the fixed fields of its type, little-endian, naturally
 * aligned, no padding. hoop_frame_check() is pure: what it lets through has the length that its
 * type says, exactly the descriptors that belong to it, every index below its limit and
 * every string ended. What needs a comm to judge (is this rank below n?) the reader of the field
 * checks. No message is larger than union hoop_frame.
 */
#ifndef HOOP_BASE_FRAME_H
#define HOOP_BASE_FRAME_H

#include "base/address.h"
#include "base/auth.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define HOOP_FRAME_MAGIC 0x706f6f68u /* "hoop" */
#define HOOP_FRAME_VERSION 2u
#define HOOP_FRAME_MAX_RANKS 4096u
#define HOOP_FRAME_MAX_FDS 32u /* of one message */
#define HOOP_FRAME_MAX_LANES 64u
#define HOOP_FRAME_MAX_SEGMENT_BYTES (1ull << 40)
#define HOOP_FRAME_MAX_MS 86400000ull /* a day */
#define HOOP_FRAME_NAME_BYTES 64
#define HOOP_FRAME_COMM_NAME_BYTES 32
#define HOOP_FRAME_BLOB_BYTES 128
#define HOOP_FRAME_WHY_BYTES 160

enum hoop_frame_type {
    HOOP_FRAME_HELLO = 1,
    HOOP_FRAME_SECRET,
    HOOP_FRAME_CHALLENGE,
    HOOP_FRAME_PROOF,
    HOOP_FRAME_WELCOME,
    HOOP_FRAME_REJECT,
    HOOP_FRAME_JOIN,
    HOOP_FRAME_ROSTER,
    HOOP_FRAME_ROSTER_PART,
    HOOP_FRAME_READY,
    HOOP_FRAME_GO,
    HOOP_FRAME_LOST,
    HOOP_FRAME_REGION_GET,
    HOOP_FRAME_REGION_IS,
    HOOP_FRAME_REGION_DEAD,
    HOOP_FRAME_REGION_DROPPED,
    HOOP_FRAME_BLOB,
    HOOP_FRAME_MACHINE,
    HOOP_FRAME_TREE,
    HOOP_FRAME_GATE,
    HOOP_FRAME_GONE,
    HOOP_FRAME_FAIL,
    HOOP_FRAME_BEAT,
    HOOP_FRAME_TYPE_COUNT
};

struct hoop_frame_header {
    uint32_t magic;
    uint16_t type;
    uint16_t version;
    uint32_t bytes; /* of the whole message */
    uint32_t reserved;
};

enum hoop_hello_kind {
    HOOP_HELLO_JOIN = 1, /* a rank, to the rendezvous of its machine */
    HOOP_HELLO_PEER,     /* a rank, to a rank of its machine */
    HOOP_HELLO_MACHINE,  /* a machine's rendezvous, to the hub */
    HOOP_HELLO_BRANCH,   /* a machine's rendezvous, to that of its parent in the tree */
    HOOP_HELLO_DATA      /* a rank, to a rank: the connection becomes a link's */
};

struct hoop_frame_hello {
    struct hoop_frame_header header;
    uint32_t kind;
    uint32_t want_secret; /* 1: I have none, tell me (the kernel vouches for both of us) */
    uint64_t comm_id;     /* peer, data */
    uint32_t from, to;    /* ranks; a joiner is `from`, `to` is 0; branch: machines */
    uint32_t epoch;
    uint32_t lane;                       /* data; else 0 */
    char meeting[HOOP_FRAME_NAME_BYTES]; /* join, machine, branch */
    uint8_t nonce[HOOP_NONCE_BYTES];
};

struct hoop_frame_secret {
    struct hoop_frame_header header;
    uint8_t secret[HOOP_SECRET_BYTES];
};

struct hoop_frame_challenge {
    struct hoop_frame_header header;
    uint8_t nonce[HOOP_NONCE_BYTES];
    uint8_t mac[HOOP_MAC_BYTES]; /* of the hello and the nonce */
};

struct hoop_frame_proof {
    struct hoop_frame_header header;
    uint8_t mac[HOOP_MAC_BYTES]; /* of the hello and the challenge */
};

/* REJECT, FAIL. rank -1: nobody's fault. HOOP_IN_PROGRESS in a REJECT: come back later. */
struct hoop_frame_reject {
    struct hoop_frame_header header;
    int32_t code;
    int32_t rank;
    char text[HOOP_FAILURE_TEXT_BYTES];
};

struct hoop_frame_join { /* with the rank's wake descriptor, on one machine */
    struct hoop_frame_header header;
    uint32_t rank, n;
    uint64_t process;
    uint64_t start_time; /* of the process, in ticks since boot: tells a reused pid */
    int32_t pid;
    uint32_t no_membarrier;
    uint64_t timeout_ms;
    uint64_t left_ms; /* of it */
    uint64_t dead_after_ms;
    uint64_t segment_bytes;
    uint32_t algo, order, lanes;
    uint32_t crowded; /* this rank sees fewer CPUs than ranks */
    uint64_t chunk_bytes, oneshot_bytes, bruck_bytes;
    uint32_t transport, check;
    char host[HOOP_FRAME_NAME_BYTES];
    char listener[HOOP_FRAME_NAME_BYTES];
    char comm_name[HOOP_FRAME_COMM_NAME_BYTES];
};

struct hoop_frame_roster { /* with the segment's descriptor, on one machine */
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint32_t epoch, n;
    uint32_t need_fence;
    uint32_t crowded; /* some rank does */
    uint64_t segment_bytes;
    uint64_t server;        /* hoop_process_id() where the rendezvous is */
    uint64_t dead_after_ms; /* the smallest of all ranks: how often to give a sign of life */
    uint32_t machines;      /* how many the ranks are on */
    uint32_t reserved;
    struct hoop_address address; /* of the receiver's machine, port 0: how the others reach it */
};

struct hoop_frame_entry {
    uint64_t process;
    uint64_t start_time;
    int32_t pid;
    uint16_t machine; /* number of its machine, by the lowest rank on each */
    uint16_t has_fd;  /* 1: its wake descriptor comes along: it is on the receiver's machine */
    char host[HOOP_FRAME_NAME_BYTES];
    char listener[HOOP_FRAME_NAME_BYTES];
};

struct hoop_frame_roster_part { /* with the wake descriptors that the entries say, in order */
    struct hoop_frame_header header;
    uint32_t first, count;
    struct hoop_frame_entry entries[HOOP_FRAME_MAX_FDS]; /* only count are sent */
};

struct hoop_frame_plain { /* WELCOME, READY, GO */
    struct hoop_frame_header header;
};

struct hoop_frame_lost {
    struct hoop_frame_header header;
    uint32_t rank;
    uint32_t certain; /* 0: its connection ended, who can see its process knows better */
    char why[HOOP_FRAME_WHY_BYTES]; /* completes "rank 3 (...)"; may be empty if not certain */
};

struct hoop_frame_rank { /* GONE: it said goodbye */
    struct hoop_frame_header header;
    uint32_t rank;
    uint32_t reserved;
};

struct hoop_frame_beat { /* a sign of life */
    struct hoop_frame_header header;
    uint32_t waiting; /* 1, from a rank: an operation of mine waits for others */
    uint32_t reserved;
};

struct hoop_frame_machine {
    struct hoop_frame_header header;
    struct hoop_address address; /* where my children in the tree may reach me */
    uint64_t process;
    char host[HOOP_FRAME_NAME_BYTES];
};

struct hoop_frame_tree {
    struct hoop_frame_header header;
    uint32_t machine, machines; /* which one you are, of how many */
    struct hoop_address parent; /* of machine (i - 1) / 2; none for machine 0 */
};

struct hoop_frame_gate { /* who is at this end of a branch */
    struct hoop_frame_header header;
    uint32_t machine;
    int32_t pid;
    uint64_t process;
};

struct hoop_frame_region { /* REGION_GET, REGION_DEAD, REGION_DROPPED */
    struct hoop_frame_header header;
    uint64_t id;
    uint32_t generation;
    uint32_t reserved;
};

struct hoop_frame_region_is { /* with the region's descriptor, if code is HOOP_OK */
    struct hoop_frame_header header;
    uint64_t id;
    uint32_t generation;
    uint32_t kind;
    uint64_t bytes;
    int32_t code;
    uint32_t reserved;
};

struct hoop_frame_blob {
    struct hoop_frame_header header;
    uint32_t from, to; /* ranks */
    uint32_t lane;
    uint32_t sending; /* 1: from the sender's end of the link */
    uint32_t bytes;
    uint32_t reserved;
    uint8_t data[HOOP_FRAME_BLOB_BYTES];
};

union hoop_frame {
    struct hoop_frame_header header;
    struct hoop_frame_hello hello;
    struct hoop_frame_secret secret;
    struct hoop_frame_challenge challenge;
    struct hoop_frame_proof proof;
    struct hoop_frame_reject reject;
    struct hoop_frame_join join;
    struct hoop_frame_roster roster;
    struct hoop_frame_roster_part part;
    struct hoop_frame_plain plain;
    struct hoop_frame_lost lost;
    struct hoop_frame_rank gone;
    struct hoop_frame_beat beat;
    struct hoop_frame_machine machine;
    struct hoop_frame_tree tree;
    struct hoop_frame_gate gate;
    struct hoop_frame_region region;
    struct hoop_frame_region_is region_is;
    struct hoop_frame_blob blob;
};

/* Clears a frame and fills in its header: the size is that of its type (an empty roster part). */
void hoop_frame_init(union hoop_frame *frame, enum hoop_frame_type type);

/* Sets the size of a roster part to hold count entries. */
void hoop_frame_set_count(union hoop_frame *frame, uint32_t first, uint32_t count);

/*
 * How many descriptors come with a checked message on a Unix socket; over a network, none do.
 */
uint32_t hoop_frame_fd_count(const union hoop_frame *frame);

/*
 * Of a stream, when only the header of a message is there: how many bytes it has in all, at most
 * sizeof(union hoop_frame). Else as hoop_frame_check().
 */
hoop_result_t hoop_frame_stream_bytes(const struct hoop_frame_header *header, size_t *ret_bytes,
                                      char *ret_text, size_t text_bytes);

/*
 * Is this, of `bytes` bytes and with fd_count descriptors, a message? HOOP_MISMATCH: of another
 * version; HOOP_INVALID_ARGUMENT: no. text gets a part of a sentence ("has 7 bytes, ...").
 */
hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count,
                               char *ret_text, size_t text_bytes);
/* The same for one that came over a network: without descriptors, secrets and requests for them. */
hoop_result_t hoop_frame_check_far(const union hoop_frame *frame, size_t bytes, char *ret_text,
                                   size_t text_bytes);

/* "HELLO"; "unknown" for a number that is no type. Static. */
const char *hoop_frame_name(uint32_t type);

#endif
