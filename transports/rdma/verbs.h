/*
 * What the RDMA transport needs from a device: a table of thin calls, so that the code above uses
 * no type of libibverbs, and the tests run it over a fake. Nothing here decides, remembers or
 * waits.
 *
 * A device is opened once for each communicator that uses it, with a completion queue of its own. A
 * queue is a reliable connected queue pair. One thread at a time uses a device and what was made of
 * it; but any thread may release memory at any time, and register memory while the device is open.
 */
#ifndef HOOP_VERBS_H
#define HOOP_VERBS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOOP_VERBS_NAME_BYTES 64
#define HOOP_VERBS_GIDS 64u /* looked at per port: each VLAN has several */
#define HOOP_GID_BYTES 16u

enum hoop_gid_type { HOOP_GID_IB, HOOP_GID_ROCE_V1, HOOP_GID_ROCE_V2 };

struct hoop_gid {
    uint32_t index; /* in the port's table */
    enum hoop_gid_type type;
    uint8_t prefix_bits; /* RoCE v2: network prefix length of the address; 0: unknown */
    uint8_t raw[HOOP_GID_BYTES];
};

/* A port as it was found. */
struct hoop_verbs_port {
    char device[HOOP_VERBS_NAME_BYTES];
    uint32_t port;
    const char *state; /* "ACTIVE", "DOWN", ...; static */
    bool active;
    bool ethernet; /* RoCE; otherwise InfiniBand */
    bool foreign;  /* neither: iWARP, EFA */
    bool global;   /* packets are addressed by GID: RoCE always, InfiniBand if required */
    bool software; /* Soft-RoCE, Soft-iWARP */
    uint8_t mtu;   /* 1: 256, 2: 512, ... 5: 4096 */
    uint16_t lid;
    uint32_t gid_count;
    struct hoop_gid gids[HOOP_VERBS_GIDS];
    char cpus[256];  /* CPUs beside it, as "0-7,16-23"; "": unknown */
    char fault[128]; /* why it could not be examined; "": it was */
};

struct hoop_verbs_device;
struct hoop_verbs_queue;

/* Registered memory. */
struct hoop_verbs_memory {
    void *handle; /* NULL: not registered */
    uint32_t local_key, remote_key;
    size_t bytes;
};

struct hoop_verbs_depth {
    uint32_t sends, receives; /* outstanding at a time */
    uint32_t inline_bytes;    /* wanted, then granted */
};

/* One end of a queue pair, as the other must know it. Travels, and so has no padding. */
struct hoop_verbs_address {
    uint32_t number;    /* of the queue, 24 bits */
    uint32_t sequence;  /* of its first packet (PSN), 24 bits */
    uint16_t lid;       /* InfiniBand */
    uint8_t mtu;        /* as in the port */
    uint8_t link_layer; /* 1: InfiniBand, 2: Ethernet */
    uint8_t gid[HOOP_GID_BYTES];
};

/* The route from this end to the peer. */
struct hoop_verbs_route {
    struct hoop_verbs_address mine, peer;
    uint32_t port, gid_index;
    bool global;
    uint32_t service_level, partition, traffic_class, timeout, retries;
};

/* A request: data to the peer's memory, or a word that consumes one of its receives, or both. */
struct hoop_verbs_work {
    uint64_t id;
    const void *data; /* registered under local_key, unless inline */
    uint32_t bytes, local_key;
    uint64_t remote_address;
    uint32_t remote_key;
    bool write;      /* data go to remote_address; otherwise they are the message */
    bool word_comes; /* with `word` as immediate data */
    uint32_t word;
    bool is_inline; /* copied before send() returns */
    bool signaled;  /* completion gives an event */
};

/* The completion of a send (if signaled or failed) or of a receive. */
struct hoop_verbs_event {
    uint64_t id;
    int status;      /* 0: success */
    uint32_t vendor; /* after a failure: the vendor's error code */
    bool has_word;
    uint32_t word;
};

struct hoop_verbs {
    /* All ports of all devices, at most `most`. */
    hoop_result_t (*ports)(struct hoop_verbs_port *ret_ports, uint32_t most, uint32_t *ret_count);
    /* Failures set the thread's error. entries: of the completion queue. */
    hoop_result_t (*open)(const char *name, uint32_t entries, struct hoop_verbs_device **ret);
    /* After everything made of the device. Like release_memory and destroy_queue it returns an
     * errno: for hoop the object is gone, but the device may still have it. */
    int (*close)(struct hoop_verbs_device *device);
    hoop_result_t (*register_memory)(struct hoop_verbs_device *device, void *data, size_t bytes,
                                     struct hoop_verbs_memory *ret);
    int (*release_memory)(struct hoop_verbs_memory *memory);
    /* *depth becomes what was granted. */
    hoop_result_t (*create_queue)(struct hoop_verbs_device *device, struct hoop_verbs_depth *depth,
                                  struct hoop_verbs_queue **ret, uint32_t *ret_number);
    /* From now on it takes receives, but it is not connected. */
    hoop_result_t (*connect_queue)(struct hoop_verbs_queue *queue,
                                   const struct hoop_verbs_route *route);
    int (*destroy_queue)(struct hoop_verbs_queue *queue);
    /* At most 4 requests, in order. Returns an errno. */
    int (*send)(struct hoop_verbs_queue *queue, const struct hoop_verbs_work *works,
                uint32_t count);
    /* Posts memory for a message without immediate data. */
    int (*receive)(struct hoop_verbs_queue *queue, uint64_t id, void *data, uint32_t bytes,
                   uint32_t local_key);
    /* Takes the next events; negative: the completion queue is broken. */
    int (*take)(struct hoop_verbs_device *device, struct hoop_verbs_event *ret_events, int most);
    /* Makes the descriptor readable at the next event. False: it failed. */
    bool (*arm)(struct hoop_verbs_device *device);
    /* Takes the notification that made the descriptor readable; false: it has not come yet. */
    bool (*disarm)(struct hoop_verbs_device *device);
    int (*watch_fd)(struct hoop_verbs_device *device);
    /* Not HOOP_OK: nothing will complete any more. */
    hoop_result_t (*check)(struct hoop_verbs_device *device);
    /* "transport retry counter exceeded (verbs status 12, ...)", and the device's recent events. */
    void (*explain)(struct hoop_verbs_device *device, const struct hoop_verbs_event *event,
                    char *buf, size_t bytes);
};

/* libibverbs, loaded by the first call. NULL: the thread's error says why not. Thread-safe. */
const struct hoop_verbs *hoop_verbs_load(void);

#endif
