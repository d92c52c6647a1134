/*
 * Meetings: where the ranks of one comm find each other, from a unique id, a url, or what a
 * launcher left in the environment.
 *
 *   by            one machine                             several machines
 *   unique id     name and secret: random, in the id      and the hub's address, in the id
 *   env://        name: from the secret, or from what     name and secret: from the job's secret;
 *                 tells the job from others               address: MASTER_ADDR
 *   tcp://        the same, and from the url              the same, with the url's address
 *   file://       the same, and from the url              random, in the file
 *
 * Where a secret is, name and secret of the k-th meeting are derived from it and from all that
 * tells jobs and attempts apart: nobody without it can guess the name or pass the handshake, and
 * jobs that share a secret do not meet. Without one, on one machine, others can guess the name, and
 * the kernel vouches for the uid.
 *
 * A host that is a loopback address means one machine: nobody else could come. Only HOOP_HOSTID
 * makes several machines of one; then they meet there.
 */
#include "meeting.h"
#include "base/clock.h"
#include "base/log.h"
#include "door.h"
#include "interface.h"
#include "meeting_file.h"
#include "secret.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEETING_LOOKUP_PAUSE_MS 250u

void hoop_meeting_finish(struct hoop_meeting *meeting)
{
    free(meeting->file);
    meeting->file = NULL;
    hoop_secret_wipe(meeting, sizeof(*meeting));
}

void hoop_meeting_name(const char *prefix, const uint8_t bytes[HOOP_MEETING_NAME_RANDOM],
                       char ret_name[HOOP_MEETING_NAME_BYTES])
{
    size_t at = (size_t)snprintf(ret_name, HOOP_MEETING_NAME_BYTES, "%s", prefix);
    for (size_t i = 0; i < HOOP_MEETING_NAME_RANDOM; i++) {
        at += (size_t)snprintf(ret_name + at, HOOP_MEETING_NAME_BYTES - at, "%02x", bytes[i]);
    }
}

static hoop_result_t meeting_random(struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = true};
    uint8_t name[HOOP_MEETING_NAME_RANDOM];
    hoop_result_t result = hoop_random(name, sizeof(name));
    if (result == HOOP_OK) {
        hoop_meeting_name("hoop-", name, meeting.name);
        result = hoop_random(&meeting.secret, sizeof(meeting.secret));
    }
    if (result == HOOP_OK) {
        *ret = meeting;
    }
    hoop_secret_wipe(&meeting, sizeof(meeting));
    return result;
}

/* ---- Calls -------------------------------------------------------------------------------- */

enum meeting_scheme { MEETING_ENV, MEETING_TCP, MEETING_FILE };

#define MEETING_URL_BYTES 1024
#define MEETING_JOB_BYTES (HOOP_LAUNCHER_JOB_BYTES + MEETING_URL_BYTES + 64)

/* What one call knows. */
struct meeting_call {
    char url[MEETING_URL_BYTES];
    enum meeting_scheme scheme;
    struct hoop_launcher launcher; /* host and ports: the url's, if it has any */
    uint64_t timeout_ms;
    uint64_t number; /* of this call among those of this url and rank */
    char job[MEETING_JOB_BYTES];
    bool named; /* job tells this job from others */
    bool has_secret;
    struct hoop_secret secret; /* the job's, not a meeting's */
};

/* How many calls there were of a url by a rank: a process may hold several. */
struct meeting_count {
    struct meeting_count *next;
    uint64_t calls;
    uint32_t rank;
    char url[MEETING_URL_BYTES];
};

static pthread_mutex_t meeting_lock = PTHREAD_MUTEX_INITIALIZER;
static struct meeting_count *meeting_counts; /* under meeting_lock; kept for ever */

