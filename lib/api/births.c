/* The functions that make comms, and the options of a new comm. */
#include "api/group.h"
#include "base/settings.h"
#include "birth/split.h"
#include "cost/profile.h"
#include "inspect/report.h"
#include "membership/serve.h"
#include "memory/cuda.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

/* ---- Options -------------------------------------------------------------------------------- */

static hoop_result_t births_milliseconds(const char *field, int value, int least, uint64_t *ret)
{
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

/*
 * Copies the caller's struct. A shorter one comes from an older version: fields that it lacks stay
 * undefined. A longer one comes from a newer version: fields that this version does not know are
 * ignored. Only whole fields are copied, since what is padding at the end of an older struct is a
 * field in a newer one.
 */
static hoop_result_t births_config(const hoop_config_t *config, hoop_config_t *ret)
{
    static const size_t ends[] = {
        offsetof(hoop_config_t, init_timeout_ms), offsetof(hoop_config_t, op_timeout_ms),
        offsetof(hoop_config_t, dead_after_ms),   offsetof(hoop_config_t, algo),
        offsetof(hoop_config_t, comm_name),       sizeof(hoop_config_t),
    };
    const size_t head = offsetof(hoop_config_t, blocking);
    hoop_config_t full = HOOP_CONFIG_INITIALIZER;
    if (config == NULL) {
        *ret = full;
        return HOOP_OK;
    }
    if (config->magic != HOOP_CONFIG_MAGIC || config->size < head || config->version == 0 ||
        (config->size > sizeof(full) && config->version <= HOOP_VERSION_CODE)) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "config was not made with HOOP_CONFIG_INITIALIZER (magic 0x%08x, "
                          "size %zu, version %u; expected 0x%08x, %zu, %d)",
                          config->magic, config->size, config->version, HOOP_CONFIG_MAGIC,
                          sizeof(full), HOOP_VERSION_CODE);
    }
    size_t bytes = head;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && ends[i] <= config->size; i++) {
        bytes = ends[i];
    }
    memcpy(&full, config, bytes);
    if (full.blocking != 0 && full.blocking != 1 && full.blocking != HOOP_CONFIG_UNDEF_INT) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "config.blocking is %d, expected 0 or 1",
                          full.blocking);
    }
    *ret = full;
    return HOOP_OK;
}

static hoop_result_t births_name(const char *name, char ret[HOOP_COMM_NAME_BYTES])
{
    const size_t length = strlen(name);
    if (length >= HOOP_COMM_NAME_BYTES) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "config.comm_name has %zu bytes, expected at most %d: '%.40s...'", length,
                          HOOP_COMM_NAME_BYTES - 1, name);
    }
    memset(ret, 0, HOOP_COMM_NAME_BYTES);
    memcpy(ret, name, length + 1);
    return HOOP_OK;
}

/* Overwrites the fields of *ret that the config sets. */
static hoop_result_t births_apply(const hoop_config_t *config, struct hoop_comm_options *ret)
{
    hoop_config_t full = HOOP_CONFIG_INITIALIZER;
    hoop_result_t result = births_config(config, &full);
    if (result != HOOP_OK) {
        return result;
    }
    if (full.blocking != HOOP_CONFIG_UNDEF_INT) {
        ret->blocking = full.blocking != 0;
    }
    if (full.algo != NULL) {
        ret->join.agreement.algo = hoop_algo_parse(full.algo);
        if (ret->join.agreement.algo == HOOP_ALGO_COUNT) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "config.algo is '%s', expected one of: " HOOP_ALGO_WORDS, full.algo);
        }
    }
    if (full.comm_name != NULL) {
        result = births_name(full.comm_name, ret->name);
    }
    if (result == HOOP_OK) {
        result =
            births_milliseconds("init_timeout_ms", full.init_timeout_ms, 1, &ret->join.timeout_ms);
    }
    if (result == HOOP_OK) {
        result = births_milliseconds("op_timeout_ms", full.op_timeout_ms, 0, &ret->op_timeout_ms);
    }
    if (result == HOOP_OK) {
        result =
            births_milliseconds("dead_after_ms", full.dead_after_ms, 100, &ret->join.dead_after_ms);
    }
    return result;
}

