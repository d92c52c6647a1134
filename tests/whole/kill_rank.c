/* See kill_rank.h. */
#include "whole/kill_rank.h"
#include "base/clock.h"
#include "whole/kill_sweep.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kill_rank {
    const struct kill_job *job;
    const struct kill_pipes *pipes;
    uint32_t rank;
    _Atomic uint64_t *operation;
};

static void rank_report(const struct kill_rank *self, enum kill_word word, hoop_result_t result,
                        const char *text)
{
    struct kill_report report = {
        .word = word,
        .result = (int32_t)result,
        .time_ns = hoop_now_ns(),
        .operation = atomic_load_explicit(self->operation, memory_order_relaxed),
    };
    (void)snprintf(report.text, sizeof(report.text), "%s", text);
    if (!family_say(self->pipes->parent, &report, sizeof(report))) {
        _exit(3);
    }
}

static _Noreturn void rank_give_up(const struct kill_rank *self, const char *what)
{
    rank_report(self, KILL_WRONG, HOOP_OK, what);
    _exit(1);
}

static void rank_expect(const struct kill_rank *self, bool as_expected, const char *what)
{
    if (!as_expected) {
        char text[360];
        (void)snprintf(text, sizeof(text), "%s (%.250s)", what, hoop_get_last_error(NULL));
        rank_give_up(self, text);
    }
}

/* ---- Joining ------------------------------------------------------------------------------ */

static void rank_environment(const struct kill_rank *self)
{
    setenv("HOOP_DEBUG", "none", 0);
    unsetenv("HOOP_TRANSPORT");
    if (self->job->transport == KILL_MACHINES) {
        const bool blocks = (self->job->seed >> 32 & 1) != 0; /* or alternately */
        family_set_number("HOOP_HOSTID", (int)(blocks ? 2 * (unsigned)self->rank / self->job->n
                                                      : self->rank % 2u));
        setenv("HOOP_SOCKET_IFNAME", "lo", 1);
        return;
    }
    if (self->job->transport == KILL_TCP) {
        setenv("HOOP_TRANSPORT", "tcp", 1);
    }
    family_set_number("RANK", self->rank);
    family_set_number("WORLD_SIZE", self->job->n);
    family_set_number("LOCAL_WORLD_SIZE", self->job->n);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TORCHELASTIC_RUN_ID", self->job->name, 1);
}

/* HOOP_REMOTE_ERROR: rank 0 ended before it sent the id, of which hoop knows nothing. */
static hoop_result_t rank_hand_id(const struct kill_rank *self, hoop_unique_id_t *ret_id)
{
    const int in = self->pipes->id[0];
    const int out = self->pipes->id[1];
    if (self->rank != 0) {
        close(out); /* so that the others see the end of the pipe */
        return read(in, ret_id, sizeof(*ret_id)) == sizeof(*ret_id) ? HOOP_OK : HOOP_REMOTE_ERROR;
    }
    const hoop_result_t result = hoop_get_unique_id(ret_id);
    for (uint32_t i = 1; i < self->job->n && result == HOOP_OK; i++) {
        if (write(out, ret_id, sizeof(*ret_id)) != sizeof(*ret_id)) {
            rank_give_up(self, "nobody takes the unique id");
        }
    }
    close(out);
    return result;
}

/* *ret_text: why it failed. */
static hoop_result_t rank_join(const struct kill_rank *self, hoop_comm_t *ret_comm,
                               const char **ret_text)
{
    hoop_unique_id_t id;
    hoop_result_t result = HOOP_OK;
    hoop_config_t config = HOOP_CONFIG_INITIALIZER;
    config.algo = self->job->algo;
    config.init_timeout_ms = self->job->init_timeout_ms;
    config.dead_after_ms = self->job->dead_after_ms;
    config.op_timeout_ms = 30000;
    if (self->job->by_id) {
        result = rank_hand_id(self, &id);
        if (result == HOOP_REMOTE_ERROR) {
            *ret_text = "rank 0 ended before it told the unique id";
            return result;
        }
        if (result == HOOP_OK) {
            result = hoop_comm_init_rank_config(ret_comm, (int)self->job->n, id, (int)self->rank,
                                                &config);
        }
    } else {
        close(self->pipes->id[1]);
        result = hoop_comm_init_env(ret_comm, &config);
    }
    *ret_text = hoop_get_last_error(NULL);
    return result;
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Waits until the parent says that it may go, or has ended. */
static void rank_wait(const struct kill_rank *self)
{
    (void)family_order(self->pipes->parent);
}

/* Works until an operation fails; the time of that is measured. */
static void rank_sweep(const struct kill_rank *self, struct sweep *sweep, hoop_comm_t comm)
{
    hoop_result_t result = HOOP_OK;
    while (result == HOOP_OK) {
        result = sweep_step(sweep, comm);
        if (sweep->wrong[0] != 0) {
            rank_give_up(self, sweep->wrong);
        }
        if (result == HOOP_OK &&
            atomic_fetch_add_explicit(self->operation, 1, memory_order_relaxed) == 0) {
            rank_report(self, KILL_RUNNING, HOOP_OK, "");
        }
    }
    rank_report(self, KILL_FAILED, result, hoop_get_last_error(comm));
    sweep_claim(sweep);
    hoop_result_t async = HOOP_OK;
    rank_expect(self, hoop_barrier(comm, NULL) == result, "a failed comm failed otherwise later");
    rank_expect(self, hoop_comm_get_async_error(comm, &async) == HOOP_OK && async == result,
                "hoop_comm_get_async_error() knows another result");
}

void kill_rank_main(const struct kill_job *job, uint32_t rank, const struct kill_pipes *pipes,
                    _Atomic uint64_t *operation)
{
    const struct kill_rank self = {
        .job = job, .pipes = pipes, .rank = rank, .operation = operation};
    hoop_comm_t comm = NULL;
    struct sweep sweep;
    rank_environment(&self);
    const char *why = "";
    const hoop_result_t joined = rank_join(&self, &comm, &why);
    if (joined != HOOP_OK) {
        rank_report(&self, KILL_FAILED, joined, why);
        rank_wait(&self);
        rank_report(&self, KILL_DONE, HOOP_OK, "");
        _exit(0);
    }
    rank_expect(&self, sweep_init(&sweep, job->seed, rank, job->n), "no memory for the sweep");
    rank_sweep(&self, &sweep, comm);
    rank_wait(&self);
    rank_expect(&self, sweep_is_claimed(&sweep),
                "a peer wrote after the failed operation returned");
    rank_expect(&self, hoop_comm_destroy(comm) == HOOP_OK, "hoop_comm_destroy() failed");
    rank_expect(&self, sweep_finish(&sweep) == HOOP_OK, "hoop_mem_free() failed");
    rank_report(&self, KILL_DONE, HOOP_OK, "");
    _exit(0);
}
