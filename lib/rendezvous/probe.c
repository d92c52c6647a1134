/* A probe; see probe.h. Its connection is closed without a word as soon as it is proven. */
#include "rendezvous/probe.h"
#include "runtime/wait.h"
#include <stdio.h>

static void probe_found(void *arg, struct hoop_connection *connection)
{
    struct hoop_probe *probe = arg;
    hoop_connection_destroy(connection);
    hoop_dialer_destroy(probe->dialer);
    probe->dialer = NULL;
    hoop_job_complete(&probe->job, NULL);
}

static void probe_failed(void *arg, hoop_result_t code, const char *why)
{
    struct hoop_probe *probe = arg;
    struct hoop_failure failure = {.code = HOOP_OK, .rank = -1};
    (void)hoop_failure_set(&failure, code, -1, "%s", why);
    hoop_dialer_destroy(probe->dialer);
    probe->dialer = NULL;
    hoop_job_complete(&probe->job, &failure);
}

static void probe_begin(void *arg)
{
    static const struct hoop_dialer_owner owner = {.found = probe_found, .failed = probe_failed};
    struct hoop_probe *probe = arg;
    struct hoop_place places[HOOP_RENDEZVOUS_ADDRESSES] = {0};
    union hoop_frame hello;
    hoop_frame_init(&hello, HOOP_FRAME_HELLO);
    hello.hello.kind = HOOP_HELLO_CHILD;
    hello.hello.role = HOOP_ROLE_LEADER_TO_ROOT;
    (void)snprintf(hello.hello.rendezvous, sizeof(hello.hello.rendezvous), "%s",
                   probe->rendezvous->name);
    for (uint32_t i = 0; i < probe->rendezvous->address_count; i++) {
        places[i].address = probe->rendezvous->addresses[i];
    }
    const struct hoop_dialer_order order = {
        .places = places,
        .count = probe->rendezvous->address_count,
        .hello = &hello.hello,
        .secret = &probe->rendezvous->secret,
        .deadline_ns = probe->deadline_ns,
    };
    const hoop_result_t result = hoop_dialer_create(&order, &owner, probe, &probe->dialer);
    if (result != HOOP_OK) {
        probe->dialer = NULL;
        probe_failed(probe, result, hoop_thread_error());
    }
}

static void probe_end(void *arg)
{
    struct hoop_probe *probe = arg;
    hoop_dialer_destroy(probe->dialer);
    probe->dialer = NULL;
}

void hoop_probe_start(struct hoop_probe *probe, const struct hoop_rendezvous *rendezvous,
                      uint64_t deadline_ns)
{
    *probe = (struct hoop_probe){.rendezvous = rendezvous, .deadline_ns = deadline_ns};
    hoop_job_init(&probe->job);
    probe->running = true;
    probe->started = hoop_service_start();
    if (probe->started == HOOP_OK) {
        hoop_service_run(probe_begin, probe);
    }
}

hoop_result_t hoop_probe_wait(struct hoop_probe *probe, uint64_t until_ns,
                              struct hoop_failure *ret_why)
{
    if (probe->started != HOOP_OK) {
        return hoop_failure_take(ret_why, probe->started, -1);
    }
    return hoop_job_wait(&probe->job, until_ns, ret_why);
}

void hoop_probe_stop(struct hoop_probe *probe)
{
    if (!probe->running) {
        return;
    }
    if (probe->started == HOOP_OK) {
        hoop_service_run(probe_end, probe);
    }
    hoop_job_finish(&probe->job);
    probe->running = false;
}
