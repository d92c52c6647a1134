/* hoop_info_json() and hoop_explain_json(): what can be seen from outside. */
#include "base/json.h"
#include "comm.h"
#include "memory.h"

#include <unistd.h>

static void info_process(struct hoop_json *json)
{
    struct hoop_region_stats stats;
    hoop_region_stats(&stats);
    hoop_json_key(json, "version");
    hoop_json_int(json, HOOP_VERSION_CODE);
    hoop_json_key(json, "pid");
    hoop_json_int(json, getpid());
    hoop_json_key(json, "kernels");
    hoop_json_string(json, hoop_reduce_isa());
    hoop_json_key(json, "usable_cpus");
    hoop_json_uint(json, hoop_usable_cpus());
    hoop_json_key(json, "regions");
    hoop_json_uint(json, stats.regions);
    hoop_json_key(json, "region_bytes");
    hoop_json_uint(json, stats.region_bytes);
    hoop_json_key(json, "imports");
    hoop_json_uint(json, stats.imports);
    hoop_json_key(json, "import_bytes");
    hoop_json_uint(json, stats.import_bytes);
}

/* The last operations, oldest first. Read while the driver may write: a line may be of two. */
static void info_history(struct hoop_json *json, const struct hoop_comm *comm)
{
    hoop_json_key(json, "operations");
    hoop_json_array(json);
    const uint32_t last = comm->board.sequence;
    for (uint32_t i = 0; i < HOOP_HISTORY; i++) {
        const uint32_t sequence = last - HOOP_HISTORY + 1 + i;
        const struct hoop_comm_past *past = &comm->history[sequence % HOOP_HISTORY];
        if (past->sequence == sequence && sequence != 0) {
            char what[96];
            hoop_signature_describe(&past->signature, what, sizeof(what));
            hoop_json_object(json);
            hoop_json_key(json, "sequence");
            hoop_json_uint(json, sequence);
            hoop_json_key(json, "what");
            hoop_json_string(json, what);
            hoop_json_key(json, "result");
            hoop_json_string(json, hoop_get_error_name(past->result));
            hoop_json_object_end(json);
        }
    }
    hoop_json_array_end(json);
}

static void info_comm(struct hoop_json *json, struct hoop_comm *comm)
{
    struct hoop_failure failure = {.text = ""};
    const hoop_result_t state = hoop_comm_state(comm, &failure);
    hoop_json_key(json, "name");
    hoop_json_string(json, comm->name);
    hoop_json_key(json, "rank");
    hoop_json_uint(json, comm->rank);
    hoop_json_key(json, "ranks");
    hoop_json_uint(json, comm->n);
    hoop_json_key(json, "algo");
    hoop_json_string(json, hoop_algo_name((enum hoop_algo)comm->agreed.algo));
    hoop_json_key(json, "waiting_policy");
    hoop_json_string(json, comm->spin_ns != 0 ? "spin" : "yield");
    hoop_json_key(json, "state");
    hoop_json_string(json, hoop_get_error_name(state));
    hoop_json_key(json, "failure");
    hoop_json_string(json, failure.text);
    hoop_json_key(json, "peers");
    hoop_json_array(json);
    for (uint32_t rank = 0; rank < comm->n; rank++) {
        const struct hoop_peer *peer = &comm->board.peers[rank];
        hoop_json_object(json);
        hoop_json_key(json, "rank");
        hoop_json_uint(json, rank);
        hoop_json_key(json, "pid");
        hoop_json_int(json, peer->pid);
        hoop_json_key(json, "host");
        hoop_json_string(json, peer->host);
        hoop_json_object_end(json);
    }
    hoop_json_array_end(json);
    info_history(json, comm);
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
    const hoop_result_t checked = info_check(buf, bytes, needed);
    if (checked != HOOP_OK) {
        return checked;
    }
    struct hoop_json json;
    hoop_json_init(&json, buf, bytes);
    hoop_json_object(&json);
    if (comm == NULL) {
        info_process(&json);
    } else {
        info_comm(&json, comm);
    }
    hoop_json_object_end(&json);
    return hoop_json_finish(&json, needed);
}

hoop_result_t hoop_explain_json(hoop_comm_t comm, size_t count, hoop_datatype_t datatype,
                                hoop_red_op_t op, char *buf, size_t bytes, size_t *needed)
{
    const size_t type_bytes = hoop_datatype_bytes(datatype);
    hoop_result_t checked = info_check(buf, bytes, needed);
    if (checked == HOOP_OK && (comm == NULL || type_bytes == 0 || (int)op < 0 ||
                               (int)op >= HOOP_NUM_OPS || count > SIZE_MAX / type_bytes)) {
        checked = hoop_error(HOOP_INVALID_ARGUMENT,
                             "comm %p, datatype %d, op %d, count %zu: one of them is invalid",
                             (void *)comm, (int)datatype, (int)op, count);
    }
    if (checked != HOOP_OK) {
        return checked;
    }
    struct hoop_plan plan;
    hoop_operation_explain(&comm->operation, count, (uint32_t)type_bytes, &plan);
    struct hoop_json json;
    hoop_json_init(&json, buf, bytes);
    hoop_json_object(&json);
    hoop_json_key(&json, "algo");
    hoop_json_string(&json, hoop_algo_name(plan.algo));
    hoop_json_key(&json, "ranks");
    hoop_json_uint(&json, plan.n);
    hoop_json_key(&json, "bytes");
    hoop_json_uint(&json, count * type_bytes);
    hoop_json_key(&json, "lanes");
    hoop_json_uint(&json, plan.lanes);
    hoop_json_key(&json, "chunk_bytes");
    hoop_json_uint(&json, plan.chunk * plan.type_bytes);
    hoop_json_key(&json, "order");
    hoop_json_string(&json, plan.algo == HOOP_ALGO_RING ? "ring" : "rank");
    hoop_json_object_end(&json);
    return hoop_json_finish(&json, needed);
}
