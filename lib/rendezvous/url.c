/*
 * Rendezvous: where the ranks of one comm find each other, from a unique id, a url, or what a
 * launcher left in the environment.
 *
 *   by            one machine                             several machines
 *   unique id     random secret, in the id                the same; root's address in the id
 *   env://        secret from the job's, or from what     secret from the job's; address from
 *                 distinguishes jobs                      MASTER_ADDR
 *   tcp://        the same, and from the url              the same, with the url's address
 *   file://       the same, and from the url              random secret, and address, in the file
 *
 * The name follows from the secret. The secret of the k-th rendezvous derives from the job's secret
 * and from all that distinguishes jobs and attempts: nobody without the job's secret can guess the
 * name or pass the handshake, and jobs that share a secret do not meet. A job on one machine may
 * have no secret; then others can guess both, and the uid that the kernel reports is the
 * protection.
 *
 * A loopback address means one machine, since no other machine could come. If HOOP_HOSTID divides
 * the machine, its parts meet there.
 */
#include "base/crypto.h"
#include "base/log.h"
#include "base/settings.h"
#include "net/interface.h"
#include "rendezvous/file_store.h"
#include "rendezvous/private_file.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hoop_rendezvous_close(struct hoop_rendezvous *rendezvous)
{
    hoop_file_store_settle(rendezvous->file);
    hoop_rendezvous_finish(rendezvous);
}

void hoop_rendezvous_finish(struct hoop_rendezvous *rendezvous)
{
    free(rendezvous->file);
    rendezvous->file = NULL;
    hoop_secret_wipe(rendezvous, sizeof(*rendezvous));
}

void hoop_rendezvous_name(const char *prefix, const uint8_t bytes[HOOP_RENDEZVOUS_NAME_RANDOM],
                          char ret_name[HOOP_NAME_BYTES])
{
    const int at = snprintf(ret_name, HOOP_NAME_BYTES, "%s", prefix);
    assert(at + 2 * HOOP_RENDEZVOUS_NAME_RANDOM < HOOP_NAME_BYTES);
    hoop_hex_format(bytes, HOOP_RENDEZVOUS_NAME_RANDOM, ret_name + at);
}

hoop_result_t hoop_rendezvous_by_secret(const struct hoop_secret *secret,
                                        struct hoop_rendezvous *ret)
{
    uint8_t mac[HOOP_MAC_BYTES];
    const hoop_result_t result = hoop_hmac(secret, "hoop rendezvous", NULL, 0, NULL, 0, mac);
    if (result == HOOP_OK) {
        *ret = (struct hoop_rendezvous){.secret = *secret};
        hoop_rendezvous_name("hoop-", mac, ret->name);
    }
    return result;
}

hoop_result_t hoop_rendezvous_random(struct hoop_rendezvous *ret)
{
    struct hoop_secret secret;
    hoop_result_t result = hoop_random(&secret, sizeof(secret));
    if (result == HOOP_OK) {
        result = hoop_rendezvous_by_secret(&secret, ret);
    }
    hoop_secret_wipe(&secret, sizeof(secret));
    return result;
}

/* ---- Calls -------------------------------------------------------------------------------- */

enum rendezvous_scheme { RENDEZVOUS_ENV, RENDEZVOUS_TCP, RENDEZVOUS_FILE };

#define RENDEZVOUS_URL_BYTES 1024
#define RENDEZVOUS_JOB_BYTES (HOOP_LAUNCHER_JOB_BYTES + RENDEZVOUS_URL_BYTES + 128)

struct rendezvous_call {
    char url[RENDEZVOUS_URL_BYTES];
    enum rendezvous_scheme scheme;
    struct hoop_launcher launcher; /* host and ports are the url's, if it has any */
    uint64_t timeout_ms;
    uint64_t number; /* counts the calls with this url and rank */
    char job[RENDEZVOUS_JOB_BYTES];
    uint32_t told_n; /* number of ranks as the launcher says; 0 if it does not */
    bool named;      /* job distinguishes this job from others */
    bool has_secret;
    struct hoop_secret secret; /* the job's; a rendezvous's derives from it */
};

/* How often a rank has called with a url; per rank, since a process may hold several ranks. */
struct rendezvous_count {
    struct rendezvous_count *next;
    uint64_t calls;
    uint32_t rank;
    char url[RENDEZVOUS_URL_BYTES];
};

static pthread_mutex_t rendezvous_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rendezvous_count *rendezvous_counts; /* under rendezvous_lock; never freed */

