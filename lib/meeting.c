/*
 * Meetings: where the ranks of one comm find each other, from a unique id or from what a launcher
 * left in the environment.
 *
 * With HOOP_SECRET, name and secret of the k-th meeting are derived from it: nobody without it can
 * guess the name or pass the handshake. Without it the name is made of what all ranks of a job
 * share (a port, a job id), so that others can guess it, and the kernel vouches for the uid.
 */
#include "bootstrap.h"
#include "control.h"
#include "rendezvous.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Unique ids --------------------------------------------------------------------------- */

#define MEETING_ID_MAGIC "hoop-id"
#define MEETING_ID_VERSION 1u

/* What a unique id holds; the check tells a damaged one from a wrong secret. */
struct meeting_id {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    char name[HOOP_MEETING_NAME_BYTES];
    uint8_t secret[HOOP_SECRET_BYTES];
    uint8_t check[16];
};
_Static_assert(sizeof(struct meeting_id) == HOOP_UNIQUE_ID_BYTES, "an id is plain bytes");
_Static_assert(HOOP_MEETING_NAME_BYTES == HOOP_FRAME_NAME_BYTES, "names travel in frames");

static hoop_result_t meeting_check(const struct meeting_id *id, uint8_t ret_mac[HOOP_MAC_BYTES])
{
    struct hoop_secret secret;
    memcpy(secret.bytes, id->secret, sizeof(secret.bytes));
    const hoop_result_t result = hoop_hmac(&secret, "hoop unique id", id->name, sizeof(id->name),
                                           &id->version, sizeof(id->version), ret_mac);
    hoop_secret_wipe(&secret, sizeof(secret));
    return result;
}

static hoop_result_t meeting_random(struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = true};
    hoop_result_t result = hoop_listener_name(meeting.name);
    if (result == HOOP_OK) {
        result = hoop_random(&meeting.secret, sizeof(meeting.secret));
    }
    if (result == HOOP_OK) {
        *ret = meeting;
    }
    hoop_secret_wipe(&meeting, sizeof(meeting));
    return result;
}

struct meeting_serve {
    struct hoop_meeting meeting;
    hoop_result_t result;
    struct hoop_failure failure;
};

static void meeting_serve(void *arg)
{
    struct meeting_serve *serve = arg;
    serve->result = hoop_rendezvous_serve(&serve->meeting, &serve->failure);
}

hoop_result_t hoop_meeting_create(hoop_unique_id_t *ret_id)
{
    struct meeting_serve serve = {.failure = {.rank = -1}};
    struct meeting_id id = {.magic = MEETING_ID_MAGIC, .version = MEETING_ID_VERSION};
    uint8_t mac[HOOP_MAC_BYTES];
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = meeting_random(&serve.meeting);
    }
    if (result != HOOP_OK) {
        return result;
    }
    memcpy(id.name, serve.meeting.name, sizeof(id.name));
    memcpy(id.secret, serve.meeting.secret.bytes, sizeof(id.secret));
    result = meeting_check(&id, mac);
    if (result == HOOP_OK) {
        memcpy(id.check, mac, sizeof(id.check));
        hoop_service_run(meeting_serve, &serve);
        result = serve.result;
        if (result != HOOP_OK) {
            (void)hoop_error(result, "%s", serve.failure.text);
        }
    }
    if (result == HOOP_OK) {
        memcpy(ret_id->internal, &id, sizeof(id));
    }
    hoop_secret_wipe(&serve.meeting, sizeof(serve.meeting));
    hoop_secret_wipe(&id, sizeof(id));
    return result;
}

