/* See calibrate.h. */
#include "hoopinfo/calibrate.h"
#include "hoop.h"
#include "hoopinfo/fit.h"
#include "hoopinfo/hoopinfo.h"
#include "hoopinfo/json.h"
#include "hoopinfo/machine.h"
#include "hoopinfo/ranks.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOB_SECONDS 7 /* a job usually takes 3 s, and there are four at most */
#define RANKS_MOST 8
#define CROWDED_CPUS 2
#define PROFILE_BYTES 4096

struct calibration {
    struct constants memory, crowded;
    int usable; /* CPUs that hoop counts as usable */
    char machine[256], date[32], version[32];
    char text[PROFILE_BYTES];
};

/* ---- Jobs ----------------------------------------------------------------------------------- */

/* Parses what the ranks print, in the order of calibrate_algos and fit_kib. */
static bool lines_parse(const char *text, double ret_ns[FIT_ALGOS][FIT_SIZES])
{
    for (size_t i = 0; text != NULL && i < (size_t)FIT_ALGOS * FIT_SIZES; i++) {
        char algo[16];
        size_t kib = 0;
        int length = 0;
        double *ns = &ret_ns[i / FIT_SIZES][i % FIT_SIZES];
        if (sscanf(text, "%15s %zu %lf\n%n", algo, &kib, ns, &length) != 3 ||
            !(*ns > 0.0 || (*ns == 0.0 && i / FIT_SIZES == FIT_CMA)) ||
            strcmp(algo, calibrate_algos[i / FIT_SIZES]) != 0 || kib != fit_kib[i % FIT_SIZES]) {
            return false;
        }
        text += length;
    }
    return text != NULL && *text == 0;
}

/* Runs one job. cpus: it uses only the first so many usable CPUs; 0: all. */
static struct fit job_measure(int ranks, int cpus)
{
    const struct ranks job = {
        .count = ranks, .cpus = cpus, .seconds = JOB_SECONDS, .options = {"--calibrate-rank"}};
    double ns[FIT_ALGOS][FIT_SIZES];
    struct fit fit = {.ranks = 0};
    char *text = NULL;
    const int code = ranks_run(&job, &text);
    if (code != 0 || !lines_parse(text, ns)) {
        fprintf(stderr, "hoopinfo: %d ranks could not be measured: they ended with code %d%s\n",
                ranks, code, code == 124 ? ", too late: is the machine busy?" : "");
    } else if (!fit_solve(ns, ranks, cpus > 0, &fit)) {
        fprintf(stderr,
                "hoopinfo: %d ranks: %.0f us to see all, %.0f us for a barrier, %.0f us to read of "
                "another, %.0f, %.0f and %.0f ns a KiB: is the machine busy?\n",
                ranks, fit.sync * 1e-3, fit.barrier * 1e-3, fit.call * 1e-3, fit.moved, fit.folded,
                fit.read);
        fit.ranks = 0;
    }
    free(text);
    return fit;
}

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Measures few ranks, and many_ranks if they are more; cpus as in ranks_run(). */
static struct constants measure_class(int ranks, int many_ranks, int cpus)
{
    const struct fit few = job_measure(ranks, cpus);
    struct fit many = {.ranks = 0};
    if (few.ranks > 0 && many_ranks > ranks) {
        many = job_measure(many_ranks, cpus);
    }
    return fit_constants(&few, &many);
}

/* Returns false if nothing could be measured. */
static bool measure(struct calibration *c)
{
    const int few = least_of(c->usable, CROWDED_CPUS);
    if (c->usable >= 2) {
        c->memory = measure_class(2, least_of(c->usable, RANKS_MOST), 0);
    }
    c->crowded = measure_class(2 * few, 4 * few, few);
    return c->memory.measured || c->crowded.measured;
}

/* ---- The profile ---------------------------------------------------------------------------- */

/* The limits of a profile (lib/cost/profile.c). Beyond them a measurement has failed. */
#define MOST_NS 1e7
#define MOST_NS_PER_KIB 1e4

