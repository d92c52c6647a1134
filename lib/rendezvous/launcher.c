/* The environment of launchers; see launcher.h. */
#include "rendezvous/launcher.h"
#include "base/sizes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define LAUNCHER_VALUE_BYTES 255u /* of a variable that names a job; PMIx names are no longer */
/* How many ports are tried if the user did not choose the port. */
#define LAUNCHER_PORTS 8u
/* Below Linux's default range of ephemeral ports. */
#define LAUNCHER_PORT_FIRST 20000u
#define LAUNCHER_PORT_COUNT 10000u

static const struct launcher_family {
    const char *name;
    const char *size[2]; /* the first one that is set counts */
    const char *rank;
    const char *local_size; /* NULL if there is none */
    const char *machines[2];
    const char *only_with;
    const char *jobs[2]; /* what distinguishes this job from others */
    const char *starter; /* a socket to what started this machine's ranks */
    const char *attempt; /* how often the job was restarted */
} launcher_families[] = {
    {
        .name = "torchrun",
        .size = {"WORLD_SIZE"},
        .rank = "RANK",
        .local_size = "LOCAL_WORLD_SIZE",
        .jobs = {"TORCHELASTIC_RUN_ID"},
        .attempt = "TORCHELASTIC_RESTART_COUNT",
    },
    {
        .name = "Open MPI",
        .size = {"OMPI_COMM_WORLD_SIZE"},
        .rank = "OMPI_COMM_WORLD_RANK",
        .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
        .jobs = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
    },
    {
        .name = "PMI",
        .size = {"PMI_SIZE"},
        .rank = "PMI_RANK",
        .local_size = "MPI_LOCALNRANKS",
        .jobs = {"PMI_JOBID"},
        .starter = "PMI_FD",
    },
    {
        .name = "Slurm",
        .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, /* the job's may be larger */
        .rank = "SLURM_PROCID",
        .machines = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
        /* Slurm sets the size outside srun, too, in a process that is no task */
        .only_with = "SLURM_STEP_ID",
        .jobs = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
        .attempt = "SLURM_RESTART_COUNT",
    },
};

/* ---- Variables ---------------------------------------------------------------------------- */

/* NULL is no variable; an empty value counts as unset. */
static const char *launcher_get(const char *variable)
{
    const char *value = variable != NULL ? getenv(variable) : NULL;
    return value != NULL && value[0] != 0 ? value : NULL;
}

/* The first of two variables that is set; variables[0] if neither is. */
static const char *launcher_first(const char *const variables[2])
{
    const bool second = launcher_get(variables[0]) == NULL && variables[1] != NULL &&
                        launcher_get(variables[1]) != NULL;
    return variables[second ? 1 : 0];
}

/* Parses at most 9 digits, so that a uint32_t cannot overflow, and advances *at. */
static bool launcher_digits(const char **at, uint32_t *ret_number)
{
    const size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 9) {
        return false;
    }
    *ret_number = (uint32_t)strtoul(*at, NULL, 10);
    *at += digits;
    return true;
}

/* *ret_number is unchanged if the variable is unset. */
static hoop_result_t launcher_number(const char *variable, uint32_t least, uint32_t most,
                                     uint32_t *ret_number)
{
    const char *text = launcher_get(variable);
    const char *end = text;
    uint32_t number = 0;
    if (text == NULL) {
        return HOOP_OK;
    }
    if (!launcher_digits(&end, &number) || *end != 0 || number < least || number > most) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is \"%.64s\": expected a number from %u to %u",
                          variable, text, least, most);
    }
    *ret_number = number;
    return HOOP_OK;
}

static hoop_result_t launcher_add_name(const char *variable, struct hoop_launcher *ret)
{
    const char *value = launcher_get(variable);
    const size_t used = strlen(ret->job);
    if (value == NULL) {
        return HOOP_OK;
    }
    if (strlen(value) > LAUNCHER_VALUE_BYTES) {
        return hoop_error(HOOP_INVALID_USAGE, "%s has %zu characters: expected at most %u",
                          variable, strlen(value), LAUNCHER_VALUE_BYTES);
    }
    (void)snprintf(ret->job + used, sizeof(ret->job) - used, "%s=%s\n", variable, value);
    return HOOP_OK;
}

/* ---- Host lists --------------------------------------------------------------------------- */

