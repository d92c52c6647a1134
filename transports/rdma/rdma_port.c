/* The ports that a rank uses (see transports/rdma.h). */
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

/* ---- Finding ports --------------------------------------------------------------------------- */

/* Checked first, because libibverbs takes a while to find that there is no device. */
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

/* The CPUs beside a device, which the kernel knows for devices on a bus. */
static void port_read_cpus(struct hoop_verbs_port *port)
{
    char path[HOOP_VERBS_NAME_BYTES + 64];
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/device/local_cpulist",
             HOOP_VERBS_NAME_BYTES - 1, port->device);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(port->cpus, sizeof(port->cpus), file) == NULL) {
        port->cpus[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void port_read_networks(struct hoop_verbs_port *port)
{
    for (uint32_t i = 0; i < port->gid_count; i++) {
        struct hoop_gid *gid = &port->gids[i];
        struct hoop_address address;
        const uint32_t bits =
            hoop_rdma_address(gid, &address) ? hoop_interface_prefix(&address) : 0;
        gid->prefix_bits = bits > 0 ? (uint8_t)bits : gid->prefix_bits;
    }
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
    for (uint32_t i = 0; i < port_count; i++) {
        port_read_cpus(&port_list[i]);
        port_read_networks(&port_list[i]);
    }
    snprintf(port_why, sizeof(port_why), "%s", port_verbs == NULL ? why : "");
    (void)hoop_error(HOOP_OK, "%s", ""); /* no call has failed */
}

const struct hoop_verbs *hoop_rdma_ports(const struct hoop_verbs_port **ret_ports,
                                         uint32_t *ret_count)
{
    pthread_once(&port_once, port_read_once);
    *ret_ports = port_list;
    *ret_count = port_count;
    return port_verbs;
}

const char *hoop_rdma_why_none(void)
{
    return port_why;
}

/* ---- The choice ------------------------------------------------------------------------------ */

struct hoop_rdma_rules hoop_rdma_rules(void)
{
    const struct hoop_settings *settings = hoop_settings();
    return (struct hoop_rdma_rules){.hca = settings->ib_hca,
                                    .gid_index = settings->ib_gid_index,
                                    .demanded = settings->transport == HOOP_TRANSPORT_RDMA};
}

bool hoop_rdma_address(const struct hoop_gid *gid, struct hoop_address *ret)
{
    struct sockaddr_in6 from = {.sin6_family = AF_INET6};
    memcpy(&from.sin6_addr, gid->raw, sizeof(gid->raw));
    return gid->type == HOOP_GID_ROCE_V2 &&
           hoop_address_from_sockaddr((const struct sockaddr *)(const void *)&from, ret);
}

static int gid_rank(const struct hoop_gid *gid)
{
    struct hoop_address address;
    if (!hoop_rdma_address(gid, &address)) {
        return 1;
    }
    if (address.family == 4) {
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

/* HOOP_IB_HCA by NCCL's rules: as HOOP_SOCKET_IFNAME, for names with or without ":port". */
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
    if (port->foreign) {
        return "it is neither InfiniBand nor RoCE (iWARP connects by rdma_cm only, EFA differs)";
    }
    if (!port->active) {
        return "the port is not active";
    }
    if (hoop_rdma_gid(port, rules) == NULL) {
        return rules->gid_index != NULL ? "it has no GID of HOOP_IB_GID_INDEX" : "it has no GID";
    }
    const bool named = rules->hca != NULL && rules->hca[0] != '^';
    if (port->software && !named && !rules->demanded) {
        return "a software device: it is used only where HOOP_IB_HCA or HOOP_TRANSPORT=rdma asks "
               "for it";
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

/* Do the port's CPUs include all that the rank may use? */
static bool port_is_beside(const struct hoop_verbs_port *port, const cpu_set_t *cpus)
{
    cpu_set_t there, both;
    CPU_ZERO(&there);
    for (const char *at = port->cpus; *at >= '0' && *at <= '9';) {
        char *end = NULL;
        const unsigned long first = strtoul(at, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, &there);
        }
        at = *end == ',' ? end + 1 : "";
    }
    CPU_AND(&both, &there, cpus);
    return CPU_EQUAL(&both, cpus);
}

static bool port_any_hardware(const struct hoop_verbs_port *ports, uint32_t count,
                              const struct hoop_rdma_rules *rules)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        any = any || (!ports[i].software && hoop_rdma_refusal(&ports[i], rules) == NULL);
    }
    return any;
}

uint32_t hoop_rdma_order(const struct hoop_verbs_port *ports, uint32_t count,
                         const struct hoop_rdma_rules *rules, uint32_t local, const cpu_set_t *cpus,
                         const struct hoop_verbs_port *ret[HOOP_RDMA_RANK_PORTS])
{
    const struct hoop_verbs_port *found[2][HOOP_RDMA_PORTS]; /* beside its CPUs, apart */
    uint32_t found_count[2] = {0, 0}, filled = 0;
    const bool software = !port_any_hardware(ports, count, rules);
    for (uint32_t i = 0; i < count && i < HOOP_RDMA_PORTS; i++) {
        if (ports[i].software == software && hoop_rdma_refusal(&ports[i], rules) == NULL) {
            const bool apart = cpus == NULL || !port_is_beside(&ports[i], cpus);
            found[apart][found_count[apart]++] = &ports[i];
        }
    }
    for (int apart = 0; apart < 2; apart++) {
        for (uint32_t i = 0; i < found_count[apart] && filled < HOOP_RDMA_RANK_PORTS; i++) {
            ret[filled++] = found[apart][(i + local) % found_count[apart]];
        }
    }
    if (filled == 0) {
        port_none(ports, count, rules);
    }
    return filled;
}

bool hoop_rdma_is_usable(const struct hoop_agreement *agreed)
{
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    const struct hoop_verbs_port *ports = NULL, *mine[HOOP_RDMA_RANK_PORTS];
    uint32_t count = 0;
    return agreed->transport == HOOP_TRANSPORT_AUTO && agreed->check != HOOP_CHECK_AEAD &&
           hoop_rdma_ports(&ports, &count) != NULL &&
           hoop_rdma_order(ports, count, &rules, 0, NULL, mine) > 0;
}

/* ---- Ways ------------------------------------------------------------------------------------ */

/* A network's number: the kind of port, as ports of different kinds never reach each other, and a
 * hash of the network's prefix. */
enum port_kind { PORT_INFINIBAND = 1, PORT_ROCE_V1, PORT_IP4, PORT_IP6, PORT_LINK_LOCAL };
#define PORT_KIND_SHIFT 28

static enum port_kind port_kind(const struct hoop_verbs_port *port, const struct hoop_gid *gid)
{
    static const enum port_kind kinds[] = {
        [1] = PORT_ROCE_V1, [2] = PORT_LINK_LOCAL, [3] = PORT_IP6, [4] = PORT_IP4};
    return port->ethernet ? kinds[gid_rank(gid)] : PORT_INFINIBAND;
}

uint32_t hoop_rdma_network(const struct hoop_verbs_port *port, const struct hoop_gid *gid)
{
    const enum port_kind kind = port_kind(port, gid);
    uint32_t bits = kind == PORT_IP4 || kind == PORT_IP6 ? gid->prefix_bits : 64;
    bits += kind == PORT_IP4 && bits > 0 ? 96 : 0;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (uint32_t i = 0; i < HOOP_GID_BYTES && 8 * i < bits; i++) {
        const uint32_t left = bits - 8 * i;
        const uint8_t mask = left < 8 ? (uint8_t)(0xff00u >> left) : 0xff;
        hash = (hash ^ (gid->raw[i] & mask)) * 16777619u;
    }
    return (uint32_t)kind << PORT_KIND_SHIFT | (hash ^ hash >> PORT_KIND_SHIFT) << 4 >> 4;
}

/* routed: the two ranks share no network. InfiniBand subnets have no routers that hoop knows of. */
static bool port_reaches(uint32_t mine, uint32_t theirs, bool routed)
{
    const uint32_t kind = mine >> PORT_KIND_SHIFT;
    return mine == theirs || (routed && kind == theirs >> PORT_KIND_SHIFT && kind >= PORT_IP4 &&
                              kind != PORT_LINK_LOCAL);
}

/* The ports of theirs that one of mine reaches, a bit each. */
static uint32_t port_reach(uint32_t mine, const struct hoop_rdma_networks *theirs, bool routed)
{
    uint32_t reach = 0;
    for (uint32_t i = 0; i < theirs->count; i++) {
        reach |= (uint32_t)port_reaches(mine, theirs->of[i], routed) << i;
    }
    return reach;
}

/* The turn-th of the bits that are set, of which there is at least one. */
static uint32_t port_pick(uint32_t bits, uint32_t turn)
{
    for (uint32_t left = turn % (uint32_t)__builtin_popcount(bits); left > 0; left--) {
        bits &= bits - 1;
    }
    return (uint32_t)__builtin_ctz(bits);
}

bool hoop_rdma_way(const struct hoop_rdma_networks *mine, const struct hoop_rdma_networks *theirs,
                   uint32_t turn, uint32_t *ret_mine, uint32_t *ret_theirs,
                   uint32_t *ret_mine_reach)
{
    uint32_t reach[HOOP_RDMA_RANK_PORTS], any = 0;
    for (int routed = 0; routed < 2 && any == 0; routed++) {
        for (uint32_t i = 0; i < mine->count; i++) {
            reach[i] = port_reach(mine->of[i], theirs, routed != 0);
            any |= (uint32_t)(reach[i] != 0) << i;
        }
    }
    *ret_mine_reach = any;
    if (any != 0) {
        *ret_mine = port_pick(any, turn);
        *ret_theirs = port_pick(reach[*ret_mine], turn);
    }
    return any != 0;
}