static hoop_result_t births_options(const hoop_config_t *config, int nranks, int rank,
                                    struct hoop_comm_options *ret)
{
    const struct hoop_settings *settings = hoop_settings();
    if (nranks < 1 || nranks > (int)HOOP_MAX_RANKS) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "nranks is %d, expected 1 to %u", nranks,
                          HOOP_MAX_RANKS);
    }
    if (rank < 0 || rank >= nranks) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "rank is %d, expected 0 to %d", rank, nranks - 1);
    }
    ret->join.n = (uint32_t)nranks;
    ret->join.rank = (uint32_t)rank;
    ret->device = -1;
    ret->join.agreement = hoop_settings_agreement(settings);
    ret->join.timeout_ms = settings->init_timeout_ms;
    ret->op_timeout_ms = settings->op_timeout_ms;
    ret->join.dead_after_ms = settings->dead_after_ms;
    ret->blocking = true;
    return births_apply(config, ret);
}

/* ---- Births ---------------------------------------------------------------------------------- */

/* Runs the birth now, or at the end of the calling thread's group. parent: of a birth that could
 * not be made; NULL: a join. */
static hoop_result_t births_go(hoop_result_t made, struct hoop_comm *parent,
                               struct hoop_birth *birth)
{
    if (made != HOOP_OK) {
        return hoop_group_spoil_by(parent, made);
    }
    hoop_report_start();
    return hoop_group_open() ? hoop_group_add_birth(birth) : hoop_births_run(birth, 1);
}

/* A rank with a setting that no default may stand for joins all the same, and fails when all have
 * come: so the others hear of it, and do not wait for this rank. */
static void births_compare(struct hoop_agreement *agreement, struct hoop_failure *ret_unusable)
{
    hoop_result_t result = hoop_settings_accepted(hoop_settings());
    if (result != HOOP_OK) {
        agreement->check = HOOP_UNUSABLE;
    } else if ((result = hoop_profile_use(&agreement->profile)) != HOOP_OK) {
        agreement->profile = HOOP_UNUSABLE;
    }
    (void)hoop_failure_take(ret_unusable, result, -1);
}

static hoop_result_t births_join(struct hoop_comm_options *options, hoop_comm_t *comm)
{
    struct hoop_birth birth;
    struct hoop_failure unusable = {.code = HOOP_OK};
    births_compare(&options->join.agreement, &unusable);
    options->unusable = &unusable;
    const hoop_result_t made = hoop_birth_join(options, comm, &birth);
    options->unusable = NULL;
    return births_go(made, NULL, &birth);
}

