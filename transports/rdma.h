/*
 * What the rest of the library may know of the RDMA transport (transports/rdma/): whether this
 * process can use it, and over which port.
 */
#ifndef HOOP_RDMA_H
#define HOOP_RDMA_H

#include "base/settings.h"
#include "transports/rdma/verbs.h"

/* Most ports that are looked at. */
#define HOOP_RDMA_PORTS 32u

/* Tests set this before the first use; NULL: libibverbs. */
extern const struct hoop_verbs *hoop_rdma_verbs;

/*
 * The calls, and the ports of this machine, read once. NULL: the thread's sentence says why there
 * are none: no library, no device, or a build without the headers. Thread-safe.
 */
const struct hoop_verbs *hoop_rdma_ports(const struct hoop_verbs_port **ret_ports,
                                         uint32_t *ret_count);

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

/*
 * Why a port is out of the question; NULL: it is not. Software devices are slower than TCP over the
 * same wire: out, unless HOOP_IB_HCA names one or HOOP_TRANSPORT=rdma leaves nothing else.
 */
const char *hoop_rdma_refusal(const struct hoop_verbs_port *port,
                              const struct hoop_rdma_rules *rules);

/*
 * The port of a rank: those in question, hardware first, in turn, so that the ranks of a machine
 * share them out. NULL: the thread's sentence says what there is, and why none will do.
 */
const struct hoop_verbs_port *hoop_rdma_choose(const struct hoop_verbs_port *ports, uint32_t count,
                                               const struct hoop_rdma_rules *rules, uint32_t rank);

/*
 * May this process's rank be reached by RDMA from other machines? Only where the choice is free is
 * a device looked for: with HOOP_TRANSPORT=auto, and a check that RDMA has. Thread-safe.
 */
bool hoop_rdma_is_usable(const struct hoop_agreement *agreed, uint32_t rank);

#endif