/* Adds a number of the profile. If it was not measured, or not well, the default stays in force. */
static void number_add(struct calibration *c, struct facts *facts, const char *class, bool measured,
                       const char *what, double number)
{
    const size_t length = strlen(c->text);
    const double most = strstr(what, "_per_kib") != NULL ? MOST_NS_PER_KIB : MOST_NS;
    char key[64], value[32] = "default";
    (void)snprintf(key, sizeof(key), "%s_%s", class, what);
    if (measured && number <= most) {
        (void)snprintf(value, sizeof(value), "%.0f", number);
    }
    (void)snprintf(c->text + length, sizeof(c->text) - length, "%s = %s\n", key, value);
    facts_add(facts, "measured", key, "%s", value);
}

static void class_add(struct calibration *c, struct facts *facts, const char *class,
                      const struct constants *of, const char *comment)
{
    const size_t length = strlen(c->text);
    (void)snprintf(c->text + length, sizeof(c->text) - length, "\n# %s\n", comment);
    number_add(c, facts, class, of->measured, "sync_ns", of->sync);
    number_add(c, facts, class, of->measured, "sync_ns_per_rank", of->sync_per);
    number_add(c, facts, class, of->measured, "barrier_ns", of->barrier);
    number_add(c, facts, class, of->measured, "barrier_ns_per_rank", of->barrier_per);
    number_add(c, facts, class, of->measured, "moved_ns_per_kib", of->moved);
    number_add(c, facts, class, of->measured, "folded_ns_per_kib", of->folded);
    number_add(c, facts, class, of->call > 0.0, "call_ns", of->call);
    number_add(c, facts, class, of->read > 0.0, "read_ns_per_kib", of->read);
}

static void profile_write(struct calibration *c, struct facts *facts)
{
    (void)snprintf(
        c->text, sizeof(c->text),
        "# What hoop's cost model counts with in shared memory, by hoopinfo --calibrate.\n"
        "# Read where HOOP_PROFILE names this file; the numbers are the same on all ranks.\n"
        "version = 2\nmachine = %s\ndate = %s\nhoop = %s\n",
        c->machine, c->date, c->version);
    facts_add(facts, "profile", "machine", "%s", c->machine);
    facts_add(facts, "profile", "date", "%s", c->date);
    facts_add(facts, "profile", "hoop", "%s", c->version);
    class_add(c, facts, "memory", &c->memory,
              c->memory.measured ? "A CPU for every rank."
                                 : "A CPU for every rank: not measured, so what is built in.");
    class_add(c, facts, "oversubscribed", &c->crowded,
              c->crowded.measured
                  ? "Ranks that outnumber CPUs."
                  : "Ranks that outnumber CPUs: not measured, so what is built in.");
}

/* ---- The file ------------------------------------------------------------------------------- */

#define BESIDE ".XXXXXX" /* of the temporary file beside it */
#define BESIDE_BYTES (sizeof(BESIDE) - 1)

static bool file_failed(const char *file, const char *why)
{
    fprintf(stderr, "hoopinfo: --calibrate %s: %s\n", file, why);
    return false;
}

/* Checks what is known before time is spent on measuring. */
static bool file_check(const char *file)
{
    struct stat about;
    char copy[PATH_MAX];
    const char *slash = strrchr(file, '/');
    const char *name = slash != NULL ? slash + 1 : file;
    if (*name == 0 || strlen(file) >= sizeof(copy) - BESIDE_BYTES) {
        return file_failed(file, "expected the name of a file");
    }
    if (strlen(name) + BESIDE_BYTES > NAME_MAX) {
        return file_failed(file, strerror(ENAMETOOLONG));
    }
    if (lstat(file, &about) == 0 && !S_ISREG(about.st_mode)) {
        return file_failed(file, "expected a new name or a regular file");
    }
    (void)snprintf(copy, sizeof(copy), "%s", file);
    return access(dirname(copy), W_OK | X_OK) == 0 || file_failed(file, strerror(errno));
}