static hoop_result_t rendezvous_take_number(struct rendezvous_call *call)
{
    pthread_mutex_lock(&rendezvous_lock);
    struct rendezvous_count *count = rendezvous_counts;
    while (count != NULL &&
           (count->rank != call->launcher.rank || strcmp(count->url, call->url) != 0)) {
        count = count->next;
    }
    if (count == NULL && (count = calloc(1, sizeof(*count))) != NULL) {
        count->rank = call->launcher.rank;
        memcpy(count->url, call->url, sizeof(count->url));
        count->next = rendezvous_counts;
        rendezvous_counts = count;
    }
    call->number = count != NULL ? count->calls++ : 0;
    pthread_mutex_unlock(&rendezvous_lock);
    return count != NULL ? HOOP_OK : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a url");
}

/* Gets the secret from HOOP_SECRET or HOOP_SECRET_FILE, if either is set. */
static hoop_result_t rendezvous_find_secret(struct rendezvous_call *call)
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

/*
 * Writes all that distinguishes this job from others, in lines. The number of ranks is the
 * launcher's: if programs disagree about n, their ranks should meet, and get an error.
 */
static void rendezvous_name_job(struct rendezvous_call *call)
{
    const struct hoop_launcher *launcher = &call->launcher;
    const unsigned long long attempt = (unsigned long long)hoop_settings()->restart_count;
    int at = snprintf(call->job, sizeof(call->job), "%sHOOP_RESTART_COUNT=%llu\nranks=%u\n",
                      launcher->job, attempt, call->told_n);
    if (call->scheme == RENDEZVOUS_ENV) {
        at += snprintf(call->job + at, sizeof(call->job) - (size_t)at, "at=%s:%u-%u\n",
                       launcher->host, launcher->ports.first, launcher->ports.last);
    } else {
        at += snprintf(call->job + at, sizeof(call->job) - (size_t)at, "HOOP_INIT=%s\n", call->url);
    }
    assert((size_t)at < sizeof(call->job));
    call->named = launcher->named || call->scheme != RENDEZVOUS_ENV;
}

/* The same on one line, for people: "4 ranks, TORCHELASTIC_RUN_ID=x, ..." */
static void rendezvous_describe_job(const struct rendezvous_call *call, struct hoop_rendezvous *ret)
{
    size_t at = 0;
    hoop_text_append(ret->job, sizeof(ret->job), &at, "%u ranks", call->launcher.n);
    for (const char *line = call->launcher.job; *line != 0;) {
        const int length = (int)strcspn(line, "\n");
        hoop_text_append(ret->job, sizeof(ret->job), &at, ", %.*s", length, line);
        line += length + 1;
    }
}

/* Derives bytes from key, label, job and the number of the call. */
static hoop_result_t rendezvous_derive(const struct rendezvous_call *call,
                                       const struct hoop_secret *key, const char *label,
                                       uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(key, label, call->job, strlen(call->job), &call->number, sizeof(call->number),
                     ret_mac);
}

/* ---- Names and secrets -------------------------------------------------------------------- */

static const struct hoop_secret rendezvous_no_secret; /* key for hashes that are no proof */

static hoop_result_t rendezvous_unnamed(void)
{
    return hoop_error(
        HOOP_INVALID_USAGE,
        "nothing tells where this job's ranks meet: start them with hooprun, or set "
        "MASTER_PORT, or HOOP_SECRET (64 hexadecimal digits), the same for all ranks");
}

static hoop_result_t rendezvous_by_secret(const struct rendezvous_call *call,
                                          const struct hoop_secret *key,
                                          struct hoop_rendezvous *ret)
{
    struct hoop_secret secret;
    hoop_result_t result = rendezvous_derive(call, key, "hoop job", secret.bytes);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_by_secret(&secret, ret);
    }
    hoop_secret_wipe(&secret, sizeof(secret));
    return result;
}

/* The rendezvous on one machine: by the job's secret if there is one, else by uid and job. */
static hoop_result_t rendezvous_here(const struct rendezvous_call *call,
                                     struct hoop_rendezvous *ret)
{
    const uid_t uid = geteuid();
    struct hoop_secret user = {.bytes = {0}};
    memcpy(user.bytes, &uid, sizeof(uid));
    return !call->has_secret && !call->named
               ? rendezvous_unnamed()
               : rendezvous_by_secret(call, call->has_secret ? &call->secret : &user, ret);
}

static hoop_result_t rendezvous_without_secret(const struct rendezvous_call *call,
                                               struct hoop_rendezvous *ret)
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
        return rendezvous_unnamed();
    }
    if (!atomic_flag_test_and_set(&warned)) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT,
                 "HOOP_INSECURE: whoever reaches this job's ports and knows its name can join it");
    }
    return rendezvous_by_secret(call, &rendezvous_no_secret, ret);
}