static hoop_result_t meeting_take_number(struct meeting_call *call)
{
    pthread_mutex_lock(&meeting_lock);
    struct meeting_count *count = meeting_counts;
    while (count != NULL &&
           (count->rank != call->launcher.rank || strcmp(count->url, call->url) != 0)) {
        count = count->next;
    }
    if (count == NULL && (count = calloc(1, sizeof(*count))) != NULL) {
        count->rank = call->launcher.rank;
        memcpy(count->url, call->url, sizeof(count->url));
        count->next = meeting_counts;
        meeting_counts = count;
    }
    call->number = count != NULL ? count->calls++ : 0;
    pthread_mutex_unlock(&meeting_lock);
    return count != NULL ? HOOP_OK : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a url");
}

/* HOOP_SECRET, or what HOOP_SECRET_FILE holds; or there is none. */
static hoop_result_t meeting_find_secret(struct meeting_call *call)
{
    const struct hoop_settings *settings = hoop_settings();
    hoop_result_t result = HOOP_OK;
    if (settings->secret != NULL) {
        result = hoop_secret_parse(settings->secret, &call->secret);
        if (result == HOOP_INVALID_ARGUMENT) {
            result = hoop_error(HOOP_INVALID_USAGE, "HOOP_SECRET: expected 64 hexadecimal digits");
        }
    } else if (settings->secret_file != NULL) {
        result = hoop_secret_read(settings->secret_file, &call->secret);
        if (result == HOOP_INVALID_USAGE) {
            result = hoop_error(result, "HOOP_SECRET_FILE: %s", hoop_thread_error());
        }
    } else {
        return HOOP_OK;
    }
    call->has_secret = result == HOOP_OK;
    return result;
}

static void meeting_name_job(struct meeting_call *call)
{
    const bool in_url = call->scheme != MEETING_ENV;
    (void)snprintf(call->job, sizeof(call->job), "%sHOOP_RESTART_COUNT=%llu\n%s%s\n",
                   call->launcher.job, (unsigned long long)hoop_settings()->restart_count,
                   in_url ? "HOOP_INIT=" : "", in_url ? call->url : "");
    call->named = call->launcher.named || in_url;
}

/* Bytes that follow from key, label, job and number of the call alone. */
static hoop_result_t meeting_derive(const struct meeting_call *call, const struct hoop_secret *key,
                                    const char *label, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(key, label, call->job, strlen(call->job), &call->number, sizeof(call->number),
                     ret_mac);
}

/* ---- Names and secrets -------------------------------------------------------------------- */

static const struct hoop_secret meeting_no_secret; /* for a hash, which is no proof */

static hoop_result_t meeting_unnamed(void)
{
    return hoop_error(
        HOOP_INVALID_USAGE,
        "nothing tells where this job's ranks meet: start them with hooprun, or set "
        "MASTER_PORT, or HOOP_SECRET (64 hexadecimal digits), the same for all ranks");
}

static hoop_result_t meeting_by_secret(const struct meeting_call *call,
                                       const struct hoop_secret *key, struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = true};
    uint8_t mac[HOOP_MAC_BYTES];
    hoop_result_t result = meeting_derive(call, key, "hoop meeting", mac);
    if (result == HOOP_OK) {
        hoop_meeting_name("hoop-", mac, meeting.name);
        result = meeting_derive(call, key, "hoop job", meeting.secret.bytes);
    }
    if (result == HOOP_OK) {
        *ret = meeting;
    }
    hoop_secret_wipe(&meeting, sizeof(meeting));
    return result;
}

/* On one machine: by the secret if there is one, else by the job's name. */
static hoop_result_t meeting_here(const struct meeting_call *call, struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = false};
    uint8_t mac[HOOP_MAC_BYTES];
    char prefix[32];
    if (call->has_secret) {
        return meeting_by_secret(call, &call->secret, ret);
    }
    if (!call->named) {
        return meeting_unnamed();
    }
    const hoop_result_t result = meeting_derive(call, &meeting_no_secret, "hoop meeting", mac);
    if (result == HOOP_OK) {
        (void)snprintf(prefix, sizeof(prefix), "hoop-%u-", (unsigned)geteuid());
        hoop_meeting_name(prefix, mac, meeting.name);
        *ret = meeting;
    }
    return result;
}