/* The first host of the first item; brackets stand for their first number. */
hoop_result_t hoop_hostlist_first(const char *list, char ret_host[HOOP_LAUNCHER_HOST_BYTES])
{
    static const char letters[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._";
    char host[HOOP_LAUNCHER_HOST_BYTES];
    const char *at = list;
    size_t length = 0;
    while (at != NULL && *at != 0 && *at != ',') {
        const bool ranges = *at == '[';
        const char *text = ranges ? at + 1 : at;
        const size_t bytes = strspn(text, ranges ? "0123456789" : letters);
        const char *end = ranges ? strchr(text, ']') : text + bytes - 1;
        at = bytes == 0 || end == NULL || length + bytes >= sizeof(host) ? NULL : end + 1;
        if (at != NULL) {
            memcpy(host + length, text, bytes);
            length += bytes;
        }
    }
    if (at == NULL || length == 0) {
        return hoop_error(HOOP_INVALID_ARGUMENT,
                          "\"%.128s\" is not a list of hosts, such as node[01-03,7],gpu5", list);
    }
    host[length] = 0;
    memcpy(ret_host, host, length + 1);
    return HOOP_OK;
}

/* ---- Slurm -------------------------------------------------------------------------------- */

/* Parses "2(x3),1": tasks of the given node and of all nodes. False: it has another form. */
static bool launcher_tasks(const char *at, uint32_t node, uint32_t *ret_here, uint64_t *ret_all)
{
    uint64_t nodes = 0;
    uint64_t all = 0;
    for (;; at++) {
        uint32_t tasks = 0;
        uint32_t times = 1;
        if (!launcher_digits(&at, &tasks)) {
            return false;
        }
        if (strncmp(at, "(x", 2) == 0 &&
            (at += 2, !launcher_digits(&at, &times) || times == 0 || *at++ != ')')) {
            return false;
        }
        if (node >= nodes && node - nodes < times) {
            *ret_here = tasks;
        }
        nodes += times;
        all += (uint64_t)tasks * times;
        if (*at == 0) {
            *ret_all = all;
            return true;
        }
        if (*at != ',') {
            return false;
        }
    }
}

/* Sets local_n, unless the variable is about a larger job than this step. */
static hoop_result_t launcher_slurm_local(struct hoop_launcher *ret)
{
    static const char *const variables[2] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"};
    const char *variable = launcher_first(variables);
    const char *text = launcher_get(variable);
    uint32_t node = HOOP_LAUNCHER_HOSTS_MAX;
    uint32_t here = 0;
    uint64_t all = 0;
    const hoop_result_t result =
        launcher_number("SLURM_NODEID", 0, HOOP_LAUNCHER_HOSTS_MAX - 1, &node);
    if (result != HOOP_OK || text == NULL) {
        return result;
    }
    if (!launcher_tasks(text, node, &here, &all)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "%s is \"%.64s\": expected the tasks of each node, such as 2(x3),1",
                          variable, text);
    }
    if (all == ret->n) {
        ret->local_n = here;
    }
    return HOOP_OK;
}

/* Derives ports from job and step: the same on all ranks, most likely not another job's. */
static struct hoop_ports launcher_slurm_ports(void)
{
    const char *const texts[] = {launcher_get("SLURM_JOB_ID"), ".", launcher_get("SLURM_STEP_ID")};
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (const char *at = texts[i]; at != NULL && *at != 0; at++) {
            hash = (hash ^ (uint8_t)*at) * 16777619u;
        }
    }
    const uint32_t first = LAUNCHER_PORT_FIRST + hash % (LAUNCHER_PORT_COUNT - LAUNCHER_PORTS);
    return (struct hoop_ports){(uint16_t)first, (uint16_t)(first + LAUNCHER_PORTS - 1)};
}

static hoop_result_t launcher_slurm(struct hoop_launcher *ret)
{
    static const char *const variables[2] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
    const char *variable = launcher_first(variables);
    const char *list = launcher_get(variable);
    ret->ports = launcher_slurm_ports();
    if (list != NULL && hoop_hostlist_first(list, ret->host) != HOOP_OK) {
        return hoop_error(HOOP_INVALID_USAGE, "%s: %s", variable, hoop_thread_error());
    }
    return launcher_slurm_local(ret);
}

/* ---- Families ----------------------------------------------------------------------------- */

static hoop_result_t launcher_local(const struct launcher_family *family, struct hoop_launcher *ret)
{
    const hoop_result_t result =
        launcher_number(family->local_size, 1, HOOP_MAX_RANKS, &ret->local_n);
    if (result == HOOP_OK && ret->local_n > ret->n) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is %u: expected at most %s, which is %u",
                          family->local_size, ret->local_n, launcher_first(family->size), ret->n);
    }
    return result;
}