static hoop_result_t rendezvous_apart(const struct rendezvous_call *call,
                                      struct hoop_rendezvous *ret)
{
    struct hoop_rendezvous rendezvous;
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
    hoop_result_t result = call->has_secret ? rendezvous_by_secret(call, &call->secret, &rendezvous)
                                            : rendezvous_without_secret(call, &rendezvous);
    if (result != HOOP_OK) {
        return result;
    }
    (void)snprintf(rendezvous.host, sizeof(rendezvous.host), "%s", launcher->host);
    rendezvous.ports = launcher->ports;
    result = hoop_hosts_find(&rendezvous, call->timeout_ms);
    if (result == HOOP_OK) {
        *ret = rendezvous;
    }
    hoop_secret_wipe(&rendezvous, sizeof(rendezvous));
    return result;
}

/* ---- One machine or several? -------------------------------------------------------------- */

/* If HOOP_HOSTID is set, ranks may count as on several machines although the launcher says one. */
enum hoop_spread hoop_rendezvous_spread(const struct hoop_launcher *launcher)
{
    const enum hoop_spread spread = hoop_launcher_spread(launcher);
    const bool doubtful = hoop_settings()->host_id != NULL && launcher->n > 1;
    return spread == HOOP_SPREAD_ONE && doubtful ? HOOP_SPREAD_UNKNOWN : spread;
}

/* For env:// and tcp://. */
static hoop_result_t rendezvous_at_address(const struct rendezvous_call *call,
                                           struct hoop_rendezvous *ret)
{
    static const char *const hints[] = {
        "the address where they meet is a loopback address, so all were expected on one machine",
        "nothing says how many ranks are on this machine, and there is no secret, so all were "
        "expected here: ranks on several machines need HOOP_SECRET_FILE",
    };
    const struct hoop_launcher *launcher = &call->launcher;
    const enum hoop_spread spread = hoop_rendezvous_spread(launcher);
    const bool loopback = launcher->host[0] != 0 && hoop_host_is_loopback(launcher->host);
    const bool may_meet = launcher->host[0] != 0 && launcher->ports.first != 0;
    const bool may_trust = call->has_secret || hoop_settings()->insecure != 0;
    const char *hint = NULL;
    if (spread == HOOP_SPREAD_ONE) {
        return rendezvous_here(call, ret);
    }
    if (loopback && hoop_settings()->host_id == NULL) {
        hint = hints[0];
    } else if (spread == HOOP_SPREAD_SEVERAL || (may_meet && may_trust) ||
               (call->scheme == RENDEZVOUS_TCP && !loopback)) {
        return rendezvous_apart(call, ret);
    } else if (may_meet) {
        hint = hints[1];
    }
    const hoop_result_t result = rendezvous_here(call, ret);
    if (result == HOOP_OK) {
        ret->hint = hint;
    }
    return result;
}

/* Rank 0's part at a file. Takes ownership of file. */
static hoop_result_t rendezvous_serve_at_file(const struct rendezvous_call *call, char *file,
                                              struct hoop_rendezvous *ret)
{
    hoop_result_t result = hoop_file_store_prepare(file, call->timeout_ms);
    if (result == HOOP_OK) {
        result = hoop_rendezvous_random(ret);
    }
    ret->address_count = 1;
    ret->file = file;
    return result == HOOP_OK ? hoop_interface_choose(&ret->addresses[0]) : result;
}

static hoop_result_t rendezvous_at_file(const struct rendezvous_call *call,
                                        struct hoop_rendezvous *ret)
{
    struct hoop_rendezvous rendezvous = {.address_count = 0};
    char key[HOOP_NAME_BYTES] = "";
    uint8_t mac[HOOP_MAC_BYTES];
    char *file = NULL;
    hoop_result_t result = rendezvous_derive(call, &rendezvous_no_secret, "hoop file", mac);
    if (result == HOOP_OK) {
        hoop_rendezvous_name("", mac, key);
        result = hoop_file_store_name(call->url + strlen("file://"), key, &file);
    }
    if (result == HOOP_OK && hoop_rendezvous_spread(&call->launcher) == HOOP_SPREAD_ONE) {
        result = rendezvous_here(call, &rendezvous); /* then the path is only a name */
    } else if (result == HOOP_OK && call->launcher.rank != 0) {
        result = hoop_file_store_await(file, call->timeout_ms, &rendezvous);
    } else if (result == HOOP_OK) {
        result = rendezvous_serve_at_file(call, file, &rendezvous);
        file = NULL;
    }
    free(file);
    if (result == HOOP_OK) {
        *ret = rendezvous;
        rendezvous.file = NULL;
    }
    hoop_rendezvous_finish(&rendezvous);
    return result;
}

