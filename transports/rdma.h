/* What the rest of the library may know of the RDMA transport (transports/rdma/): whether this
 * process can use it, and over which ports. */
#ifndef HOOP_RDMA_H
#define HOOP_RDMA_H

#include "base/settings.h"
#include "net/address.h"
#include "transports/rdma/verbs.h"
#include <sched.h>

/* Most ports that are examined, and most that a rank uses. */
#define HOOP_RDMA_PORTS 128u
#define HOOP_RDMA_RANK_PORTS 16u

/* Tests set this before the first use; NULL: libibverbs. */
extern const struct hoop_verbs *hoop_rdma_verbs;

/* The verbs, and the ports of this machine, which are read once; NULL: none. Thread-safe. */
const struct hoop_verbs *hoop_rdma_ports(const struct hoop_verbs_port **ret_ports,
                                         uint32_t *ret_count);
/* After that, why there are none (no library, no device, a build without headers); or "". */
const char *hoop_rdma_why_none(void);

/* ---- The choice of ports: pure functions ----------------------------------------------------- */

struct hoop_rdma_rules {
    const char *hca;       /* HOOP_IB_HCA; NULL: any */
    const char *gid_index; /* HOOP_IB_GID_INDEX; NULL or -1: the best */
    bool demanded;         /* HOOP_TRANSPORT=rdma */
};

/* From the settings. */
struct hoop_rdma_rules hoop_rdma_rules(void);

/* The GID that a port is addressed by: the one of HOOP_IB_GID_INDEX, else RoCE v2 before v1, and
 * IPv4 before IPv6 before link-local; on InfiniBand the first. NULL: there is none. */
const struct hoop_gid *hoop_rdma_gid(const struct hoop_verbs_port *port,
                                     const struct hoop_rdma_rules *rules);

/* The IP address in a GID of RoCE v2. False: the GID is of another type. */
bool hoop_rdma_address(const struct hoop_gid *gid, struct hoop_address *ret);

/* Why a port cannot be used; NULL: it can. Software devices are slower than TCP over the same wire,
 * so they are refused unless HOOP_IB_HCA names one or HOOP_TRANSPORT=rdma leaves nothing else. */
const char *hoop_rdma_refusal(const struct hoop_verbs_port *port,
                              const struct hoop_rdma_rules *rules);

/*
 * The ports of a rank, best first, at most HOOP_RDMA_RANK_PORTS; software ports only without
 * hardware ones. Ports beside all of the rank's CPUs (NULL: unknown) come first, and each rank of a
 * machine begins with a different one. local: how many ranks of the machine choose before this one.
 * Returns the count; 0: the thread's error lists the ports, and why none can be used.
 */
uint32_t hoop_rdma_order(const struct hoop_verbs_port *ports, uint32_t count,
                         const struct hoop_rdma_rules *rules, uint32_t local, const cpu_set_t *cpus,
                         const struct hoop_verbs_port *ret[HOOP_RDMA_RANK_PORTS]);

/* A port's network as a nonzero number, which peers compare with those of their own ports. */
uint32_t hoop_rdma_network(const struct hoop_verbs_port *port, const struct hoop_gid *gid);

/*
 * Chooses a way between two ranks, in turn, by the networks of their ports: within a network, or
 * through routers if they share none. mine_reach: a bit for each own port that has any way. False:
 * there is no way.
 */
struct hoop_rdma_networks {
    uint32_t count;
    uint32_t of[HOOP_RDMA_RANK_PORTS];
};
bool hoop_rdma_way(const struct hoop_rdma_networks *mine, const struct hoop_rdma_networks *theirs,
                   uint32_t turn, uint32_t *ret_mine, uint32_t *ret_theirs,
                   uint32_t *ret_mine_reach);

/* May other machines reach this process by RDMA? Devices are looked for only if the choice is free:
 * with HOOP_TRANSPORT=auto, and a kind of check that RDMA has. Thread-safe. */
bool hoop_rdma_is_usable(const struct hoop_agreement *agreed);

#endif