/*
 * Names a job that has no name, if all its ranks are on this machine, by the pid of the process
 * that started them. Only the kernel is asked, and nothing is sent: if the program uses MPI, the
 * socket belongs to that.
 */
static hoop_result_t launcher_add_starter(const char *variable, struct hoop_launcher *ret)
{
    struct ucred starter = {.pid = 0};
    socklen_t bytes = sizeof(starter);
    uint32_t fd = 0;
    if (launcher_get(variable) == NULL || ret->job[0] != 0 || ret->local_n != ret->n) {
        return HOOP_OK;
    }
    const hoop_result_t result = launcher_number(variable, 0, INT32_MAX, &fd);
    if (result == HOOP_OK && getsockopt((int)fd, SOL_SOCKET, SO_PEERCRED, &starter, &bytes) == 0 &&
        starter.pid > 0) {
        (void)snprintf(ret->job, sizeof(ret->job), "%s=process %d\n", variable, starter.pid);
    }
    return result;
}

static hoop_result_t launcher_names(const struct launcher_family *family, struct hoop_launcher *ret)
{
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < 2 && result == HOOP_OK; i++) {
        result = launcher_add_name(family->jobs[i], ret);
    }
    if (result == HOOP_OK) {
        result = launcher_add_starter(family->starter, ret);
    }
    ret->named = ret->job[0] != 0;
    return result == HOOP_OK ? launcher_add_name(family->attempt, ret) : result;
}

/* Reads all that a family says whose n and rank are set. */
static hoop_result_t launcher_family(const struct launcher_family *family,
                                     struct hoop_launcher *ret)
{
    const char *size = launcher_first(family->size);
    ret->family = family->name;
    hoop_result_t result = launcher_number(size, 1, HOOP_MAX_RANKS, &ret->n);
    if (result == HOOP_OK) {
        result = launcher_number(family->rank, 0, HOOP_MAX_RANKS - 1, &ret->rank);
    }
    if (result == HOOP_OK && ret->rank >= ret->n) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is %u: expected less than %s, which is %u",
                          family->rank, ret->rank, size, ret->n);
    }
    if (result == HOOP_OK) {
        result = launcher_local(family, ret);
    }
    if (result == HOOP_OK) {
        result = launcher_number(launcher_first(family->machines), 1, HOOP_LAUNCHER_HOSTS_MAX,
                                 &ret->machines);
    }
    if (result == HOOP_OK && strcmp(family->name, "Slurm") == 0) {
        result = launcher_slurm(ret);
    }
    return result == HOOP_OK ? launcher_names(family, ret) : result;
}

/* Fills gaps from another family with the same n. */
static void launcher_complete(struct hoop_launcher *launcher, const struct hoop_launcher *other)
{
    if (launcher->local_n == 0) {
        launcher->local_n = other->local_n;
        launcher->machines = other->machines;
    }
    if (launcher->host[0] == 0) {
        memcpy(launcher->host, other->host, sizeof(launcher->host));
        launcher->ports = other->ports;
    }
    if (!launcher->named && launcher_get("MASTER_PORT") == NULL) { /* which would name it */
        memcpy(launcher->job, other->job, sizeof(launcher->job));
        launcher->named = other->named;
    }
}

/* Handles a family of which only n or only rank is set: an error if no other family was chosen.
 * Else it is ignored, unless its n shows that it is about another job. */
static hoop_result_t launcher_half(const struct launcher_family *family,
                                   const struct hoop_launcher *chosen)
{
    const char *size = launcher_first(family->size);
    const char *size_text = launcher_get(size);
    const char *set = size_text != NULL ? size : family->rank;
    const char *unset = size_text != NULL ? family->rank : size;
    uint32_t n = chosen->n;
    if (chosen->family == NULL) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is \"%.64s\" but %s is not set", set,
                          launcher_get(set), unset);
    }
    const hoop_result_t result = launcher_number(size, 1, HOOP_MAX_RANKS, &n);
    if (result == HOOP_OK && n != chosen->n) {
        return hoop_error(HOOP_INVALID_USAGE, "%s is %u but %s started %u ranks, and %s is not set",
                          size, n, chosen->family, chosen->n, family->rank);
    }
    return result;
}

/* ---- Where rank 0 is ---------------------------------------------------------------------- */