/* ---- Urls --------------------------------------------------------------------------------- */

static hoop_result_t rendezvous_refuse_url(const char *url)
{
    return hoop_error(HOOP_INVALID_ARGUMENT,
                      "\"%.160s\": expected env://, tcp://host:port or file:///path, of at most %d "
                      "characters",
                      url, RENDEZVOUS_URL_BYTES - 1);
}

/* Sets url and scheme, and for tcp:// host and ports. */
static hoop_result_t rendezvous_parse_url(const char *url, struct rendezvous_call *call)
{
    struct hoop_launcher *launcher = &call->launcher;
    uint16_t port = 0;
    if (strlen(url) >= sizeof(call->url)) {
        return rendezvous_refuse_url(url);
    }
    (void)snprintf(call->url, sizeof(call->url), "%s", url);
    if (strcmp(url, "env://") == 0) {
        const struct hoop_ports ports = hoop_port_range();
        call->scheme = RENDEZVOUS_ENV;
        launcher->ports = ports.first != 0 ? ports : launcher->ports;
        return HOOP_OK;
    }
    if (strncmp(url, "file:///", strlen("file:///")) == 0) {
        call->scheme = RENDEZVOUS_FILE;
        return HOOP_OK;
    }
    if (strncmp(url, "tcp://", strlen("tcp://")) != 0 ||
        hoop_host_port_parse(url + strlen("tcp://"), launcher->host, sizeof(launcher->host),
                             &port) != HOOP_OK ||
        port == 0) {
        return rendezvous_refuse_url(url);
    }
    call->scheme = RENDEZVOUS_TCP;
    launcher->ports = (struct hoop_ports){port, port};
    return HOOP_OK;
}

static hoop_result_t rendezvous_at(struct rendezvous_call *call, struct hoop_rendezvous *ret)
{
    hoop_result_t result = rendezvous_take_number(call);
    if (result == HOOP_OK && call->launcher.n == 1) {
        return hoop_rendezvous_random(ret); /* there are no others to meet */
    }
    rendezvous_name_job(call);
    if (result == HOOP_OK) {
        result = rendezvous_find_secret(call);
    }
    if (result == HOOP_OK) {
        result = call->scheme == RENDEZVOUS_FILE ? rendezvous_at_file(call, ret)
                                                 : rendezvous_at_address(call, ret);
    }
    if (result == HOOP_OK) {
        ret->local_n = call->launcher.local_n;
        rendezvous_describe_job(call, ret);
    }
    hoop_secret_wipe(&call->secret, sizeof(call->secret));
    return result;
}

/*
 * Uses what the launcher says only if its job has as many ranks as this comm. Else its numbers are
 * about other ranks, and only its address, for env://, is used.
 */
static void rendezvous_take_over(struct hoop_launcher *launcher, uint32_t n, uint32_t rank)
{
    if (launcher->family == NULL || launcher->n != n) {
        launcher->local_n = launcher->machines = 0;
    }
    launcher->n = n;
    launcher->rank = rank;
}

/* If url is NULL the environment says where, and sets *n and *rank. */
static hoop_result_t rendezvous_ask(struct rendezvous_call *call, const char *url,
                                    struct hoop_rendezvous *ret, uint32_t *n, uint32_t *rank)
{
    struct hoop_launcher *launcher = &call->launcher;
    const char *set = hoop_settings()->init != NULL ? hoop_settings()->init : "env://";
    hoop_result_t result = hoop_launcher_read(launcher);
    if (result != HOOP_OK && (url == NULL || strcmp(url, "env://") == 0)) {
        return result;
    }
    call->told_n = launcher->family != NULL ? launcher->n : 0;
    if (url != NULL) {
        rendezvous_take_over(launcher, *n, *rank);
    }
    result = rendezvous_parse_url(url != NULL ? url : set, call);
    if (result != HOOP_OK && url == NULL) {
        return hoop_error(HOOP_INVALID_USAGE, "HOOP_INIT: %s", hoop_thread_error());
    }
    if (result == HOOP_OK) {
        result = rendezvous_at(call, ret);
    }
    if (result == HOOP_OK) {
        *n = launcher->n;
        *rank = launcher->rank;
    }
    return result;
}

hoop_result_t hoop_rendezvous_find(const char *url, uint64_t timeout_ms,
                                   struct hoop_rendezvous *ret, uint32_t *n, uint32_t *rank)
{
    /* not on the stack, which may be small */
    struct rendezvous_call *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a url");
    }
    assert(url == NULL || *rank < *n);
    call->timeout_ms = timeout_ms;
    const hoop_result_t result = rendezvous_ask(call, url, ret, n, rank);
    free(call);
    return result;
}