static hoop_result_t meeting_without_secret(const struct meeting_call *call,
                                            struct hoop_meeting *ret)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (hoop_settings()->insecure == 0) {
        return hoop_error(
            HOOP_INVALID_USAGE,
            "the %u ranks of this job may be on several machines, and they have no secret to know "
            "each other by: make one with (umask 077; openssl rand -hex 32 > hoop.secret), copy it "
            "to every machine, mode 0600, and set HOOP_SECRET_FILE to its path for all ranks",
            call->launcher.n);
    }
    if (!call->named) {
        return meeting_unnamed();
    }
    if (!atomic_flag_test_and_set(&warned)) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT,
                 "HOOP_INSECURE: whoever reaches this job's ports and knows its name can join it");
    }
    return meeting_by_secret(call, &meeting_no_secret, ret);
}

/* ---- Addresses ---------------------------------------------------------------------------- */

/* A name may be known a moment later: the other machine may be about to start. */
static hoop_result_t meeting_look_up(const struct meeting_call *call,
                                     struct hoop_address ret[HOOP_RESOLVE_MAX], uint32_t *ret_count)
{
    const char *host = call->launcher.host;
    const uint64_t deadline = hoop_deadline_ns(call->timeout_ms);
    hoop_result_t result = hoop_resolve(host, 0, ret, ret_count);
    if (result == HOOP_INVALID_USAGE) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s; trying again for %llu ms", hoop_thread_error(),
                 (unsigned long long)call->timeout_ms);
    }
    while (result == HOOP_INVALID_USAGE && hoop_now_ns() < deadline) {
        hoop_meeting_pause(MEETING_LOOKUP_PAUSE_MS);
        result = hoop_resolve(host, 0, ret, ret_count);
    }
    return result;
}

/*
 * What the host stands for, without loopback. A host's own name often stands for a loopback address
 * on that very host; so whoever finds nothing else is on rank 0's machine, and takes the address
 * that others have for it.
 */
static hoop_result_t meeting_hosts(const struct meeting_call *call,
                                   struct hoop_address ret[HOOP_RESOLVE_MAX], uint32_t *ret_count)
{
    struct hoop_address found[HOOP_RESOLVE_MAX];
    uint32_t count = 0;
    uint32_t kept = 0;
    const bool loopback = hoop_host_is_loopback(call->launcher.host);
    const hoop_result_t result = meeting_look_up(call, found, &count);
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

/* Every port at every address, as many as fit. */
static hoop_result_t meeting_addresses(const struct meeting_call *call, struct hoop_meeting *ret)
{
    const struct hoop_ports *ports = &call->launcher.ports;
    struct hoop_address hosts[HOOP_RESOLVE_MAX];
    uint32_t count = 0;
    const hoop_result_t result = meeting_hosts(call, hosts, &count);
    if (result != HOOP_OK) {
        return result;
    }
    for (uint32_t port = ports->first; port <= ports->last; port++) {
        for (uint32_t i = 0; i < count && ret->address_count < HOOP_MEETING_ADDRESSES; i++) {
            struct hoop_address *address = &ret->addresses[ret->address_count++];
            *address = hosts[i];
            address->port = (uint16_t)port;
        }
    }
    return HOOP_OK;
}

static hoop_result_t meeting_apart(const struct meeting_call *call, struct hoop_meeting *ret)
{
    struct hoop_meeting meeting;
    const struct hoop_launcher *launcher = &call->launcher;
    if (launcher->host[0] == 0 || launcher->ports.first == 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "the %u ranks of this job are on several machines: set %s, the same for "
                          "all of them",
                          launcher->n,
                          launcher->host[0] == 0
                              ? "MASTER_ADDR to a name or address of rank 0's machine, and "
                                "MASTER_PORT to a port that is free there"
                              : "MASTER_PORT to a port that is free on rank 0's machine");
    }
    hoop_result_t result = call->has_secret ? meeting_by_secret(call, &call->secret, &meeting)
                                            : meeting_without_secret(call, &meeting);
    if (result != HOOP_OK) {
        return result;
    }
    result = meeting_addresses(call, &meeting);
    if (result == HOOP_OK) {
        *ret = meeting;
    }
    hoop_secret_wipe(&meeting, sizeof(meeting));
    return result;
}