static bool launcher_is_true(const char *text)
{
    return text != NULL && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

/*
 * Reads MASTER_ADDR and MASTER_PORT. If torchrun says that it keeps a store of its own at
 * MASTER_PORT, rank 0 uses the ports after it, or before it where no more follow.
 */
static hoop_result_t launcher_master(struct hoop_launcher *ret)
{
    const char *host = launcher_get("MASTER_ADDR");
    uint32_t port = 0;
    if (host != NULL && strlen(host) >= sizeof(ret->host)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "MASTER_ADDR has %zu characters: expected a name or "
                          "address of at most %zu",
                          strlen(host), sizeof(ret->host) - 1);
    }
    const hoop_result_t result = launcher_number("MASTER_PORT", 1, UINT16_MAX, &port);
    if (result != HOOP_OK) {
        return result;
    }
    if (host != NULL) {
        (void)snprintf(ret->host, sizeof(ret->host), "%s", host);
    }
    if (port == 0) {
        return HOOP_OK;
    }
    ret->named = true;
    ret->ports = (struct hoop_ports){(uint16_t)port, (uint16_t)port};
    if (launcher_is_true(launcher_get("TORCHELASTIC_USE_AGENT_STORE"))) {
        const uint32_t first =
            port + LAUNCHER_PORTS <= UINT16_MAX ? port + 1 : port - LAUNCHER_PORTS;
        ret->ports = (struct hoop_ports){(uint16_t)first, (uint16_t)(first + LAUNCHER_PORTS - 1)};
    }
    return launcher_add_name("MASTER_PORT", ret);
}

/* Takes a family whose n and rank are set: the first one is chosen, later ones only complete it.
 * `said` is scratch memory. */
static hoop_result_t launcher_take(const struct launcher_family *family,
                                   struct hoop_launcher *chosen, struct hoop_launcher *said)
{
    const bool first = chosen->family == NULL;
    *said = (struct hoop_launcher){.family = NULL};
    const hoop_result_t result = launcher_family(family, said);
    if (first && result == HOOP_OK) {
        *chosen = *said;
    } else if (!first && result == HOOP_OK && said->n == chosen->n) {
        launcher_complete(chosen, said);
    }
    return first ? result : HOOP_OK;
}

static hoop_result_t launcher_choose(struct hoop_launcher *chosen, struct hoop_launcher *said)
{
    const struct launcher_family *half = NULL;
    hoop_result_t result = HOOP_OK;
    for (size_t i = 0; i < sizeof(launcher_families) / sizeof(launcher_families[0]); i++) {
        const struct launcher_family *family = &launcher_families[i];
        const bool there = family->only_with == NULL || launcher_get(family->only_with) != NULL;
        const bool sized = launcher_get(launcher_first(family->size)) != NULL;
        const bool ranked = launcher_get(family->rank) != NULL;
        if (there && sized && ranked) {
            result = launcher_take(family, chosen, said);
        } else if (there && (sized || ranked) && half == NULL) {
            half = family;
        }
        if (result != HOOP_OK) {
            return result;
        }
    }
    result = half != NULL ? launcher_half(half, chosen) : HOOP_OK;
    return result == HOOP_OK ? launcher_master(chosen) : result;
}

hoop_result_t hoop_launcher_read(struct hoop_launcher *ret)
{
    struct hoop_launcher *room = calloc(2, sizeof(*room)); /* a thread's stack may be too small */
    if (room == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory for what the launcher says");
    }
    room->n = 1;
    const hoop_result_t result = launcher_choose(&room[0], &room[1]);
    if (result == HOOP_OK) {
        *ret = room[0];
    }
    free(room);
    return result;
}

/* ---- One machine? ------------------------------------------------------------------------- */

enum hoop_spread hoop_launcher_spread(const struct hoop_launcher *launcher)
{
    if (launcher->n == 1 || launcher->local_n == launcher->n || launcher->machines == 1) {
        return HOOP_SPREAD_ONE;
    }
    return launcher->local_n != 0 || launcher->machines != 0 ? HOOP_SPREAD_SEVERAL
                                                             : HOOP_SPREAD_UNKNOWN;
}

bool hoop_host_is_loopback(const char *host)
{
    static const char suffix[] = ".localhost";
    const size_t length = strlen(host);
    struct hoop_address address;
    if (strcasecmp(host, "localhost") == 0 || strcasecmp(host, "localhost.localdomain") == 0 ||
        strcasecmp(host, "ip6-localhost") == 0 || strcasecmp(host, "ip6-loopback") == 0) {
        return true;
    }
    if (length >= sizeof(suffix) && strcasecmp(host + length - (sizeof(suffix) - 1), suffix) == 0) {
        return true;
    }
    return hoop_address_parse(host, &address) == HOOP_OK && hoop_address_is_loopback(&address);
}
