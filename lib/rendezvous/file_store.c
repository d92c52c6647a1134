/*
 * Rendezvous at a file; see file_store.h.
 *
 * A file may be stale: a job that was killed leaves its file behind, and nothing in it shows that
 * its writer is dead. So a file is believed only when a process at its address proves the secret in
 * it; until then it is read again and again. That needs no clock, no lock and no order of arrival,
 * and works on any file system that shows a directory's changes to other machines eventually. NFS
 * clients cache directories and may show changes late, unless they change the directory themselves:
 * so whoever waits makes and removes a file there now and then ("stir").
 *
 * KEY holds the rendezvous's unique id. It is written under another name and renamed, so that
 * nobody reads half of it. It is not synced to disk, since it is of no use once its writer is dead.
 * The directory belongs to this user and has mode 0700; other users can at most block its name.
 */
#include "rendezvous/file_store.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/list.h"
#include "base/log.h"
#include "control/dialer.h"
#include "rendezvous/private_file.h"
#include "runtime/process.h"
#include "runtime/wait.h"
#include "runtime/worker.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_PATH_BYTES 2048
#define FILE_NAME_BYTES (HOOP_RENDEZVOUS_KEY_BYTES + sizeof(".stir0123456789abcdef"))
#define FILE_LOOK_FIRST_MS 2u
#define FILE_LOOK_LAST_MS 50u
#define FILE_STIR_MS 1000u
#define FILE_POST_MS 250u
#define FILE_SETTLE_MS 500u

enum file_found { FILE_NOTHING, FILE_DAMAGED, FILE_ID };

/* What a worker thread does with a file: publish an id, or wait for one. */
struct hoop_file_task {
    struct hoop_worker worker;  /* first */
    struct hoop_list_node node; /* in file_posts; like withdrawn under file_lock */
    bool withdrawn;
    char *file;
    uint64_t timeout_ms, deadline_ns;
    hoop_unique_id_t id; /* publishing: the id to write; waiting: the id last found */
    /* Only for waiting: */
    enum file_found found;
    uint64_t stir_at_ns;
    struct hoop_rendezvous rendezvous; /* what was last found; no address: nothing to dial yet */
    struct hoop_dialer *dialer;        /* service thread */
    struct hoop_job proof; /* completes when an end proves the id, or none can be dialled */
};

static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
/* The tasks that publish, until their threads have ended. Under file_lock. */
static struct hoop_list_node file_posts = HOOP_LIST_EMPTY(file_posts);

/* ---- The file ----------------------------------------------------------------------------- */

static const char *file_key(const char *file)
{
    return strrchr(file, '/') + 1;
}

static void file_directory(const char *file, char ret[FILE_PATH_BYTES])
{
    (void)snprintf(ret, FILE_PATH_BYTES, "%.*s", (int)(file_key(file) - 1 - file), file);
}

static void file_clear_directory(const char *file)
{
    char directory[FILE_PATH_BYTES];
    file_directory(file, directory);
    (void)rmdir(directory); /* fails unless it is empty */
}

hoop_result_t hoop_file_store_name(const char *path, const char key[HOOP_RENDEZVOUS_KEY_BYTES],
                                   char **ret_file)
{
    char file[FILE_PATH_BYTES];
    const size_t most = sizeof(file) - FILE_NAME_BYTES - sizeof(".hoop/");
    const char *base = strrchr(path, '/');
    if (path[0] != '/' || base[1] == 0 || strcmp(base, "/.") == 0 || strcmp(base, "/..") == 0 ||
        strlen(path) > most) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "\"%.200s\" is not the absolute path of a file, shorter than %zu", path,
                          most);
    }
    (void)snprintf(file, sizeof(file), "%s.hoop/%s", path, key);
    *ret_file = strdup(file);
    return *ret_file != NULL ? HOOP_OK : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a path");
}

/* Reads the file. Fills in *ret_id and *ret only if it returns FILE_ID. */
static enum file_found file_read(int directory, const char *key, hoop_unique_id_t *ret_id,
                                 struct hoop_rendezvous *ret)
{
    hoop_unique_id_t ids[2]; /* room for more than an id, since a longer file is damaged */
    const ssize_t bytes = hoop_private_read(directory, key, ids, sizeof(ids));
    const bool good = bytes == sizeof(ids[0]) && hoop_rendezvous_from_id(&ids[0], ret) == HOOP_OK &&
                      ret->address_count > 0;
    if (good) {
        *ret_id = ids[0];
    }
    hoop_secret_wipe(ids, sizeof(ids));
    return good ? FILE_ID : bytes < 0 ? FILE_NOTHING : FILE_DAMAGED;
}

