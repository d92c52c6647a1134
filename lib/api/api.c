/*
 * Every exported function that is not a table look-up: check, translate, forward. Nothing here
 * does the work itself. (Collectives: collectives.c. Groups: group.c. Information: info.c. Error
 * texts: base/error.c.)
 */
#include "api/group.h"
#include "api/streams.h"
#include "base/log.h"
#include "comm/comm.h"
#include "membership/serve.h"
#include "memory/region.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* An operation that was ended by an abort may take this long to be out: its fence may have to wait
 * for a thread of this process. */
#define API_ABORT_PATIENCE_MS 60000u

/* ---- Small things --------------------------------------------------------------------------- */

static hoop_result_t api_null(const char *function, const char *what)
{
    return hoop_error(HOOP_INVALID_ARGUMENT, "%s: %s is NULL", function, what);
}

hoop_result_t hoop_get_version(int *version)
{
    if (version == NULL) {
        return api_null("hoop_get_version", "version");
    }
    *version = HOOP_VERSION_CODE;
    return HOOP_OK;
}

const char *hoop_get_last_error(hoop_comm_t comm)
{
    static _Thread_local struct hoop_failure failure;
    if (comm != NULL && hoop_comm_state(comm, &failure) != HOOP_OK) {
        return failure.text;
    }
    return hoop_thread_error();
}

hoop_result_t hoop_comm_get_async_error(hoop_comm_t comm, hoop_result_t *async_error)
{
    if (comm == NULL || async_error == NULL) {
        return api_null("hoop_comm_get_async_error", comm == NULL ? "comm" : "async_error");
    }
    *async_error = hoop_comm_state(comm, NULL);
    return HOOP_OK;
}

hoop_result_t hoop_set_log_callback(hoop_log_fn_t fn, void *arg)
{
    hoop_log_set_callback(fn, arg);
    return HOOP_OK;
}

hoop_result_t hoop_setting_next(size_t *cursor, hoop_setting_t *setting)
{
    if (cursor == NULL || setting == NULL) {
        return api_null("hoop_setting_next", cursor == NULL ? "cursor" : "setting");
    }
    hoop_log_settings();
    return hoop_settings_next(cursor, setting);
}

/* ---- Birth and death ------------------------------------------------------------------------ */

static hoop_result_t api_milliseconds(const char *field, int value, uint64_t preset, int least,
                                      uint64_t *ret)
{
    *ret = preset;
    if (value == HOOP_CONFIG_UNDEF_INT) {
        return HOOP_OK;
    }
    if (value < least) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "config.%s is %d, expected at least %d", field,
                          value, least);
    }
    *ret = (uint64_t)value;
    return HOOP_OK;
}

/* A copy of the caller's struct, older and shorter ones completed with defaults. */
static hoop_result_t api_config(const hoop_config_t *config, hoop_config_t *ret)
{
    hoop_config_t full = HOOP_CONFIG_INITIALIZER;
    if (config != NULL) {
        if (config->magic != HOOP_CONFIG_MAGIC ||
            config->size < offsetof(hoop_config_t, blocking)) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "config was not made with HOOP_CONFIG_INITIALIZER (magic 0x%08x, "
                              "size %zu)",
                              config->magic, config->size);
        }
        memcpy(&full, config, config->size < sizeof(full) ? config->size : sizeof(full));
    }
    if (full.blocking == 0) {
        return hoop_error(HOOP_UNSUPPORTED, "config.blocking 0 is not supported by this version");
    }
    if (full.blocking != 1 && full.blocking != HOOP_CONFIG_UNDEF_INT) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "config.blocking is %d, expected 0 or 1",
                          full.blocking);
    }
    *ret = full;
    return HOOP_OK;
}

static hoop_result_t api_options(const hoop_config_t *config, int nranks, int rank,
                                 struct hoop_comm_options *ret)
{
    const struct hoop_settings *settings = hoop_settings();
    hoop_config_t full = HOOP_CONFIG_INITIALIZER;
    hoop_result_t result = api_config(config, &full);
    if (result != HOOP_OK) {
        return result;
    }
    if (nranks < 1 || nranks > (int)HOOP_MAX_RANKS) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "nranks is %d, expected 1 to %u", nranks,
                          HOOP_MAX_RANKS);
    }
    if (rank < 0 || rank >= nranks) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "rank is %d, expected 0 to %d", rank, nranks - 1);
    }
    ret->n = (uint32_t)nranks;
    ret->rank = (uint32_t)rank;
    ret->agreed = hoop_settings_agreement(settings);
    if (full.algo != NULL) {
        ret->agreed.algo = hoop_algo_parse(full.algo);
        if (ret->agreed.algo == HOOP_ALGO_COUNT) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "config.algo is '%s', expected auto, oneshot, direct, slab, ring, "
                              "bruck, pairwise, chain or binomial",
                              full.algo);
        }
    }
    if (full.comm_name != NULL) {
        strncpy(ret->name, full.comm_name, sizeof(ret->name) - 1);
    }
    result = api_milliseconds("init_timeout_ms", full.init_timeout_ms, settings->init_timeout_ms, 1,
                              &ret->init_timeout_ms);
    if (result == HOOP_OK) {
        result = api_milliseconds("op_timeout_ms", full.op_timeout_ms, settings->op_timeout_ms, 0,
                                  &ret->op_timeout_ms);
    }
    if (result == HOOP_OK) {
        result = api_milliseconds("dead_after_ms", full.dead_after_ms, settings->dead_after_ms, 100,
                                  &ret->dead_after_ms);
    }
    return result;
}