/* here: all ranks will be in this process. */
static hoop_result_t births_id(bool here, hoop_unique_id_t *ret_id)
{
    const int before = hoop_cancel_off();
    const hoop_result_t result = hoop_rendezvous_create(here, ret_id);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_get_unique_id(hoop_unique_id_t *id)
{
    return id != NULL ? births_id(false, id) : hoop_null_error("hoop_get_unique_id", "id");
}

/* device: as in hoop_comm_options. */
static hoop_result_t births_by_id(const char *function, hoop_comm_t *comm, int nranks,
                                  const hoop_unique_id_t *id, int rank, const hoop_config_t *config,
                                  int device)
{
    struct hoop_comm_options options = {.join.serve = false};
    if (comm == NULL) {
        return hoop_group_spoil(hoop_null_error(function, "comm"));
    }
    const int before = hoop_cancel_off();
    hoop_result_t result = births_options(config, nranks, rank, &options);
    options.device = device;
    if (result == HOOP_OK) {
        result = hoop_rendezvous_from_id(id, &options.join.rendezvous);
    }
    result = result == HOOP_OK ? births_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_finish(&options.join.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_init_rank_config(hoop_comm_t *comm, int nranks, hoop_unique_id_t id,
                                         int rank, const hoop_config_t *config)
{
    return births_by_id("hoop_comm_init_rank_config", comm, nranks, &id, rank, config, -1);
}

hoop_result_t hoop_comm_init_rank(hoop_comm_t *comm, int nranks, hoop_unique_id_t id, int rank)
{
    return births_by_id("hoop_comm_init_rank", comm, nranks, &id, rank, NULL, -1);
}

hoop_result_t hoop_comm_init_rank_scalable(hoop_comm_t *comm, int nranks, int rank, int n_id,
                                           hoop_unique_id_t *ids, const hoop_config_t *config)
{
    if (ids == NULL || n_id < 1 || (nranks > 0 && n_id > nranks)) {
        return hoop_group_spoil(hoop_error(HOOP_INVALID_ARGUMENT,
                                           "n_id is %d and ids %p, expected 1 to %d ids (nranks)",
                                           n_id, (void *)ids, nranks));
    }
    for (int i = 1; i < n_id; i++) {
        struct hoop_rendezvous other = {.name = ""};
        const hoop_result_t result = hoop_rendezvous_from_id(&ids[i], &other);
        hoop_rendezvous_finish(&other);
        if (result != HOOP_OK) {
            return hoop_group_spoil(hoop_error(result, "ids[%d]: %s", i, hoop_thread_error()));
        }
    }
    return births_by_id("hoop_comm_init_rank_scalable", comm, nranks, &ids[0], rank, config, -1);
}

hoop_result_t hoop_comm_init_env(hoop_comm_t *comm, const hoop_config_t *config)
{
    struct hoop_comm_options options = {.join.serve = false};
    uint32_t n = 0, rank = 0;
    if (comm == NULL) {
        return hoop_group_spoil(hoop_null_error("hoop_comm_init_env", "comm"));
    }
    const int before = hoop_cancel_off();
    /* n and rank are not known yet: a first pass checks the rest and yields the time limit. */
    hoop_result_t result = births_options(config, 1, 0, &options);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_find(NULL, options.join.timeout_ms, &options.join.rendezvous, &n,
                                      &rank);
    }
    if (result == HOOP_OK) {
        result = births_options(config, n > INT_MAX ? INT_MAX : (int)n,
                                rank > INT_MAX ? INT_MAX : (int)rank, &options);
    }
    options.join.serve = rank == 0;
    result = result == HOOP_OK ? births_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_close(&options.join.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_init_url(hoop_comm_t *comm, const char *url, int nranks, int rank,
                                 const hoop_config_t *config)
{
    struct hoop_comm_options options = {.join.serve = rank == 0};
    if (comm == NULL || url == NULL) {
        return hoop_group_spoil(
            hoop_null_error("hoop_comm_init_url", comm == NULL ? "comm" : "url"));
    }
    const int before = hoop_cancel_off();
    hoop_result_t result = births_options(config, nranks, rank, &options);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_find(url, options.join.timeout_ms, &options.join.rendezvous,
                                      &options.join.n, &options.join.rank);
    }
    result = result == HOOP_OK ? births_join(&options, comm) : hoop_group_spoil(result);
    hoop_rendezvous_close(&options.join.rendezvous);
    hoop_cancel_restore(before);
    return result;
}

/* Checks the numbers of devices, if they are given. *ret: how many there are. */
static hoop_result_t births_devices(const int *devlist, int ndev, int *ret)
{
    const bool loaded = hoop_cuda_load();
    *ret = 0;
    if (!loaded && devlist != NULL) {
        return hoop_cuda_need();
    }
    if (loaded && hoop_cuda.device_count(ret) != HOOP_CU_SUCCESS) {
        *ret = 0;
    }
    for (int i = 0; i < ndev && devlist != NULL; i++) {
        if (devlist[i] < 0 || devlist[i] >= *ret) {
            return hoop_error(HOOP_INVALID_ARGUMENT,
                              "devlist[%d] is %d, and CUDA sees %d devices, from 0 on", i,
                              devlist[i], *ret);
        }
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_init_all(hoop_comm_t *comms, int ndev, const int *devlist)
{
    hoop_unique_id_t id;
    int devices = 0;
    if (comms == NULL) {
        return hoop_group_spoil(hoop_null_error("hoop_comm_init_all", "comms"));
    }
    if (ndev < 1 || ndev > (int)HOOP_MAX_RANKS) {
        return hoop_group_spoil(hoop_error(HOOP_INVALID_ARGUMENT, "ndev is %d, expected 1 to %u",
                                           ndev, HOOP_MAX_RANKS));
    }
    hoop_result_t result = births_devices(devlist, ndev, &devices);
    if (result == HOOP_OK) {
        result = births_id(true, &id);
    }
    if (result != HOOP_OK) {
        return hoop_group_spoil(result);
    }
    hoop_group_start();
    for (int rank = 0; rank < ndev; rank++) {
        const int its = rank < devices ? rank : -1;
        births_by_id("hoop_comm_init_all", &comms[rank], ndev, &id, rank, NULL,
                     devlist != NULL ? devlist[rank] : its); /* a failure spoils the group */
    }
    result = hoop_group_end();
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

/* Checks that others can be made of comm, and that the output `ret`, called name, is not NULL. */
static hoop_result_t births_parent(const char *function, hoop_comm_t comm, const void *ret,
                                   const char *name)
{
    if (comm == NULL || ret == NULL) {
        return hoop_null_error(function, comm == NULL ? "comm" : name);
    }
    const hoop_result_t born = hoop_is_forked() ? hoop_forked_error() : hoop_comm_check_born(comm);
    return born == HOOP_OK ? hoop_comm_check_sized(comm) : born;
}

hoop_result_t hoop_comm_split(hoop_comm_t comm, int color, int key, hoop_comm_t *newcomm,
                              const hoop_config_t *config)
{
    struct hoop_comm_options options = {.join.serve = false};
    struct hoop_birth birth;
    hoop_result_t result = births_parent("hoop_comm_split", comm, newcomm, "newcomm");
    if (result == HOOP_OK && color < 0 && color != HOOP_SPLIT_NOCOLOR) {
        result = hoop_error(HOOP_INVALID_ARGUMENT,
                            "hoop_comm_split: color is %d, expected at least 0, or "
                            "HOOP_SPLIT_NOCOLOR",
                            color);
    }
    if (result == HOOP_OK) {
        hoop_comm_inherit(comm, &options);
        result = births_apply(config, &options);
    }
    if (result == HOOP_OK) {
        result = hoop_birth_split(comm, color, key, &options, newcomm, &birth);
    }
    return births_go(result, comm, &birth);
}

hoop_result_t hoop_comm_shrink(hoop_comm_t comm, int *exclude_ranks, int exclude_count,
                               hoop_comm_t *newcomm, const hoop_config_t *config, int flags)
{
    struct hoop_comm_options options = {.join.serve = false};
    struct hoop_birth birth;
    hoop_result_t result = births_parent("hoop_comm_shrink", comm, newcomm, "newcomm");
    if (result == HOOP_OK && (exclude_count < 0 || (exclude_count > 0 && exclude_ranks == NULL))) {
        result = hoop_error(HOOP_INVALID_ARGUMENT,
                            "hoop_comm_shrink: exclude_count is %d and exclude_ranks %p, expected "
                            "an array of exclude_count ranks",
                            exclude_count, (void *)exclude_ranks);
    }
    if (result == HOOP_OK && flags != HOOP_SHRINK_DEFAULT && flags != HOOP_SHRINK_ABORT) {
        result = hoop_error(HOOP_INVALID_ARGUMENT,
                            "hoop_comm_shrink: flags is 0x%x, expected HOOP_SHRINK_DEFAULT or "
                            "HOOP_SHRINK_ABORT",
                            (unsigned)flags);
    }
    if (result == HOOP_OK) {
        hoop_comm_inherit(comm, &options);
        result = births_apply(config, &options);
    }
    if (result == HOOP_OK) {
        result = hoop_birth_shrink(comm, exclude_ranks, (size_t)exclude_count,
                                   flags == HOOP_SHRINK_ABORT, &options, newcomm, &birth);
    }
    return births_go(result, comm, &birth);
}

hoop_result_t hoop_comm_get_unique_id(hoop_comm_t comm, hoop_unique_id_t *id)
{
    const int before = hoop_cancel_off();
    hoop_result_t result = births_parent("hoop_comm_get_unique_id", comm, id, "id");
    result = result == HOOP_OK ? hoop_split_invite(comm, id) : result;
    hoop_cancel_restore(before);
    return result;
}

static hoop_result_t births_check_growth(const struct hoop_comm *comm, int nranks, int rank)
{
    if (rank != -1) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "hoop_comm_grow: rank is %d, expected -1: members keep theirs", rank);
    }
    if (nranks < (int)comm->n || nranks > (int)HOOP_MAX_RANKS) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_comm_grow: nranks is %d, expected %u to %u",
                          nranks, comm->n, HOOP_MAX_RANKS);
    }
    return HOOP_OK;
}

hoop_result_t hoop_comm_grow(hoop_comm_t comm, int nranks, const hoop_unique_id_t *id, int rank,
                             hoop_comm_t *newcomm, const hoop_config_t *config)
{
    struct hoop_comm_options options = {.join.serve = false};
    struct hoop_birth birth;
    if (comm == NULL && (id == NULL || newcomm == NULL)) {
        return hoop_group_spoil(
            hoop_null_error("hoop_comm_grow", id == NULL ? "comm and id" : "newcomm"));
    }
    if (comm == NULL) {
        return births_by_id("hoop_comm_grow", newcomm, nranks, id, rank, config, -1);
    }
    hoop_result_t result = births_parent("hoop_comm_grow", comm, newcomm, "newcomm");
    if (result == HOOP_OK) {
        result = births_check_growth(comm, nranks, rank);
    }
    if (result == HOOP_OK) {
        hoop_comm_inherit(comm, &options);
        result = births_apply(config, &options);
    }
    if (result == HOOP_OK) {
        result = hoop_birth_grow(comm, (uint32_t)nranks, id, &options, newcomm, &birth);
    }
    return births_go(result, comm, &birth);
}