/* ---- Tasks -------------------------------------------------------------------------------- */

static void task_destroy(struct hoop_worker *worker)
{
    struct hoop_file_task *task = (struct hoop_file_task *)worker;
    hoop_secret_wipe(&task->id, sizeof(task->id));
    hoop_secret_wipe(&task->rendezvous, sizeof(task->rendezvous));
    free(task->file);
    free(task);
}

/* Starts a worker. The task is referenced by its worker and by the caller. */
static hoop_result_t task_start(const char *file, const hoop_unique_id_t *id, uint64_t timeout_ms,
                                hoop_result_t (*run)(struct hoop_worker *worker),
                                struct hoop_file_task **ret_task)
{
    struct hoop_file_task *task = calloc(1, sizeof(*task));
    if (task == NULL || (task->file = strdup(file)) == NULL) {
        free(task);
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a rendezvous's file");
    }
    if (id != NULL) {
        task->id = *id;
    }
    task->timeout_ms = timeout_ms;
    task->deadline_ns = hoop_deadline_ns(timeout_ms);
    task->stir_at_ns = hoop_deadline_ns(FILE_STIR_MS);
    const hoop_result_t result = hoop_worker_start(&task->worker, run, task_destroy);
    if (result != HOOP_OK) {
        task_destroy(&task->worker);
        return result;
    }
    *ret_task = task;
    return HOOP_OK;
}

/* Opens the directory after checking it. HOOP_AGAIN: it was removed meanwhile; try again. */
static hoop_result_t file_open(const char *file, int *ret_fd)
{
    char directory[FILE_PATH_BYTES];
    file_directory(file, directory);
    const hoop_result_t result = hoop_private_check_place(directory);
    return result == HOOP_OK ? hoop_private_enter(directory, ret_fd) : result;
}

static hoop_result_t file_hangs(const char *file, uint64_t timeout_ms)
{
    return hoop_error(HOOP_TIMEOUT, "the file system of %.200s did not answer within %llu ms", file,
                      (unsigned long long)timeout_ms);
}

/* ---- Rank 0 before it serves -------------------------------------------------------------- */

static hoop_result_t prepare_run(struct hoop_worker *worker)
{
    const struct hoop_file_task *task = (struct hoop_file_task *)worker;
    int directory = -1;
    const hoop_result_t result = file_open(task->file, &directory);
    if (result == HOOP_OK) {
        close(directory);
    }
    return result == HOOP_AGAIN ? HOOP_OK : result;
}

hoop_result_t hoop_file_store_prepare(const char *file, uint64_t timeout_ms)
{
    struct hoop_file_task *task = NULL;
    hoop_result_t result = task_start(file, NULL, timeout_ms, prepare_run, &task);
    if (result != HOOP_OK) {
        return result;
    }
    result = hoop_worker_wait(&task->worker, hoop_deadline_ns(timeout_ms));
    hoop_worker_release(&task->worker);
    return result == HOOP_TIMEOUT ? file_hangs(file, timeout_ms) : result;
}

/* ---- Waiting for rank 0 ------------------------------------------------------------------- */

static void await_found(void *arg, struct hoop_connection *connection)
{
    struct hoop_file_task *task = arg;
    hoop_connection_destroy(connection); /* the proof was all that was wanted */
    hoop_job_complete(&task->proof, NULL);
}

static void await_missed(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_file_task *task = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    (void)hoop_failure_set(&failure, code == HOOP_TIMEOUT ? HOOP_REMOTE_ERROR : code, -1, "%s",
                           why);
    hoop_job_complete(&task->proof, &failure);
}

static void await_hang_up(void *arg)
{
    struct hoop_file_task *task = arg;
    hoop_dialer_destroy(task->dialer);
    task->dialer = NULL;
}

static void await_dial(void *arg)
{
    static const struct hoop_dialer_owner owner = {.found = await_found, .failed = await_missed};
    struct hoop_file_task *task = arg;
    const struct hoop_place place = {.address = task->rendezvous.addresses[0]};
    struct hoop_dialer_order order = {
        .places = &place,
        .count = 1,
        .hello = {.kind = HOOP_HELLO_TO_ROOT},
        .secret = &task->rendezvous.secret,
        .deadline_ns = task->deadline_ns,
    };
    memcpy(order.hello.rendezvous, task->rendezvous.name, sizeof(order.hello.rendezvous));
    await_hang_up(task);
    const hoop_result_t result = hoop_dialer_create(&order, &owner, task, &task->dialer);
    if (result != HOOP_OK) {
        await_missed(task, result, hoop_thread_error());
    }
}

