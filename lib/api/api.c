/*
 * Every exported function that is not a table look-up: check, translate, forward. Nothing here
 * does the work itself. (Collectives: collectives.c. Groups: group.c. Births: births.c.
 * Information: inspect/info.c. Error texts: base/error.c.)
 */
#include "api/group.h"
#include "base/log.h"
#include "birth/birth.h"
#include "comm/ops.h"
#include "device/capture.h"
#include "device/rooms.h"
#include "membership/membership.h"
#include "memory/region.h"
#include "runtime/wait.h"
#include "stream/progress.h"

/* How long an aborted operation may take to return: its fence may have to wait for a thread of this
 * process. */
#define API_ABORT_PATIENCE_MS 60000u

/* ---- Small things --------------------------------------------------------------------------- */

hoop_result_t hoop_get_version(int *version)
{
    if (version == NULL) {
        return hoop_null_error("hoop_get_version", "version");
    }
    *version = HOOP_VERSION_CODE;
    return HOOP_OK;
}

const char *hoop_get_last_error(hoop_comm_t comm)
{
    struct hoop_failure failure;
    const bool failed = comm != NULL && hoop_comm_state(comm, &failure) != HOOP_OK;
    return failed ? hoop_failure_copy(&failure) : hoop_thread_error();
}

hoop_result_t hoop_comm_get_async_error(hoop_comm_t comm, hoop_result_t *async_error)
{
    if (comm == NULL || async_error == NULL) {
        return hoop_null_error("hoop_comm_get_async_error", comm == NULL ? "comm" : "async_error");
    }
    /* A failure counts once nothing is in progress: who is told of it may shrink the comm. */
    const bool pending = hoop_comm_is_pending(comm) && !hoop_is_forked();
    *async_error = pending ? HOOP_IN_PROGRESS : hoop_comm_state(comm, NULL);
    if (*async_error == HOOP_IN_PROGRESS) {
        hoop_wait_yield(); /* callers ask in a loop */
    }
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
        return hoop_null_error("hoop_setting_next", cursor == NULL ? "cursor" : "setting");
    }
    hoop_log_settings();
    return hoop_settings_next(cursor, setting);
}

/* ---- Death ---------------------------------------------------------------------------------- */

/* For the calls at a comm's end, which programs make twice by mistake. NULL passes. */
static hoop_result_t api_check_exists(const char *function, hoop_comm_t comm)
{
    return comm == NULL || hoop_is_forked() || hoop_comm_exists(comm)
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_ARGUMENT,
                            "%s: comm is %p, which is no communicator, or one that was destroyed",
                            function, (void *)comm);
}

hoop_result_t hoop_comm_finalize(hoop_comm_t comm)
{
    if (comm == NULL) {
        return hoop_null_error("hoop_comm_finalize", "comm");
    }
    hoop_result_t result = api_check_exists("hoop_comm_finalize", comm);
    result = result == HOOP_OK ? hoop_comm_check_born(comm) : result;
    if (result != HOOP_OK) {
        return result;
    }
    /* Waits for its turn behind queued calls. There is nothing else to flush. */
    if (comm->blocking || hoop_is_forked()) {
        return hoop_comm_say_goodbye(comm, true);
    }
    result = hoop_comm_refuse(comm);
    return result == HOOP_OK ? hoop_birth_finalize(comm) : result;
}

/* Releases what CUDA streams and their graphs keep for calls on the comm. */
static void api_close(const struct hoop_comm *comm)
{
    hoop_capture_close(comm);
    hoop_rooms_close(comm);
}

static void api_free_closed(void)
{
    hoop_capture_free_gone();
    hoop_rooms_free_idle();
}

hoop_result_t hoop_comm_destroy(hoop_comm_t comm)
{
    hoop_result_t result = api_check_exists("hoop_comm_destroy", comm);
    if (result != HOOP_OK) {
        return result;
    }
    if (!hoop_is_forked() && hoop_group_holds(comm)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "hoop_comm_destroy: this thread has calls on the communicator in an open "
                          "group; expected hoop_group_end() before, or hoop_comm_abort()");
    }
    if (comm != NULL && !hoop_is_forked() && hoop_comm_state(comm, NULL) != HOOP_OK) {
        hoop_progress_drop(comm);
    }
    api_close(comm);
    result = hoop_comm_end(comm);
    api_free_closed();
    return result;
}

hoop_result_t hoop_linger(void)
{
    return hoop_member_linger();
}