hoop_result_t hoop_meeting_from_id(const hoop_unique_id_t *id, struct hoop_meeting *ret)
{
    struct meeting_id bytes;
    uint8_t mac[HOOP_MAC_BYTES];
    memcpy(&bytes, id->internal, sizeof(bytes));
    bool good = memcmp(bytes.magic, MEETING_ID_MAGIC, sizeof(MEETING_ID_MAGIC)) == 0 &&
                bytes.version == MEETING_ID_VERSION && bytes.name[0] != 0 &&
                memchr(bytes.name, 0, sizeof(bytes.name)) != NULL;
    if (good) {
        const hoop_result_t result = meeting_check(&bytes, mac);
        if (result != HOOP_OK) {
            return result;
        }
        good = memcmp(bytes.check, mac, sizeof(bytes.check)) == 0;
    }
    if (good) {
        *ret = (struct hoop_meeting){.has_secret = true};
        memcpy(ret->name, bytes.name, sizeof(ret->name));
        memcpy(ret->secret.bytes, bytes.secret, sizeof(ret->secret.bytes));
    }
    hoop_secret_wipe(&bytes, sizeof(bytes));
    if (!good) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "this is no unique id of hoop %d.%d: expected the %d bytes that "
                          "hoop_get_unique_id() wrote",
                          HOOP_MAJOR, HOOP_MINOR, HOOP_UNIQUE_ID_BYTES);
    }
    return HOOP_OK;
}

/* ---- The environment ---------------------------------------------------------------------- */

/* How launchers say who is who; the first whose size and rank are set counts. */
static const struct meeting_launcher {
    const char *size, *rank;
    const char *local; /* ranks on this machine, NULL: not said */
    const char *only_with;
} meeting_launchers[] = {
    {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", NULL},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    /* outside srun Slurm sets the size too, for one process that is no task */
    {"SLURM_NTASKS", "SLURM_PROCID", NULL, "SLURM_STEP_ID"},
    {"PMI_SIZE", "PMI_RANK", NULL, NULL},
};

/* What the ranks of a job share, and other jobs of the user do not. */
static const char *const meeting_job_variables[] = {
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMI_JOBID",
    "OMPI_MCA_ess_base_jobid",
};

static hoop_result_t meeting_number(const char *variable, const char *text, uint32_t least,
                                    uint32_t *ret_number)
{
    const size_t digits = strspn(text, "0123456789");
    const unsigned long number = digits > 0 && digits < 10 ? strtoul(text, NULL, 10) : 0;
    if (digits == 0 || digits >= 10 || text[digits] != 0 || number < least ||
        number > HOOP_FRAME_MAX_RANKS) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is \"%.64s\": expected a number from %u to %u",
                          variable, text, least, HOOP_FRAME_MAX_RANKS);
    }
    *ret_number = (uint32_t)number;
    return HOOP_OK;
}

static bool meeting_applies(const struct meeting_launcher *launcher)
{
    return (getenv(launcher->size) != NULL || getenv(launcher->rank) != NULL) &&
           (launcher->only_with == NULL || getenv(launcher->only_with) != NULL);
}

static hoop_result_t meeting_who(const struct meeting_launcher *launcher, uint32_t *ret_n,
                                 uint32_t *ret_rank)
{
    uint32_t n = 0;
    uint32_t rank = 0;
    uint32_t local = 0;
    const char *size_text = getenv(launcher->size);
    const char *rank_text = getenv(launcher->rank);
    const char *local_text = launcher->local != NULL ? getenv(launcher->local) : NULL;
    if (size_text == NULL || rank_text == NULL) {
        const bool has_size = size_text != NULL;
        return hoop_error(HOOP_INVALID_USAGE, "%s is \"%.64s\" but %s is not set",
                          has_size ? launcher->size : launcher->rank,
                          has_size ? size_text : rank_text,
                          has_size ? launcher->rank : launcher->size);
    }
    hoop_result_t result = meeting_number(launcher->size, size_text, 1, &n);
    if (result == HOOP_OK) {
        result = meeting_number(launcher->rank, rank_text, 0, &rank);
    }
    if (result == HOOP_OK && local_text != NULL) {
        result = meeting_number(launcher->local, local_text, 1, &local);
    }
    if (result != HOOP_OK) {
        return result;
    }
    if (rank >= n) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is %u: expected less than %s, which is %u",
                          launcher->rank, rank, launcher->size, n);
    }
    if (local != 0 && local != n) {
        return hoop_error(HOOP_UNSUPPORTED,
                          "%s is %u and %s is %u: this version joins ranks of one machine",
                          launcher->size, n, launcher->local, local);
    }
    *ret_n = n;
    *ret_rank = rank;
    return HOOP_OK;
}