/* ---- One machine or several? -------------------------------------------------------------- */

/* Where ranks have different host ids, the launcher may have counted wrongly. */
enum hoop_spread hoop_meeting_spread(const struct hoop_launcher *launcher)
{
    const enum hoop_spread spread = hoop_launcher_spread(launcher);
    const bool doubtful = hoop_settings()->host_id != NULL && launcher->n > 1;
    return spread == HOOP_SPREAD_ONE && doubtful ? HOOP_SPREAD_UNKNOWN : spread;
}

/* env:// and tcp:// */
static hoop_result_t meeting_at_address(const struct meeting_call *call, struct hoop_meeting *ret)
{
    static const char *const hints[] = {
        "the address where they meet is a loopback address, so all were expected on one machine",
        "nothing says how many ranks are on this machine, and there is no secret, so all were "
        "expected here: ranks on several machines need HOOP_SECRET_FILE",
    };
    const struct hoop_launcher *launcher = &call->launcher;
    const enum hoop_spread spread = hoop_meeting_spread(launcher);
    const bool loopback = launcher->host[0] != 0 && hoop_host_is_loopback(launcher->host);
    const bool may_meet = launcher->host[0] != 0 && launcher->ports.first != 0;
    const bool may_trust = call->has_secret || hoop_settings()->insecure != 0;
    const char *hint = NULL;
    if (spread == HOOP_SPREAD_ONE) {
        return meeting_here(call, ret);
    }
    if (loopback && hoop_settings()->host_id == NULL) {
        hint = hints[0];
    } else if (spread == HOOP_SPREAD_SEVERAL || (may_meet && may_trust) ||
               (call->scheme == MEETING_TCP && !loopback)) {
        return meeting_apart(call, ret);
    } else if (may_meet) {
        hint = hints[1];
    }
    const hoop_result_t result = meeting_here(call, ret);
    if (result == HOOP_OK) {
        ret->hint = hint;
    }
    return result;
}

static hoop_result_t meeting_at_file(const struct meeting_call *call, struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = false};
    char key[HOOP_MEETING_NAME_BYTES] = "";
    uint8_t mac[HOOP_MAC_BYTES];
    char *file = NULL;
    if (hoop_meeting_spread(&call->launcher) == HOOP_SPREAD_ONE) {
        return meeting_here(call, ret);
    }
    hoop_result_t result = meeting_derive(call, &meeting_no_secret, "hoop file", mac);
    if (result == HOOP_OK) {
        hoop_meeting_name("", mac, key);
        result = hoop_meeting_file_create(call->url + strlen("file://"), key, &file);
    }
    if (result == HOOP_OK && call->launcher.rank != 0) {
        result = hoop_meeting_file_await(file, call->timeout_ms, &meeting);
    } else if (result == HOOP_OK) {
        result = meeting_random(&meeting);
        meeting.address_count = 1;
        meeting.file = file;
        file = NULL;
        if (result == HOOP_OK) {
            result = hoop_interface_choose(&meeting.addresses[0]);
        }
    }
    free(file);
    if (result == HOOP_OK) {
        *ret = meeting;
        meeting.file = NULL;
    }
    hoop_meeting_finish(&meeting);
    return result;
}

/* ---- Urls --------------------------------------------------------------------------------- */

static hoop_result_t meeting_refuse_url(const char *url)
{
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "\"%.160s\": expected env://, tcp://host:port or file:///path, of at most %d "
                      "characters",
                      url, MEETING_URL_BYTES - 1);
}