/* Joins now, or at the end of the calling thread's group. */
static hoop_result_t api_join(const struct hoop_comm_options *options, hoop_comm_t *comm)
{
    struct hoop_comm *born = NULL;
    hoop_result_t result = hoop_comm_begin(options, &born);
    if (result != HOOP_OK) {
        return hoop_group_spoil(result);
    }
    if (hoop_group_open()) {
        return hoop_group_add_birth(born, comm);
    }
    result = hoop_comm_complete(born);
    if (result == HOOP_OK) {
        *comm = born;
    }
    return result;
}

hoop_result_t hoop_get_unique_id(hoop_unique_id_t *id)
{
    if (id == NULL) {
        return api_null("hoop_get_unique_id", "id");
    }
    const hoop_result_t result = hoop_service_start();
    return result == HOOP_OK ? hoop_rendezvous_create(false, id) : result;
}

hoop_result_t hoop_comm_init_rank_config(hoop_comm_t *comm, int nranks, hoop_unique_id_t id,
                                         int rank, const hoop_config_t *config)
{
    struct hoop_comm_options options = {.serve = false};
    if (comm == NULL) {
        return hoop_group_spoil(api_null("hoop_comm_init_rank_config", "comm"));
    }
    const int before = hoop_cancel_off();
    hoop_result_t result = api_options(config, nranks, rank, &options);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_from_id(&id, &options.rendezvous);
    }
    result = result == HOOP_OK ? api_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_finish(&options.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_init_rank(hoop_comm_t *comm, int nranks, hoop_unique_id_t id, int rank)
{
    return hoop_comm_init_rank_config(comm, nranks, id, rank, NULL);
}

hoop_result_t hoop_comm_init_rank_scalable(hoop_comm_t *comm, int nranks, int rank, int n_id,
                                           hoop_unique_id_t *ids, const hoop_config_t *config)
{
    if (ids == NULL || n_id < 1) {
        return hoop_group_spoil(hoop_error(HOOP_INVALID_ARGUMENT,
                                           "n_id is %d and ids %p, expected 1 and an id", n_id,
                                           (void *)ids));
    }
    if (n_id > 1) {
        return hoop_group_spoil(
            hoop_error(HOOP_UNSUPPORTED, "%d unique ids: this version joins by exactly one", n_id));
    }
    return hoop_comm_init_rank_config(comm, nranks, ids[0], rank, config);
}

hoop_result_t hoop_comm_init_env(hoop_comm_t *comm, const hoop_config_t *config)
{
    struct hoop_comm_options options = {.serve = false};
    uint32_t n = 0, rank = 0;
    if (comm == NULL) {
        return hoop_group_spoil(api_null("hoop_comm_init_env", "comm"));
    }
    const int before = hoop_cancel_off();
    /* First what needs no n, and how long may be waited. */
    hoop_result_t result = api_options(config, 1, 0, &options);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_from_env(options.init_timeout_ms, &options.rendezvous, &n, &rank);
    }
    if (result == HOOP_OK) {
        result = api_options(config, n > INT_MAX ? INT_MAX : (int)n,
                             rank > INT_MAX ? INT_MAX : (int)rank, &options);
    }
    options.serve = rank == 0;
    result = result == HOOP_OK ? api_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_close(&options.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_init_url(hoop_comm_t *comm, const char *url, int nranks, int rank,
                                 const hoop_config_t *config)
{
    struct hoop_comm_options options = {.serve = rank == 0};
    if (comm == NULL || url == NULL) {
        return hoop_group_spoil(api_null("hoop_comm_init_url", comm == NULL ? "comm" : "url"));
    }
    const int before = hoop_cancel_off();
    hoop_result_t result = api_options(config, nranks, rank, &options);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_from_url(url, options.n, options.rank, options.init_timeout_ms,
                                          &options.rendezvous);
    }
    result = result == HOOP_OK ? api_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_close(&options.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_init_all(hoop_comm_t *comms, int ndev, const int *devlist)
{
    hoop_unique_id_t id;
    if (comms == NULL) {
        return hoop_group_spoil(api_null("hoop_comm_init_all", "comms"));
    }
    if (ndev < 1 || ndev > (int)HOOP_MAX_RANKS) {
        return hoop_group_spoil(hoop_error(HOOP_INVALID_ARGUMENT, "ndev is %d, expected 1 to %u",
                                           ndev, HOOP_MAX_RANKS));
    }
    if (devlist != NULL) {
        return hoop_group_spoil(
            hoop_error(HOOP_UNSUPPORTED, "devices: this version has host ranks only; pass NULL"));
    }
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = hoop_rendezvous_create(true, &id);
    }
    if (result != HOOP_OK) {
        return hoop_group_spoil(result);
    }
    hoop_group_start();
    for (int rank = 0; rank < ndev; rank++) {
        hoop_comm_init_rank(&comms[rank], ndev, id, rank); /* a failure spoils the group */
    }
    result = hoop_group_end();
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

hoop_result_t hoop_comm_finalize(hoop_comm_t comm)
{
    /* Every operation is complete when its call returns: nothing is left to flush. */
    return comm == NULL ? api_null("hoop_comm_finalize", "comm") : hoop_comm_say_goodbye(comm);
}

hoop_result_t hoop_comm_destroy(hoop_comm_t comm)
{
    if (hoop_group_holds(comm)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "hoop_comm_destroy: this thread has calls on the communicator in an open "
                          "group; expected hoop_group_end() before, or hoop_comm_abort()");
    }
    if (comm != NULL && !hoop_is_forked() && hoop_comm_state(comm, NULL) != HOOP_OK) {
        hoop_streams_drop(comm);
    }
    return hoop_comm_end(comm);
}

hoop_result_t hoop_comm_abort(hoop_comm_t comm)
{
    if (comm == NULL) {
        return HOOP_OK;
    }
    hoop_comm_raise(comm, HOOP_ABORTED, (int)comm->rank, "rank %u aborted the communicator",
                    comm->rank);
    hoop_streams_drop(comm);
    return hoop_comm_release(comm, API_ABORT_PATIENCE_MS);
}

hoop_result_t hoop_comm_revoke(hoop_comm_t comm, int flags)
{
    if (comm == NULL) {
        return api_null("hoop_comm_revoke", "comm");
    }
    if (flags != HOOP_REVOKE_DEFAULT) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_comm_revoke: flags is %d, expected 0",
                          flags);
    }
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    hoop_comm_raise(comm, HOOP_ABORTED, (int)comm->rank, "rank %u revoked the communicator",
                    comm->rank);
    hoop_streams_drop(comm);
    return HOOP_OK;
}

