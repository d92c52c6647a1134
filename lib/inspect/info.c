/* hoop_info_json() and hoop_explain_json(): what can be seen from outside. */
#include "cost/profile.h"
#include "inspect/look.h"
#include "memory/region.h"
#include "net/interface.h"
#include "transports/rdma.h"
#include "transports/transport.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void info_interface(void *arg, const char *name, const struct hoop_address *address,
                           const char *verdict)
{
    struct hoop_json *json = arg;
    char text[HOOP_ADDRESS_TEXT_BYTES];
    hoop_address_format(address, text, sizeof(text));
    hoop_json_object(json, NULL);
    hoop_json_string(json, "address", text);
    hoop_json_string(json, "interface", name);
    hoop_json_string(json, "verdict", verdict);
    hoop_json_object_end(json);
}

static void info_network(struct hoop_json *json)
{
    hoop_json_array(json, "transports");
    for (size_t i = 0; hoop_transports[i] != NULL; i++) {
        hoop_json_string(json, NULL, hoop_transports[i]->name);
    }
    hoop_json_array_end(json);
    hoop_json_array(json, "interfaces");
    hoop_interface_each(info_interface, json);
    hoop_json_array_end(json);
}

/* "1 RoCE v2 00000000000000000000ffff0a4d0001" */
static size_t info_gid(const struct hoop_gid *gid, char *buf, size_t bytes)
{
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    size_t at = (size_t)snprintf(buf, bytes, "%u %s ", gid->index,
                                 (unsigned)gid->type < 3 ? types[gid->type] : "unknown");
    for (size_t k = 0; k < HOOP_GID_BYTES; k++) {
        at += (size_t)snprintf(buf + at, bytes - at, "%02x", gid->raw[k]);
    }
    return at;
}

/* "10.77.0.1/24": the network of a GID, which links prefer if the peer is in it; "" if unknown. */
static const char *info_network_of(const struct hoop_gid *gid, char *buf, size_t bytes)
{
    char text[HOOP_ADDRESS_TEXT_BYTES];
    struct hoop_address address;
    buf[0] = '\0';
    if (gid->prefix_bits > 0 && hoop_rdma_address(gid, &address)) {
        hoop_address_format(&address, text, sizeof(text));
        snprintf(buf, bytes, "%s/%u", text, gid->prefix_bits);
    }
    return buf;
}

/* The GID that is used, and its network. */
static void info_gid_used(struct hoop_json *json, const struct hoop_gid *used)
{
    char text[128] = "";
    if (used != NULL) {
        (void)info_gid(used, text, sizeof(text));
    }
    hoop_json_string(json, "gid", text);
    hoop_json_string(json, "network",
                     used != NULL ? info_network_of(used, text, sizeof(text)) : "");
}

/* All GIDs. Last in the object, because they may be many and a reader may truncate the text. */
static void info_gids(struct hoop_json *json, const struct hoop_verbs_port *port)
{
    char text[HOOP_VERBS_GIDS * 64] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < port->gid_count; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", i > 0 ? "; " : "");
        at += info_gid(&port->gids[i], text + at, sizeof(text) - at);
    }
    hoop_json_string(json, "gids", text);
}

static void info_port(struct hoop_json *json, const struct hoop_verbs_port *port,
                      const struct hoop_rdma_rules *rules)
{
    const char *refusal = hoop_rdma_refusal(port, rules);
    const struct hoop_gid *gid = hoop_rdma_gid(port, rules);
    hoop_json_object(json, NULL);
    hoop_json_string(json, "device", port->device);
    hoop_json_uint(json, "port", port->port);
    hoop_json_string(json, "state", port->state);
    hoop_json_string(json, "link_layer", port->ethernet ? "Ethernet" : "InfiniBand");
    hoop_json_uint(json, "mtu", port->mtu > 0 ? UINT64_C(128) << port->mtu : 0);
    info_gid_used(json, gid);
    hoop_json_bool(json, "usable", refusal == NULL);
    hoop_json_string(json, "why_not", refusal != NULL ? refusal : "");
    info_gids(json, port);
    hoop_json_object_end(json);
}