/* Bytes that follow from key, label and counter alone. */
static hoop_result_t meeting_derive(const struct hoop_secret *key, const char *label,
                                    const char *job, uint64_t counter,
                                    uint8_t ret_mac[HOOP_MAC_BYTES])
{
    return hoop_hmac(key, label, job, strlen(job), &counter, sizeof(counter), ret_mac);
}

static void meeting_name(const char *prefix, const uint8_t mac[HOOP_MAC_BYTES],
                         char ret_name[HOOP_MEETING_NAME_BYTES])
{
    size_t at = (size_t)snprintf(ret_name, HOOP_MEETING_NAME_BYTES, "%s", prefix);
    for (size_t i = 0; i < 16; i++) {
        at += (size_t)snprintf(ret_name + at, HOOP_MEETING_NAME_BYTES - at, "%02x", mac[i]);
    }
}

static hoop_result_t meeting_by_secret(const char *hex, uint64_t counter, struct hoop_meeting *ret)
{
    struct hoop_meeting meeting = {.has_secret = true};
    struct hoop_secret secret;
    uint8_t mac[HOOP_MAC_BYTES];
    if (hoop_secret_parse(hex, &secret) != HOOP_OK) {
        return hoop_error(HOOP_INVALID_USAGE, "HOOP_SECRET: expected 64 hexadecimal digits");
    }
    hoop_result_t result = meeting_derive(&secret, "hoop meeting", "", counter, mac);
    if (result == HOOP_OK) {
        meeting_name("hoop-", mac, meeting.name);
        result = meeting_derive(&secret, "hoop job", "", counter, meeting.secret.bytes);
    }
    if (result == HOOP_OK) {
        *ret = meeting;
    }
    hoop_secret_wipe(&secret, sizeof(secret));
    hoop_secret_wipe(&meeting, sizeof(meeting));
    return result;
}

static hoop_result_t meeting_by_job(uint64_t counter, struct hoop_meeting *ret)
{
    const struct hoop_secret none = {.bytes = {0}}; /* a hash is wanted, not a proof */
    struct hoop_meeting meeting = {.has_secret = false};
    uint8_t mac[HOOP_MAC_BYTES];
    char prefix[32];
    char job[1024] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof(meeting_job_variables) / sizeof(char *); i++) {
        const char *value = getenv(meeting_job_variables[i]);
        if (value != NULL) {
            at += (size_t)snprintf(job + at, sizeof(job) - at, "%s=%.64s\n",
                                   meeting_job_variables[i], value);
        }
    }
    if (at == 0) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "nothing tells where this job's ranks meet: start them with hooprun, or "
                          "set HOOP_SECRET (64 hexadecimal digits) or MASTER_PORT, the same for "
                          "all ranks");
    }
    const hoop_result_t result = meeting_derive(&none, "hoop meeting", job, counter, mac);
    if (result == HOOP_OK) {
        (void)snprintf(prefix, sizeof(prefix), "hoop-%u-", (unsigned)geteuid());
        meeting_name(prefix, mac, meeting.name);
        *ret = meeting;
    }
    return result;
}

hoop_result_t hoop_meeting_from_env(struct hoop_meeting *ret, uint32_t *ret_n, uint32_t *ret_rank)
{
    static _Atomic uint64_t calls;
    uint32_t n = 1;
    uint32_t rank = 0;
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < sizeof(meeting_launchers) / sizeof(meeting_launchers[0]); i++) {
        if (meeting_applies(&meeting_launchers[i])) {
            result = meeting_who(&meeting_launchers[i], &n, &rank);
            break;
        }
    }
    if (result != HOOP_OK) {
        return result;
    }
    const uint64_t counter = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    const char *secret = hoop_settings()->secret;
    if (n == 1) {
        result = meeting_random(ret); /* nobody else comes */
    } else if (secret != NULL) {
        result = meeting_by_secret(secret, counter, ret);
    } else {
        result = meeting_by_job(counter, ret);
    }
    if (result == HOOP_OK) {
        *ret_n = n;
        *ret_rank = rank;
    }
    return result;
}
