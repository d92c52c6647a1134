/*
 * A probe: is somebody at a rendezvous's addresses who proves its secret? It goes on trying until
 * it is stopped. Any thread but the service thread.
 */
#ifndef HOOP_RENDEZVOUS_PROBE_H
#define HOOP_RENDEZVOUS_PROBE_H

#include "control/dialer.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"

struct hoop_probe {
    struct hoop_dialer *dialer; /* service thread */
    struct hoop_job job;
    const struct hoop_rendezvous *rendezvous;
    uint64_t deadline_ns;
    hoop_result_t started;
    bool running; /* caller */
};

/* Borrows the rendezvous until stopped. To be stopped, whatever comes of it. */
void hoop_probe_start(struct hoop_probe *probe, const struct hoop_rendezvous *rendezvous,
                      uint64_t deadline_ns);
/* HOOP_OK: there is. HOOP_TIMEOUT, HOOP_...: not yet, and the sentence says what was found. */
hoop_result_t hoop_probe_wait(struct hoop_probe *probe, uint64_t until_ns,
                              struct hoop_failure *ret_why);
void hoop_probe_stop(struct hoop_probe *probe); /* nothing to do if it does not run */

#endif