/* Returns 0 or an errno. A few KiB are written in one call or not at all. */
static int file_fill(int fd, const char *text, mode_t mode)
{
    if (fchmod(fd, mode) != 0) {
        return errno;
    }
    const ssize_t put = write(fd, text, strlen(text));
    if (put != (ssize_t)strlen(text)) {
        return put < 0 ? errno : ENOSPC;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* Replaces the file atomically, by way of a temporary file beside it. */
static bool file_replace(const char *file, const char *text)
{
    char beside[PATH_MAX];
    const mode_t mask = umask(0);
    (void)umask(mask);
    (void)snprintf(beside, sizeof(beside), "%s" BESIDE, file);
    const int fd = mkstemp(beside);
    if (fd < 0) {
        return file_failed(file, strerror(errno));
    }
    int err = file_fill(fd, text, 0666 & ~mask);
    if (close(fd) != 0 && err == 0) {
        err = errno;
    }
    if (err == 0 && rename(beside, file) != 0) {
        err = errno;
    }
    if (err != 0) {
        (void)unlink(beside);
        return file_failed(file, strerror(err));
    }
    return true;
}

/* Blocks signals, so that they end this program before or after the replacement. */
static bool file_write(const char *file, const char *text)
{
    sigset_t ends, before;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &ends, &before);
    const bool done = file_replace(file, text);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return done;
}

/* ---- All of it ------------------------------------------------------------------------------ */

/* Refuses to run as one of several ranks, which would all calibrate and disturb each other. */
static int check_alone(void)
{
    hoop_comm_t comm = HOOP_COMM_NULL;
    int n = 0;
    hoop_result_t result = hoop_comm_init_env(&comm, NULL);
    if (result != HOOP_OK) {
        return library_failed("--calibrate", result);
    }
    (void)hoop_comm_count(comm, &n);
    (void)hoop_comm_destroy(comm);
    if (n > 1) {
        fprintf(stderr,
                "hoopinfo: --calibrate: started as one of %d ranks, expected to be started by "
                "itself, without a launcher\n",
                n);
        return 2;
    }
    return 0;
}

static int look_around(struct calibration *c)
{
    size_t needed = 0;
    int version = 0;
    const time_t now = time(NULL);
    struct tm date;
    (void)hoop_info_json(NULL, NULL, 0, &needed);
    const size_t bytes = needed + 4096; /* it may grow in between */
    char *text = malloc(bytes);
    const hoop_result_t result =
        text != NULL ? hoop_info_json(NULL, text, bytes, &needed) : HOOP_OUT_OF_MEMORY;
    if (result == HOOP_OK) {
        c->usable = (int)json_number(json_member(text, "usable_cpus"), 1);
    }
    free(text);
    (void)hoop_get_version(&version);
    (void)snprintf(c->version, sizeof(c->version), "%d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    (void)strftime(c->date, sizeof(c->date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &date));
    machine_name(c->machine, sizeof(c->machine));
    return result == HOOP_OK ? 0 : library_failed("the library", result);
}

/* Unsets what would change the measurement, or make it fail. */
static void settings_clear(void)
{
    static const char *const names[] = {"HOOP_PROFILE", "HOOP_ALGO",           "HOOP_TRANSPORT",
                                        "HOOP_ORDER",   "HOOP_ONESHOT_BYTES",  "HOOP_CMA",
                                        "HOOP_SPIN_US", "HOOP_SLEEP_AFTER_US", "HOOP_NONTEMPORAL"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
}

int calibrate_run(const char *file, struct facts *facts)
{
    static struct calibration c;
    if (!file_check(file)) {
        return 1;
    }
    settings_clear();
    const int code = check_alone();
    if (code != 0 || look_around(&c) != 0) {
        return code != 0 ? code : 1;
    }
    fprintf(stderr, "hoopinfo: measures shared memory between ranks of this machine: up to "
                    "30 s\n");
    if (!measure(&c)) {
        fprintf(stderr, "hoopinfo: --calibrate %s: nothing was written\n", file);
        return 1;
    }
    facts_add(facts, "profile", "file", "%s", file);
    profile_write(&c, facts);
    return file_write(file, c.text) ? 0 : 1;
}
