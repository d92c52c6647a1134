/*
 * What the rest of the library may know of the RDMA transport (transports/rdma/): whether this
 * process can use it, and over which port.
 */
#ifndef HOOP_RDMA_H
#define HOOP_RDMA_H

#include "base/settings.h"
#include "net/address.h"
#include "transports/rdma/verbs.h"
#include <sched.h>

/* Most ports that are looked at, and that a rank uses. */
#define HOOP_RDMA_PORTS 128u
#define HOOP_RDMA_RANK_PORTS 16u

/* Tests set this before the first use; NULL: libibverbs. */
extern const struct hoop_verbs *hoop_rdma_verbs;

/* The calls, and the ports of this machine, read once; NULL: there are none. Thread-safe. */
const struct hoop_verbs *hoop_rdma_ports(const struct hoop_verbs_port **ret_ports,
                                         uint32_t *ret_count);
/* After that: no library, no device, or a build without the headers; "" where there are some. */
const char *hoop_rdma_why_none(void);

/* ---- The choice; pure ------------------------------------------------------------------------ */

struct hoop_rdma_rules {
    const char *hca;       /* HOOP_IB_HCA; NULL: any */
    const char *gid_index; /* HOOP_IB_GID_INDEX; NULL or -1: the best */
    bool demanded;         /* HOOP_TRANSPORT=rdma */
};

/* From the settings. */
struct hoop_rdma_rules hoop_rdma_rules(void);

/*
 * The GID that names a port: what HOOP_IB_GID_INDEX says, else RoCE v2 before v1, of IPv4 before
 * IPv6 before link-local; on InfiniBand the first. NULL: there is none.
 */
const struct hoop_gid *hoop_rdma_gid(const struct hoop_verbs_port *port,
                                     const struct hoop_rdma_rules *rules);

/* The address that a GID of RoCE v2 is. False: it is of another type. */
bool hoop_rdma_address(const struct hoop_gid *gid, struct hoop_address *ret);

/*
 * Why a port is out of the question; NULL: it is not. Software devices are slower than TCP over the
 * same wire: out, unless HOOP_IB_HCA names one or HOOP_TRANSPORT=rdma leaves nothing else.
 */
const char *hoop_rdma_refusal(const struct hoop_verbs_port *port,
                              const struct hoop_rdma_rules *rules);

/*
 * The ports of a rank, best first, at most HOOP_RDMA_RANK_PORTS of them: software only where there
 * is no hardware; first those beside all of the rank's CPUs (NULL: not known), and each rank of a
 * machine begins with another. local: how many ranks of the machine choose before this one. 0: the
 * thread's sentence says what there is, and why none will do.
 */
uint32_t hoop_rdma_order(const struct hoop_verbs_port *ports, uint32_t count,
                         const struct hoop_rdma_rules *rules, uint32_t local, const cpu_set_t *cpus,
                         const struct hoop_verbs_port *ret[HOOP_RDMA_RANK_PORTS]);

/* The network that a port is in, as a number by which its peers compare it with theirs; not 0. */
uint32_t hoop_rdma_network(const struct hoop_verbs_port *port, const struct hoop_gid *gid);

/*
 * The ways between two ranks, by the networks of their ports: within a network, or, if they share
 * none, through routers. Of these one, in turn. mine_reach: which of mine have a way at all. False:
 * there is none.
 */
struct hoop_rdma_networks {
    uint32_t count;
    uint32_t of[HOOP_RDMA_RANK_PORTS];
};
bool hoop_rdma_way(const struct hoop_rdma_networks *mine, const struct hoop_rdma_networks *theirs,
                   uint32_t turn, uint32_t *ret_mine, uint32_t *ret_theirs,
                   uint32_t *ret_mine_reach);

/*
 * May this process be reached by RDMA from other machines? Only where the choice is free is
 * a device looked for: with HOOP_TRANSPORT=auto, and a check that RDMA has. Thread-safe.
 */
bool hoop_rdma_is_usable(const struct hoop_agreement *agreed);

#endif
