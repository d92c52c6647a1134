/* Which port a rank uses (see transports/rdma.h). */
#include "net/interface.h"
#include "transports/rdma.h"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct hoop_verbs *hoop_rdma_verbs;

static pthread_once_t port_once = PTHREAD_ONCE_INIT;
static const struct hoop_verbs *port_verbs; /* NULL: see port_why */
static struct hoop_verbs_port port_list[HOOP_RDMA_PORTS];
static uint32_t port_count;
static char port_why[256];

/* ---- What there is --------------------------------------------------------------------------- */

/* libibverbs takes its time to find out that there is nothing. */
static bool port_any_device(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    const struct dirent *entry = NULL;
    bool any = false;
    while (folder != NULL && !any && (entry = readdir(folder)) != NULL) {
        any = entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return any;
}

static void port_read_once(void)
{
    const char *why = "this machine has no RDMA device (/sys/class/infiniband)";
    if (hoop_rdma_verbs != NULL) {
        port_verbs = hoop_rdma_verbs;
    } else if (port_any_device()) {
#ifdef HOOP_HAVE_VERBS
        port_verbs = hoop_verbs_load();
        why = hoop_thread_error();
#else
        why = "this build has no RDMA: it was made without the headers of libibverbs";
#endif
    }
    if (port_verbs != NULL &&
        port_verbs->ports(port_list, HOOP_RDMA_PORTS, &port_count) != HOOP_OK) {
        port_verbs = NULL;
        why = hoop_thread_error();
    }
    snprintf(port_why, sizeof(port_why), "%s", port_verbs == NULL ? why : "");
}

const struct hoop_verbs *hoop_rdma_ports(const struct hoop_verbs_port **ret_ports,
                                         uint32_t *ret_count)
{
    pthread_once(&port_once, port_read_once);
    *ret_ports = port_list;
    *ret_count = port_count;
    if (port_verbs == NULL) {
        (void)hoop_error(HOOP_SYSTEM_ERROR, "%s", port_why);
    }
    return port_verbs;
}

/* ---- The choice ------------------------------------------------------------------------------ */

struct hoop_rdma_rules hoop_rdma_rules(void)
{
    const struct hoop_settings *settings = hoop_settings();
    return (struct hoop_rdma_rules){.hca = settings->ib_hca,
                                    .gid_index = settings->ib_gid_index,
                                    .demanded = settings->transport == HOOP_TRANSPORT_RDMA};
}

static int gid_rank(const struct hoop_gid *gid)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (gid->type != HOOP_GID_ROCE_V2) {
        return 1;
    }
    if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0) {
        return 4;
    }
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80 ? 2 : 3;
}

const struct hoop_gid *hoop_rdma_gid(const struct hoop_verbs_port *port,
                                     const struct hoop_rdma_rules *rules)
{
    const struct hoop_gid *best = NULL;
    char *end = NULL;
    const long wanted = rules->gid_index != NULL ? strtol(rules->gid_index, &end, 10) : -1;
    if (end != NULL && (end == rules->gid_index || *end != '\0')) {
        return NULL;
    }
    for (uint32_t i = 0; i < port->gid_count; i++) {
        const struct hoop_gid *gid = &port->gids[i];
        if (wanted >= 0 ? gid->index == (unsigned long)wanted
                        : best == NULL || (port->ethernet && gid_rank(gid) > gid_rank(best))) {
            best = gid;
        }
    }
    return best;
}

/* HOOP_IB_HCA by NCCL's rules: those of HOOP_SOCKET_IFNAME, of names with or without ":port". */
static bool port_is_named(const struct hoop_verbs_port *port, const char *rule)
{
    char full[HOOP_VERBS_NAME_BYTES + 12];
    snprintf(full, sizeof(full), "%s:%u", port->device, port->port);
    const bool by_device = hoop_interface_allowed(rule, port->device);
    const bool by_port = hoop_interface_allowed(rule, full);
    return rule != NULL && rule[0] == '^' ? by_device && by_port : by_device || by_port;
}

const char *hoop_rdma_refusal(const struct hoop_verbs_port *port,
                              const struct hoop_rdma_rules *rules)
{
    if (!port_is_named(port, rules->hca)) {
        return "HOOP_IB_HCA leaves it out";
    }
    if (port->fault[0] != '\0') {
        return port->fault;
    }
    if (port->iwarp) {
        return "iWARP connects by rdma_cm only, which hoop does not use";
    }
    if (!port->active) {
        return "the port is not active";
    }
    if (hoop_rdma_gid(port, rules) == NULL) {
        return rules->gid_index != NULL ? "it has no GID of HOOP_IB_GID_INDEX" : "it has no GID";
    }
    const bool named = rules->hca != NULL && rules->hca[0] != '^';
    if (port->software && !named && !rules->demanded) {
        return "a software device: HOOP_IB_HCA or HOOP_TRANSPORT=rdma would have to ask for it";
    }
    return NULL;
}

static void port_none(const struct hoop_verbs_port *ports, uint32_t count,
                      const struct hoop_rdma_rules *rules)
{
    char list[256] = "there is no device";
    size_t length = 0;
    for (uint32_t i = 0; i < count && length < sizeof(list) - 1; i++) {
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s port %u: %s",
                                   i > 0 ? "; " : "", ports[i].device, ports[i].port,
                                   hoop_rdma_refusal(&ports[i], rules));
    }
    (void)hoop_error(HOOP_INVALID_USAGE, "no RDMA port can be used: %s", list);
}

const struct hoop_verbs_port *hoop_rdma_choose(const struct hoop_verbs_port *ports, uint32_t count,
                                               const struct hoop_rdma_rules *rules, uint32_t rank)
{
    const struct hoop_verbs_port *found[2][HOOP_RDMA_PORTS];
    uint32_t found_count[2] = {0, 0};
    for (uint32_t i = 0; i < count && i < HOOP_RDMA_PORTS; i++) {
        if (hoop_rdma_refusal(&ports[i], rules) == NULL) {
            const bool software = ports[i].software;
            found[software][found_count[software]++] = &ports[i];
        }
    }
    const bool software = found_count[0] == 0;
    if (found_count[software] == 0) {
        port_none(ports, count, rules);
        return NULL;
    }
    return found[software][rank % found_count[software]];
}

bool hoop_rdma_is_usable(const struct hoop_agreement *agreed, uint32_t rank)
{
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    const struct hoop_verbs_port *ports = NULL;
    uint32_t count = 0;
    return agreed->transport == HOOP_TRANSPORT_AUTO && agreed->check != HOOP_CHECK_MAC &&
           hoop_rdma_ports(&ports, &count) != NULL &&
           hoop_rdma_choose(ports, count, &rules, rank) != NULL;
}
