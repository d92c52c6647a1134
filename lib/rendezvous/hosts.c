/* Looks up rank 0's machine; see rendezvous.h. Resolvers may block: always in a worker thread. */
#include "base/log.h"
#include "net/interface.h"
#include "rendezvous/rendezvous.h"
#include "runtime/worker.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS_PAUSE_MS 250u
#define HOSTS_AGAIN_MS 1000u

struct hosts {
    struct hoop_address addresses[HOOP_RENDEZVOUS_ADDRESSES];
    uint32_t count;
};

struct hoop_lookup {
    struct hoop_worker worker; /* first */
    char host[HOOP_LAUNCHER_HOST_BYTES];
    struct hoop_ports ports;
    struct hosts found; /* the worker's, until it has ended */
    bool stopped;       /* this and the next two: service thread */
    hoop_lookup_fn *moved;
    void *arg;
};

/* ---- Looking ------------------------------------------------------------------------------ */

/*
 * Resolves a host, leaving out loopback addresses. A machine's own name often resolves to loopback
 * on that machine only. So if nothing else is found this is rank 0's machine, and the address that
 * others use for it is taken.
 */
static hoop_result_t hosts_resolve(const char *host, struct hoop_address ret[HOOP_RESOLVE_MAX],
                                   uint32_t *ret_count)
{
    struct hoop_address found[HOOP_RESOLVE_MAX];
    uint32_t count = 0;
    uint32_t kept = 0;
    const bool loopback = hoop_host_is_loopback(host);
    const hoop_result_t result = hoop_resolve(host, found, &count);
    if (result != HOOP_OK) {
        return result;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (loopback || !hoop_address_is_loopback(&found[i])) {
            ret[kept++] = found[i];
        }
    }
    *ret_count = kept > 0 ? kept : 1;
    return kept > 0 ? HOOP_OK : hoop_interface_choose(&ret[0]);
}

static hoop_result_t hosts_look(const struct hoop_lookup *lookup, struct hosts *ret)
{
    const struct hoop_ports *ports = &lookup->ports;
    struct hoop_address hosts[HOOP_RESOLVE_MAX];
    uint32_t count = 0;
    const hoop_result_t result = hosts_resolve(lookup->host, hosts, &count);
    if (result != HOOP_OK) {
        return result;
    }
    memset(ret, 0, sizeof(*ret));
    for (uint32_t port = ports->first; port <= ports->last; port++) {
        for (uint32_t i = 0; i < count && ret->count < HOOP_RENDEZVOUS_ADDRESSES; i++) {
            struct hoop_address *address = &ret->addresses[ret->count++];
            *address = hosts[i];
            address->port = (uint16_t)port;
        }
    }
    return HOOP_OK;
}

static void lookup_destroy(struct hoop_worker *worker)
{
    free(worker); /* the worker is the first member */
}

static hoop_result_t lookup_begin(const struct hoop_rendezvous *rendezvous,
                                  hoop_result_t (*run)(struct hoop_worker *worker),
                                  hoop_lookup_fn *moved, void *arg, struct hoop_lookup **ret)
{
    struct hoop_lookup *lookup = calloc(1, sizeof(*lookup));
    if (lookup == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to look up a host");
    }
    memcpy(lookup->host, rendezvous->host, sizeof(lookup->host));
    lookup->ports = rendezvous->ports;
    memcpy(lookup->found.addresses, rendezvous->addresses, sizeof(lookup->found.addresses));
    lookup->found.count = rendezvous->address_count;
    lookup->moved = moved;
    lookup->arg = arg;
    const hoop_result_t result = hoop_worker_start(&lookup->worker, run, lookup_destroy);
    if (result == HOOP_OK) {
        *ret = lookup;
    } else {
        free(lookup);
    }
    return result;
}

/* ---- Until it is found -------------------------------------------------------------------- */

static hoop_result_t find_run(struct hoop_worker *worker)
{
    struct hoop_lookup *lookup = (struct hoop_lookup *)worker;
    hoop_result_t result = hosts_look(lookup, &lookup->found);
    if (result == HOOP_INVALID_USAGE) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s; trying again", hoop_thread_error());
    }
    while (result == HOOP_INVALID_USAGE && hoop_worker_pause(worker, HOSTS_PAUSE_MS)) {
        result = hosts_look(lookup, &lookup->found);
    }
    return result;
}

hoop_result_t hoop_hosts_find(struct hoop_rendezvous *rendezvous, uint64_t timeout_ms)
{
    struct hoop_lookup *lookup = NULL;
    hoop_result_t result = lookup_begin(rendezvous, find_run, NULL, NULL, &lookup);
    if (result != HOOP_OK) {
        return result;
    }
    assert(lookup != NULL);
    result = hoop_worker_await(&lookup->worker, timeout_ms, HOSTS_PAUSE_MS);
    if (result == HOOP_OK) {
        memcpy(rendezvous->addresses, lookup->found.addresses, sizeof(lookup->found.addresses));
        rendezvous->address_count = lookup->found.count;
    } else if (result == HOOP_TIMEOUT) {
        result =
            hoop_error(HOOP_INVALID_USAGE, "%s: this host name was not resolved within %llu ms",
                       lookup->host, (unsigned long long)timeout_ms);
    }
    hoop_worker_release(&lookup->worker);
    return result;
}

/* ---- And afterwards ----------------------------------------------------------------------- */

struct lookup_news {
    struct hoop_lookup *lookup; /* holds a reference */
    struct hosts hosts;
};

static void lookup_tell(void *arg)
{
    const struct lookup_news *news = arg;
    struct hoop_lookup *lookup = news->lookup;
    if (!lookup->stopped) {
        lookup->moved(lookup->arg, news->hosts.addresses, news->hosts.count);
    }
    hoop_worker_release(&lookup->worker);
}

static hoop_result_t lookup_run(struct hoop_worker *worker)
{
    struct hoop_lookup *lookup = (struct hoop_lookup *)worker;
    while (hoop_worker_pause(worker, HOSTS_AGAIN_MS)) {
        struct lookup_news news = {.lookup = lookup};
        if (hosts_look(lookup, &news.hosts) == HOOP_OK &&
            memcmp(&news.hosts, &lookup->found, sizeof(news.hosts)) != 0) {
            lookup->found = news.hosts;
            hoop_worker_hold(worker);
            hoop_service_post(lookup_tell, &news, sizeof(news));
        }
    }
    return HOOP_OK;
}

hoop_result_t hoop_lookup_start(const struct hoop_rendezvous *rendezvous, hoop_lookup_fn *moved,
                                void *arg, struct hoop_lookup **ret)
{
    struct hoop_address number;
    *ret = NULL;
    if (rendezvous->host[0] == 0 || hoop_address_parse(rendezvous->host, &number) == HOOP_OK) {
        return HOOP_OK;
    }
    return lookup_begin(rendezvous, lookup_run, moved, arg, ret);
}

void hoop_lookup_stop(struct hoop_lookup *lookup)
{
    if (lookup != NULL) {
        lookup->stopped = true;
        hoop_worker_stop(&lookup->worker);
    }
}