/* RDMA ports. "rdma" says why there are none, or is "". */
static void info_rdma(struct hoop_json *json)
{
    const struct hoop_rdma_rules rules = hoop_rdma_rules();
    const struct hoop_verbs_port *ports = NULL;
    uint32_t count = 0;
    (void)hoop_rdma_ports(&ports, &count);
    hoop_json_string(json, "rdma", hoop_rdma_why_none());
    hoop_json_array(json, "rdma_ports");
    for (uint32_t i = 0; i < count; i++) {
        info_port(json, &ports[i], &rules);
    }
    hoop_json_array_end(json);
}

/* The profile that the cost model uses, and the digest of its numbers; "" for the built-in one. */
static void info_profile(struct hoop_json *json, uint64_t digest)
{
    char text[24] = "";
    if (digest != 0) {
        snprintf(text, sizeof(text), "%016" PRIx64, digest);
    }
    hoop_json_string(json, "profile", digest != 0 ? hoop_settings()->profile : "");
    hoop_json_string(json, "profile_digest", text);
}

static void info_process(struct hoop_json *json)
{
    struct hoop_region_stats stats;
    uint64_t digest = 0;
    hoop_region_stats(&stats);
    hoop_look_process(json);
    hoop_json_string(json, "kernels", hoop_reduce_isa());
    hoop_json_uint(json, "usable_cpus", hoop_cpus_usable(0).count);
    hoop_json_uint(json, "regions", stats.regions);
    hoop_json_uint(json, "region_bytes", stats.region_bytes);
    hoop_json_uint(json, "imports", stats.imports);
    hoop_json_uint(json, "import_bytes", stats.import_bytes);
    const bool usable = hoop_profile_use(&digest) == HOOP_OK;
    info_profile(json, digest);
    hoop_json_string(json, "profile_error", usable ? "" : hoop_thread_error());
    (void)hoop_look_streams(json, SIZE_MAX);
    info_network(json);
    info_rdma(json);
}

static hoop_result_t info_check(const char *buf, size_t bytes, const size_t *needed)
{
    if (needed == NULL || (buf == NULL && bytes > 0)) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "%s is NULL", needed == NULL ? "needed" : "buf");
    }
    return HOOP_OK;
}

hoop_result_t hoop_info_json(hoop_comm_t comm, char *buf, size_t bytes, size_t *needed)
{
    hoop_result_t checked = info_check(buf, bytes, needed);
    if (checked == HOOP_OK && hoop_is_forked()) {
        checked = hoop_forked_error();
    }
    if (checked == HOOP_OK && comm != NULL && !hoop_comm_is_ready(comm)) {
        checked = hoop_comm_check_born(comm);
    }
    if (checked != HOOP_OK) {
        return checked;
    }
    struct hoop_json json;
    hoop_json_init(&json, buf, bytes);
    hoop_json_object(&json, NULL);
    if (comm == NULL) {
        const int before = hoop_cancel_off();
        info_process(&json);
        hoop_cancel_restore(before);
    } else {
        pthread_mutex_lock(&comm->look_lock);
        hoop_look_comm(&json, comm);
        pthread_mutex_unlock(&comm->look_lock);
    }
    hoop_json_object_end(&json);
    return hoop_json_finish(&json, needed);
}

/* The collective of this name; HOOP_COLL_COUNT if there is none. */
static enum hoop_collective info_collective(const char *name)
{
    int i = 0;
    while (i < HOOP_COLL_COUNT && (name == NULL || strcmp(name, hoop_collectives[i].name) != 0)) {
        i++;
    }
    return (enum hoop_collective)i;
}

/* All algorithms that the collective could use, with the cost model's estimates. */
static void info_candidates(struct hoop_json *json, const uint64_t ns[HOOP_ALGO_COUNT])
{
    hoop_json_array(json, "candidates");
    for (int i = 0; i < HOOP_ALGO_COUNT; i++) {
        if (ns[i] != 0) {
            hoop_json_object(json, NULL);
            hoop_json_string(json, "algo", hoop_algo_name((enum hoop_algo)i));
            hoop_json_uint(json, "estimated_ns", ns[i]);
            hoop_json_object_end(json);
        }
    }
    hoop_json_array_end(json);
}