/* How abort and revoke end a comm. */
static void api_end(hoop_comm_t comm, const char *how)
{
    api_close(comm);
    hoop_comm_give_up(comm, how);
    hoop_progress_drop(comm);
    api_free_closed();
}

hoop_result_t hoop_comm_abort(hoop_comm_t comm)
{
    const hoop_result_t result = api_check_exists("hoop_comm_abort", comm);
    if (comm == NULL || result != HOOP_OK) {
        return result;
    }
    api_end(comm, "aborted");
    return hoop_comm_release(comm, API_ABORT_PATIENCE_MS);
}

hoop_result_t hoop_comm_leave(hoop_comm_t comm)
{
    const hoop_result_t result = api_check_exists("hoop_comm_leave", comm);
    if (comm == NULL || result != HOOP_OK) {
        return result;
    }
    if (!hoop_comm_is_pending(comm)) {
        (void)hoop_comm_say_goodbye(comm, false); /* a failed comm needs none */
    }
    return hoop_comm_abort(comm);
}

hoop_result_t hoop_comm_revoke(hoop_comm_t comm, int flags)
{
    if (comm == NULL) {
        return hoop_null_error("hoop_comm_revoke", "comm");
    }
    if (flags != HOOP_REVOKE_DEFAULT) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_comm_revoke: flags is %d, expected 0",
                          flags);
    }
    if (hoop_is_forked()) {
        return hoop_forked_error();
    }
    const hoop_result_t result = api_check_exists("hoop_comm_revoke", comm);
    if (result == HOOP_OK) {
        api_end(comm, "revoked");
    }
    return result;
}

hoop_result_t hoop_comm_count(hoop_comm_t comm, int *count)
{
    if (comm == NULL || count == NULL) {
        return hoop_null_error("hoop_comm_count", comm == NULL ? "comm" : "count");
    }
    const hoop_result_t born = hoop_comm_is_ready(comm) ? HOOP_OK : hoop_comm_check_born(comm);
    *count = born == HOOP_OK ? (int)comm->n : *count;
    return born;
}

hoop_result_t hoop_comm_user_rank(hoop_comm_t comm, int *rank)
{
    if (comm == NULL || rank == NULL) {
        return hoop_null_error("hoop_comm_user_rank", comm == NULL ? "comm" : "rank");
    }
    const hoop_result_t born = hoop_comm_is_ready(comm) ? HOOP_OK : hoop_comm_check_born(comm);
    *rank = born == HOOP_OK ? (int)comm->rank : *rank;
    return born;
}

hoop_result_t hoop_comm_cu_device(hoop_comm_t comm, int *device)
{
    if (comm == NULL || device == NULL) {
        return hoop_null_error("hoop_comm_cu_device", comm == NULL ? "comm" : "device");
    }
    *device = comm->device;
    return HOOP_OK;
}

/* ---- Memory --------------------------------------------------------------------------------- */

hoop_result_t hoop_mem_alloc(void **ptr, size_t bytes, hoop_mem_kind_t kind)
{
    if (ptr == NULL) {
        return hoop_null_error("hoop_mem_alloc", "ptr");
    }
    if (kind != HOOP_MEM_HOST && kind != HOOP_MEM_DEVICE) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_mem_alloc: kind is %d, expected 0 or 1",
                          (int)kind);
    }
    if (bytes == 0) {
        *ptr = NULL;
        return HOOP_OK;
    }
    const int before = hoop_cancel_off();
    const hoop_result_t result =
        hoop_is_forked() ? hoop_forked_error() : hoop_region_alloc(bytes, kind, ptr);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_mem_free(void *ptr)
{
    const int before = hoop_cancel_off();
    const hoop_result_t result =
        ptr == NULL || hoop_is_forked() ? HOOP_OK : hoop_progress_free(ptr);
    hoop_cancel_restore(before);
    return result;
}

hoop_result_t hoop_comm_register(hoop_comm_t comm, void *buff, size_t size, void **handle)
{
    if (comm == NULL || handle == NULL || (buff == NULL && size > 0)) {
        return hoop_null_error("hoop_comm_register", comm == NULL     ? "comm"
                                                     : handle == NULL ? "handle"
                                                                      : "buff");
    }
    return hoop_ops_register(comm, handle);
}

hoop_result_t hoop_comm_deregister(hoop_comm_t comm, void *handle)
{
    if (comm == NULL) {
        return hoop_null_error("hoop_comm_deregister", "comm");
    }
    return handle == NULL ? HOOP_OK : hoop_ops_deregister(comm, handle);
}