/* Reads the file. Returns true if it holds an id that was not dialled yet, which is stored. */
static bool await_read(struct hoop_file_task *task, int directory)
{
    struct hoop_rendezvous rendezvous;
    hoop_unique_id_t id;
    task->found = file_read(directory, file_key(task->file), &id, &rendezvous);
    const bool news = task->found == FILE_ID && (task->rendezvous.address_count == 0 ||
                                                 memcmp(&id, &task->id, sizeof(id)) != 0);
    if (news) {
        task->id = id;
        task->rendezvous = rendezvous;
    }
    hoop_secret_wipe(&rendezvous, sizeof(rendezvous));
    hoop_secret_wipe(&id, sizeof(id));
    return news;
}

/* Looks once, and dials if there is a new id. */
static hoop_result_t await_look(struct hoop_file_task *task)
{
    int directory = -1;
    const hoop_result_t result = file_open(task->file, &directory);
    if (result != HOOP_OK) {
        return result;
    }
    if (hoop_now_ns() >= task->stir_at_ns) {
        char name[FILE_NAME_BYTES]; /* of this process, since each has to change the directory */
        (void)snprintf(name, sizeof(name), "%s.stir%016llx", file_key(task->file),
                       (unsigned long long)hoop_process_id());
        hoop_private_stir(directory, name);
        task->stir_at_ns = hoop_deadline_ns(FILE_STIR_MS);
    }
    const bool news = await_read(task, directory);
    close(directory);
    if (news) {
        hoop_service_run(await_dial, task);
    }
    return HOOP_OK;
}

static hoop_result_t await_fail(const struct hoop_file_task *task)
{
    char directory[FILE_PATH_BYTES];
    char address[HOOP_ADDRESS_TEXT_BYTES];
    char end[160] = "";
    file_directory(task->file, directory);
    if (task->found == FILE_ID) {
        hoop_address_format(&task->rendezvous.addresses[0], address, sizeof(address));
        (void)snprintf(end, sizeof(end),
                       ": the file there says %s, where nobody of this job "
                       "answers; does rank 0 still run?",
                       address);
    } else if (task->found == FILE_DAMAGED) {
        (void)snprintf(end, sizeof(end), ": the file there is damaged");
    }
    return hoop_error(HOOP_TIMEOUT,
                      "rank 0 did not say within %llu ms in %.160s where it is%s (all ranks must "
                      "name the same path, on a file system that they share)",
                      (unsigned long long)task->timeout_ms, directory, end);
}

/* Runs until somebody proves what the file says, or the caller has stopped waiting. */
static hoop_result_t await_run(struct hoop_worker *worker)
{
    struct hoop_file_task *task = (struct hoop_file_task *)worker;
    hoop_result_t proven = HOOP_TIMEOUT;
    hoop_result_t result = HOOP_OK;
    uint64_t ms = FILE_LOOK_FIRST_MS;
    hoop_job_init(&task->proof);
    do {
        result = await_look(task);
        proven = hoop_job_wait(&task->proof, hoop_deadline_ns(ms), NULL);
        if (proven != HOOP_OK && proven != HOOP_TIMEOUT) { /* dialling failed: dial again */
            hoop_service_run(await_hang_up, task);
            hoop_job_finish(&task->proof);
            hoop_job_init(&task->proof);
            task->rendezvous.address_count = 0;
        }
        ms = ms * 2 < FILE_LOOK_LAST_MS ? ms * 2 : FILE_LOOK_LAST_MS;
    } while (proven != HOOP_OK && (result == HOOP_OK || result == HOOP_AGAIN) &&
             hoop_worker_pause(worker, proven == HOOP_TIMEOUT ? 1 : ms));
    hoop_service_run(await_hang_up, task);
    hoop_job_finish(&task->proof);
    if (result != HOOP_OK && result != HOOP_AGAIN) {
        return result;
    }
    file_clear_directory(task->file);
    return proven == HOOP_OK ? HOOP_OK : await_fail(task);
}

hoop_result_t hoop_file_store_await(const char *file, uint64_t timeout_ms,
                                    struct hoop_rendezvous *ret)
{
    struct hoop_file_task *task = NULL;
    assert(timeout_ms > 0);
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = task_start(file, NULL, timeout_ms, await_run, &task);
    }
    if (result != HOOP_OK) {
        return result;
    }
    assert(task != NULL);
    (void)file_hangs(file, timeout_ms); /* the sentence if the worker hangs */
    result = hoop_worker_await(&task->worker, timeout_ms, FILE_SETTLE_MS);
    if (result == HOOP_OK) {
        *ret = task->rendezvous;
    }
    hoop_worker_release(&task->worker);
    return result;
}

/* ---- Publishing --------------------------------------------------------------------------- */