hoop_result_t hoop_comm_count(hoop_comm_t comm, int *count)
{
    if (comm == NULL || count == NULL) {
        return api_null("hoop_comm_count", comm == NULL ? "comm" : "count");
    }
    *count = (int)comm->n;
    return HOOP_OK;
}

hoop_result_t hoop_comm_user_rank(hoop_comm_t comm, int *rank)
{
    if (comm == NULL || rank == NULL) {
        return api_null("hoop_comm_user_rank", comm == NULL ? "comm" : "rank");
    }
    *rank = (int)comm->rank;
    return HOOP_OK;
}

hoop_result_t hoop_comm_cu_device(hoop_comm_t comm, int *device)
{
    if (comm == NULL || device == NULL) {
        return api_null("hoop_comm_cu_device", comm == NULL ? "comm" : "device");
    }
    *device = -1;
    return HOOP_OK;
}

/* ---- Memory --------------------------------------------------------------------------------- */

hoop_result_t hoop_mem_alloc(void **ptr, size_t bytes, hoop_mem_kind_t kind)
{
    if (ptr == NULL) {
        return api_null("hoop_mem_alloc", "ptr");
    }
    if (kind != HOOP_MEM_HOST && kind != HOOP_MEM_DEVICE) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_mem_alloc: kind is %d, expected 0 or 1",
                          (int)kind);
    }
    if (bytes == 0) {
        *ptr = NULL;
        return HOOP_OK;
    }
    return hoop_is_forked() ? hoop_forked_error() : hoop_region_alloc(bytes, kind, ptr);
}

hoop_result_t hoop_mem_free(void *ptr)
{
    return ptr == NULL || hoop_is_forked() ? HOOP_OK : hoop_region_free(ptr);
}

hoop_result_t hoop_comm_register(hoop_comm_t comm, void *buff, size_t size, void **handle)
{
    if (comm == NULL || handle == NULL || (buff == NULL && size > 0)) {
        return api_null("hoop_comm_register", comm == NULL     ? "comm"
                                              : handle == NULL ? "handle"
                                                               : "buff");
    }
    /* A handle of its own, so that a double deregister is found by the allocator's checkers. */
    void *made = malloc(1);
    if (made == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "hoop_comm_register: no memory for a handle");
    }
    *handle = made;
    return HOOP_OK;
}

hoop_result_t hoop_comm_deregister(hoop_comm_t comm, void *handle)
{
    if (comm == NULL || handle == NULL) {
        return api_null("hoop_comm_deregister", comm == NULL ? "comm" : "handle");
    }
    free(handle);
    return HOOP_OK;
}