static void info_plan(struct hoop_json *json, const struct hoop_plan *plan)
{
    const bool folds = hoop_collectives[plan->collective].folds;
    const bool round = plan->algo == HOOP_ALGO_RING || plan->algo == HOOP_ALGO_CHAIN;
    const bool machines = plan->algo == HOOP_ALGO_TORUS || plan->algo == HOOP_ALGO_HIERARCHICAL;
    hoop_json_string(json, "collective", hoop_collectives[plan->collective].name);
    hoop_json_string(json, "algo", hoop_algo_name(plan->algo));
    hoop_json_uint(json, "ranks", plan->n);
    hoop_json_uint(json, "bytes", plan->count * plan->type_bytes);
    hoop_json_uint(json, "lanes", plan->lanes);
    hoop_json_uint(json, "chunk_bytes", plan->chunk * plan->type_bytes);
    if (plan->algo == HOOP_ALGO_BRUCK && plan->collective != HOOP_COLL_ALL_GATHER) {
        hoop_json_uint(json, "radix", plan->radix);
    }
    hoop_json_string(json, "order",
                     !folds     ? "rank"
                     : machines ? hoop_algo_name(plan->algo)
                     : round    ? "ring"
                                : "rank");
}

/* Refuses invalid arguments of hoop_explain_json(). */
static hoop_result_t explain_check(struct hoop_comm *comm, const char *collective,
                                   const struct hoop_signature *s)
{
    const size_t type_bytes = hoop_datatype_bytes((hoop_datatype_t)s->type);
    if (s->collective == HOOP_COLL_COUNT) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "collective is '%s', expected a name such as all_reduce",
                          collective != NULL ? collective : "(NULL)");
    }
    if (s->collective == HOOP_COLL_ALLTOALLV) {
        return hoop_error(
            HOOP_INVALID_ARGUMENT,
            "alltoallv has only one algorithm: every pair of ranks exchanges its blocks");
    }
    if (comm == NULL) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_explain_json: comm is NULL");
    }
    if (type_bytes == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "hoop_explain_json: datatype is %d, expected 0 to %d", (int)s->type,
                          HOOP_NUM_DATATYPES - 1);
    }
    if (s->op >= HOOP_NUM_OPS) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_explain_json: op is %d, expected 0 to %d",
                          (int)s->op, HOOP_NUM_OPS - 1);
    }
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    hoop_result_t born = hoop_comm_is_ready(comm) ? HOOP_OK : hoop_comm_check_born(comm);
    born = born == HOOP_OK ? hoop_comm_check_sized(comm) : born;
    if (born == HOOP_OK && s->count > SIZE_MAX / 2 / type_bytes / comm->n) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "hoop_explain_json: count is %llu, more than the address space holds",
                          (unsigned long long)s->count);
    }
    return born;
}

hoop_result_t hoop_explain_json(hoop_comm_t comm, const char *collective, size_t count,
                                hoop_datatype_t datatype, hoop_red_op_t op, char *buf, size_t bytes,
                                size_t *needed)
{
    const struct hoop_signature signature = {.collective = info_collective(collective),
                                             .type = (uint32_t)datatype,
                                             .op = (uint32_t)op,
                                             .count = count};
    struct hoop_plan plan = {.collective = (enum hoop_collective)signature.collective};
    uint64_t ns[HOOP_ALGO_COUNT] = {0}, profile = 0;
    hoop_result_t checked = info_check(buf, bytes, needed);
    checked = checked == HOOP_OK ? explain_check(comm, collective, &signature) : checked;
    if (checked != HOOP_OK) {
        return checked;
    }
    pthread_mutex_lock(&comm->look_lock);
    const bool over = comm->over;
    if (!over) {
        hoop_operation_explain(&comm->operation, &signature, &plan, ns);
        profile = comm->agreed.profile;
    }
    pthread_mutex_unlock(&comm->look_lock);
    if (over) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the communicator was aborted: it has no plans any more");
    }
    struct hoop_json json;
    hoop_json_init(&json, buf, bytes);
    hoop_json_object(&json, NULL);
    info_plan(&json, &plan);
    info_profile(&json, profile);
    info_candidates(&json, ns);
    hoop_json_object_end(&json);
    return hoop_json_finish(&json, needed);
}