/* Returns FILE_ID if the file holds this task's id, FILE_DAMAGED if it holds another's,
 * FILE_NOTHING if it holds none. */
static enum file_found post_find(const struct hoop_file_task *task, int directory)
{
    struct hoop_rendezvous rendezvous;
    hoop_unique_id_t id;
    if (file_read(directory, file_key(task->file), &id, &rendezvous) != FILE_ID) {
        return FILE_NOTHING;
    }
    const bool mine = memcmp(&id, &task->id, sizeof(id)) == 0;
    hoop_secret_wipe(&rendezvous, sizeof(rendezvous));
    hoop_secret_wipe(&id, sizeof(id));
    return mine ? FILE_ID : FILE_DAMAGED;
}

/* Writes the id if it is missing. If another job has written its own since, that one stays. */
static hoop_result_t post_once(struct hoop_file_task *task, bool first)
{
    const char *key = file_key(task->file);
    char temporary[FILE_NAME_BYTES];
    int directory = -1;
    hoop_result_t result = file_open(task->file, &directory);
    if (result != HOOP_OK) {
        return result;
    }
    const enum file_found found = post_find(task, directory);
    if (found == FILE_NOTHING || first) {
        (void)snprintf(temporary, sizeof(temporary), "%s.new", key);
        result = hoop_private_replace(directory, key, temporary, &task->id, sizeof(task->id));
    } else if (found == FILE_DAMAGED) {
        result = hoop_error(HOOP_INVALID_USAGE,
                            "another job now uses %.200s as its rendezvous: this job cannot be "
                            "found there any more",
                            task->file);
    }
    close(directory);
    return result;
}

static void post_remove(const struct hoop_file_task *task)
{
    char path[FILE_PATH_BYTES];
    int directory = -1;
    file_directory(task->file, path);
    if (hoop_private_enter(path, &directory) == HOOP_OK) {
        if (post_find(task, directory) == FILE_ID) {
            (void)unlinkat(directory, file_key(task->file), 0);
        }
        close(directory);
    }
    file_clear_directory(task->file);
}

static hoop_result_t post_run(struct hoop_worker *worker)
{
    struct hoop_file_task *task = (struct hoop_file_task *)worker;
    bool complained = false;
    bool first = true;
    do {
        const hoop_result_t result = post_once(task, first);
        first = first && result != HOOP_OK;
        if (result != HOOP_OK && result != HOOP_AGAIN && !complained) {
            hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s", hoop_thread_error());
            complained = true;
        }
    } while (hoop_worker_pause(worker, FILE_POST_MS));
    post_remove(task);
    pthread_mutex_lock(&file_lock);
    hoop_list_remove(&task->node);
    pthread_mutex_unlock(&file_lock);
    return HOOP_OK;
}

hoop_result_t hoop_file_store_publish(const struct hoop_rendezvous *rendezvous,
                                      const struct hoop_address *address,
                                      struct hoop_file_task **ret_task)
{
    struct hoop_rendezvous found = *rendezvous;
    hoop_unique_id_t id;
    assert(rendezvous->file != NULL);
    found.addresses[0] = *address;
    hoop_result_t result = hoop_rendezvous_to_id(&found, &id);
    if (result == HOOP_OK) {
        result = task_start(rendezvous->file, &id, 0, post_run, ret_task);
    }
    if (result == HOOP_OK) { /* the task still exists: only this thread can withdraw it */
        pthread_mutex_lock(&file_lock);
        hoop_list_push_back(&file_posts, &(*ret_task)->node);
        pthread_mutex_unlock(&file_lock);
    }
    hoop_secret_wipe(&found, sizeof(found));
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

void hoop_file_store_withdraw(struct hoop_file_task *task)
{
    if (task != NULL) {
        pthread_mutex_lock(&file_lock);
        task->withdrawn = true;
        pthread_mutex_unlock(&file_lock);
        hoop_worker_stop(&task->worker);
    }
}

void hoop_file_store_settle(const char *file)
{
    pthread_mutex_lock(&file_lock);
    struct hoop_file_task *task = NULL;
    HOOP_LIST_EACH(struct hoop_file_task, at, &file_posts, node) {
        const bool mine = file != NULL && at->withdrawn && strcmp(at->file, file) == 0;
        task = task == NULL && mine ? at : task;
    }
    if (task != NULL) {
        hoop_worker_hold(&task->worker);
    }
    pthread_mutex_unlock(&file_lock);
    if (task != NULL) {
        (void)hoop_worker_wait(&task->worker, hoop_deadline_ns(FILE_SETTLE_MS));
        hoop_worker_release(&task->worker);
    }
}