/* Fills in url, scheme, and for tcp:// host and ports. */
static hoop_result_t meeting_parse_url(const char *url, struct meeting_call *call)
{
    struct hoop_launcher *launcher = &call->launcher;
    uint16_t port = 0;
    if (strlen(url) >= sizeof(call->url)) {
        return meeting_refuse_url(url);
    }
    (void)snprintf(call->url, sizeof(call->url), "%s", url);
    if (strcmp(url, "env://") == 0) {
        const struct hoop_ports ports = hoop_door_ports();
        call->scheme = MEETING_ENV;
        launcher->ports = ports.first != 0 ? ports : launcher->ports;
        return HOOP_OK;
    }
    if (strncmp(url, "file:///", strlen("file:///")) == 0) {
        call->scheme = MEETING_FILE;
        return HOOP_OK;
    }
    if (strncmp(url, "tcp://", strlen("tcp://")) != 0 ||
        hoop_host_port_parse(url + strlen("tcp://"), launcher->host, sizeof(launcher->host),
                             &port) != HOOP_OK ||
        port == 0) {
        return meeting_refuse_url(url);
    }
    call->scheme = MEETING_TCP;
    launcher->ports = (struct hoop_ports){port, port};
    return HOOP_OK;
}

static hoop_result_t meeting_at(struct meeting_call *call, struct hoop_meeting *ret)
{
    hoop_result_t result = meeting_take_number(call);
    if (result == HOOP_OK && call->launcher.n == 1) {
        return meeting_random(ret); /* nobody else comes */
    }
    meeting_name_job(call);
    if (result == HOOP_OK) {
        result = meeting_find_secret(call);
    }
    if (result == HOOP_OK) {
        result = call->scheme == MEETING_FILE ? meeting_at_file(call, ret)
                                              : meeting_at_address(call, ret);
    }
    hoop_secret_wipe(&call->secret, sizeof(call->secret));
    return result;
}

static const char *meeting_getenv(void *arg, const char *variable)
{
    (void)arg;
    return getenv(variable);
}

hoop_result_t hoop_meeting_launcher(struct hoop_launcher *ret)
{
    return hoop_launcher_read(meeting_getenv, NULL, ret);
}

hoop_result_t hoop_meeting_from_env(uint64_t timeout_ms, struct hoop_meeting *ret, uint32_t *ret_n,
                                    uint32_t *ret_rank)
{
    const char *url = hoop_settings()->init;
    struct meeting_call call = {.timeout_ms = timeout_ms};
    hoop_result_t result = hoop_meeting_launcher(&call.launcher);
    if (result != HOOP_OK) {
        return result;
    }
    result = meeting_parse_url(url != NULL ? url : "env://", &call);
    if (result != HOOP_OK) {
        return hoop_error(HOOP_INVALID_USAGE, "HOOP_INIT: %s", hoop_thread_error());
    }
    result = meeting_at(&call, ret);
    if (result == HOOP_OK) {
        *ret_n = call.launcher.n;
        *ret_rank = call.launcher.rank;
    }
    return result;
}

/*
 * The launcher's job is this one if it has as many ranks; else what it says of them is about
 * others, and it stands for no more than the place that env:// is.
 */
static void meeting_take_over(struct hoop_launcher *launcher, uint32_t n, uint32_t rank)
{
    if (launcher->family == NULL || launcher->n != n) {
        launcher->local_n = launcher->machines = 0;
    }
    launcher->n = n;
    launcher->rank = rank;
}

hoop_result_t hoop_meeting_from_url(const char *url, uint32_t n, uint32_t rank, uint64_t timeout_ms,
                                    struct hoop_meeting *ret)
{
    struct meeting_call call = {.timeout_ms = timeout_ms};
    assert(rank < n);
    hoop_result_t result = hoop_meeting_launcher(&call.launcher);
    if (result != HOOP_OK && strcmp(url, "env://") == 0) {
        return result;
    }
    if (result != HOOP_OK) {
        call.launcher = (struct hoop_launcher){.n = 1};
    }
    meeting_take_over(&call.launcher, n, rank);
    result = meeting_parse_url(url, &call);
    return result == HOOP_OK ? meeting_at(&call, ret) : result;
}
