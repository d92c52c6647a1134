/*
 * What the RDMA transport asks of a device: a table of thin calls, so that what is above knows no
 * type of libibverbs and runs over a fake in the tests. Nothing here decides, remembers or waits.
 *
 * A device is opened once for each communicator that uses it, with a completion queue of its own; a
 * queue is a reliable connected queue pair. One thread at a time uses a device and what is made
 * of it; but any thread may release memory at any time, and register some while it is not closed.
 */
#ifndef HOOP_VERBS_H
#define HOOP_VERBS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOOP_VERBS_NAME_BYTES 64
#define HOOP_VERBS_GIDS 64u /* of a port that are looked at: of each VLAN there are several */
#define HOOP_GID_BYTES 16u

enum hoop_gid_type { HOOP_GID_IB, HOOP_GID_ROCE_V1, HOOP_GID_ROCE_V2 };

struct hoop_gid {
    uint32_t index; /* in the port's table */
    enum hoop_gid_type type;
    uint8_t prefix_bits; /* RoCE v2: of the address's network; 0: not known */
    uint8_t raw[HOOP_GID_BYTES];
};

/* A port, as it was found. */
struct hoop_verbs_port {
    char device[HOOP_VERBS_NAME_BYTES];
    uint32_t port;
    const char *state; /* "ACTIVE", "DOWN", ...; static */
    bool active;
    bool ethernet; /* RoCE; else InfiniBand */
    bool foreign;  /* neither of them: iWARP, EFA */
    bool global;   /* packets go by GIDs: of RoCE, and of InfiniBand where it has to be */
    bool software; /* Soft-RoCE, Soft-iWARP */
    uint8_t mtu;   /* 1: 256, 2: 512, ... 5: 4096 */
    uint16_t lid;
    uint32_t gid_count;
    struct hoop_gid gids[HOOP_VERBS_GIDS];
    char cpus[256];  /* those beside it, "0-7,16-23"; "": not known */
    char fault[128]; /* why it could not be looked at; "": it was */
};

struct hoop_verbs_device;
struct hoop_verbs_queue;

/* Registered memory. */
struct hoop_verbs_memory {
    void *handle; /* NULL: none */
    uint32_t local_key, remote_key;
    size_t bytes;
};

struct hoop_verbs_depth {
    uint32_t sends, receives; /* outstanding */
    uint32_t inline_bytes;    /* a wish */
};

/* One end, as the other must know it. Travels, without padding. */
struct hoop_verbs_address {
    uint32_t number;    /* of the queue, 24 bits */
    uint32_t sequence;  /* of its first packet, 24 bits */
    uint16_t lid;       /* InfiniBand */
    uint8_t mtu;        /* as in the port */
    uint8_t link_layer; /* 1: InfiniBand, 2: Ethernet */
    uint8_t gid[HOOP_GID_BYTES];
};

/* How to get from here to there. */
struct hoop_verbs_route {
    struct hoop_verbs_address mine, peer;
    uint32_t port, gid_index;
    bool global;
    uint32_t service_level, partition, traffic_class, timeout, retries;
};

/* What is sent: data into the peer's memory, or a word that takes one of its receives, or both. */
struct hoop_verbs_work {
    uint64_t id;
    const void *data; /* registered under local_key, unless it is inline */
    uint32_t bytes, local_key;
    uint64_t remote_address;
    uint32_t remote_key;
    bool write;      /* data go to remote_address; else they are the message itself */
    bool word_comes; /* with the word below, as immediate data */
    uint32_t word;
    bool is_inline; /* copied before send returns */
    bool signaled;  /* there will be an event */
};

/* What became of a send (signaled, or failed) or a receive. */
struct hoop_verbs_event {
    uint64_t id;
    int status;      /* 0: well */
    uint32_t vendor; /* if not: what the device says of it */
    bool has_word;
    uint32_t word;
};

struct hoop_verbs {
    /* All ports of all devices; in excess of `most` none is told. */
    hoop_result_t (*ports)(struct hoop_verbs_port *ret_ports, uint32_t most, uint32_t *ret_count);
    /* Failures leave the thread's sentence. entries: of the completion queue. */
    hoop_result_t (*open)(const char *name, uint32_t entries, struct hoop_verbs_device **ret);
    /* After all that was made of it. Like the two below: an errno; it is gone for hoop anyway, but
     * the device may still have what it was. */
    int (*close)(struct hoop_verbs_device *device);
    hoop_result_t (*register_memory)(struct hoop_verbs_device *device, void *data, size_t bytes,
                                     struct hoop_verbs_memory *ret);
    int (*release_memory)(struct hoop_verbs_memory *memory);
    /* *depth becomes what was granted. */
    hoop_result_t (*create_queue)(struct hoop_verbs_device *device, struct hoop_verbs_depth *depth,
                                  struct hoop_verbs_queue **ret, uint32_t *ret_number);
    /* Takes receives from now on, but is not connected. */
    hoop_result_t (*connect_queue)(struct hoop_verbs_queue *queue,
                                   const struct hoop_verbs_route *route);
    int (*destroy_queue)(struct hoop_verbs_queue *queue);
    /* At most 4, in order. Returns an errno. */
    int (*send)(struct hoop_verbs_queue *queue, const struct hoop_verbs_work *works,
                uint32_t count);
    /* Memory for a message that has no immediate data. */
    int (*receive)(struct hoop_verbs_queue *queue, uint64_t id, void *data, uint32_t bytes,
                   uint32_t local_key);
    /* The next events; negative: the completion queue is broken. */
    int (*take)(struct hoop_verbs_device *device, struct hoop_verbs_event *ret_events, int most);
    /* The descriptor is readable at the next event. False: it cannot be had. */
    bool (*arm)(struct hoop_verbs_device *device);
    /* Takes what made the descriptor readable; false: it has not come yet. */
    bool (*disarm)(struct hoop_verbs_device *device);
    int (*watch_fd)(struct hoop_verbs_device *device);
    /* Not HOOP_OK: nothing will complete any more. */
    hoop_result_t (*check)(struct hoop_verbs_device *device);
    /* "transport retry counter exceeded (verbs status 12, ...)", and what befell the device lately.
     */
    void (*explain)(struct hoop_verbs_device *device, const struct hoop_verbs_event *event,
                    char *buf, size_t bytes);
};

/* libibverbs, loaded by the first call. NULL: the thread's sentence says why not. Thread-safe. */
const struct hoop_verbs *hoop_verbs_load(void);

#endif
