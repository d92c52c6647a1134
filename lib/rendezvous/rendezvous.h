/*
 * A rendezvous: where the ranks of one comm find each other, and the secret by which they prove
 * that they belong to it. It comes from a unique id (unique_id.c), or from the launcher's
 * environment or a url (url.c), which may name a file (file_store.c).
 *
 * Functions may be called from any thread but the service thread.
 */
#ifndef HOOP_RENDEZVOUS_H
#define HOOP_RENDEZVOUS_H

#include "base/crypto.h"
#include "base/sizes.h"
#include "net/address.h"
#include "rendezvous/launcher.h"

#define HOOP_RENDEZVOUS_ADDRESSES 16
#define HOOP_RENDEZVOUS_NAME_RANDOM 16u

#define HOOP_RENDEZVOUS_JOB_BYTES 128

/*
 * Where the ranks of one comm meet, and the secret by which they prove that they belong.
 *
 * Two jobs must never become one. So name and secret derive from all that is known of the job: its
 * secret, address and ports, run id, attempt, number of ranks. Jobs may still look alike. So a
 * leader that has all n joins completes the comm alone only if the launcher did not say that some
 * ranks are elsewhere (hoop_rendezvous_is_whole_here()); else it asks the root, as if ranks were
 * missing.
 */
struct hoop_rendezvous {
    char name[HOOP_NAME_BYTES]; /* abstract socket name */
    /* A job without a secret derives it from its names, which are public. Then the uid that the
     * kernel reports is the protection, and the comm gets a random secret of its own. */
    struct hoop_secret secret;
    /*
     * If there may be several machines: where the root may be, in the order in which to try; the
     * process that serves the rendezvous listens at the first that it can. 0 means one machine.
     */
    uint32_t address_count;
    struct hoop_address addresses[HOOP_RENDEZVOUS_ADDRESSES];
    /* The addresses are made from these (hoop_hosts_find); "" if they were given as they are. */
    char host[HOOP_LAUNCHER_HOST_BYTES];
    struct hoop_ports ports;
    /* The file that publishes the root's address (rendezvous/file_store.h), only in the process
     * that serves a rendezvous at a file; else NULL. Owned; hoop_rendezvous_finish() frees it. */
    char *file;
    uint32_t local_n; /* number of ranks on this machine as the launcher says, or 0 */
    char job[HOOP_RENDEZVOUS_JOB_BYTES]; /* the job's name in error messages, or "" */
    const char *hint; /* added to the error that a rank did not come, or NULL; static */
};

/* Could all n ranks be on this machine, from what the launcher said? */
static inline bool hoop_rendezvous_is_whole_here(const struct hoop_rendezvous *rendezvous,
                                                 uint32_t n)
{
    return rendezvous->address_count == 0 || rendezvous->local_n == 0 || rendezvous->local_n >= n;
}

/* Wipes the secret and frees. Any thread. */
void hoop_rendezvous_finish(struct hoop_rendezvous *rendezvous);
/* The same after a join: waits for files of the rendezvous to be removed. */
void hoop_rendezvous_close(struct hoop_rendezvous *rendezvous);

/* A rendezvous without addresses: of this secret, which gives its name, or of a random one. */
hoop_result_t hoop_rendezvous_by_secret(const struct hoop_secret *secret,
                                        struct hoop_rendezvous *ret);
hoop_result_t hoop_rendezvous_random(struct hoop_rendezvous *ret);

/* The unique id of a rendezvous, which has at most one address. */
hoop_result_t hoop_rendezvous_to_id(const struct hoop_rendezvous *rendezvous,
                                    hoop_unique_id_t *ret_id);
/* HOOP_INVALID_ARGUMENT: the bytes are not a unique id of this version. */
hoop_result_t hoop_rendezvous_from_id(const hoop_unique_id_t *id, struct hoop_rendezvous *ret);
/*
 * The next rendezvous at a url (env://, tcp://host:port, file:///path) for this rank of n, or if it
 * is NULL, of the launcher's job (see hoop_comm_init_env): the k-th call in a process gives the
 * k-th rendezvous. HOOP_INVALID_ARGUMENT quotes the url and says what is expected. Without a url
 * HOOP_INIT says where, and *n and *rank come from WORLD_SIZE and RANK, or the names that Open MPI,
 * Slurm and PMI use; without them they are 1 and 0. Bad or contradictory values are
 * HOOP_INVALID_USAGE with variable and value. timeout_ms limits name look-ups and waiting for a
 * file. Finish *ret.
 */
hoop_result_t hoop_rendezvous_find(const char *url, uint64_t timeout_ms,
                                   struct hoop_rendezvous *ret, uint32_t *n, uint32_t *rank);

/* Writes the prefix, followed by the bytes in hexadecimal. */
void hoop_rendezvous_name(const char *prefix, const uint8_t bytes[HOOP_RENDEZVOUS_NAME_RANDOM],
                          char ret_name[HOOP_NAME_BYTES]);

/* Are the ranks on one machine, by what the launcher said and HOOP_HOSTID? */
enum hoop_spread hoop_rendezvous_spread(const struct hoop_launcher *launcher);

/* ---- hosts.c: the addresses of rank 0's machine ---------------------------------------------- */

/*
 * Sets the addresses of a rendezvous from its host and ports: every port at every address of the
 * host, as many as fit. Since a name may become known a moment later, the look-up is repeated until
 * the deadline; then HOOP_INVALID_USAGE with the resolver's reason. Not on the service thread.
 */
hoop_result_t hoop_hosts_find(struct hoop_rendezvous *rendezvous, uint64_t timeout_ms);

struct hoop_lookup;
typedef void hoop_lookup_fn(void *arg, const struct hoop_address *addresses, uint32_t count);

/*
 * Looks the host up every second, in a thread of its own, and calls moved() when the addresses
 * change, as when a pod is restarted. Call it on the service thread, which also runs moved(). *ret
 * is NULL if there is no name to look up. arg is borrowed until stopped.
 */
hoop_result_t hoop_lookup_start(const struct hoop_rendezvous *rendezvous, hoop_lookup_fn *moved,
                                void *arg, struct hoop_lookup **ret);
/* Afterwards moved() is not called any more. NULL is allowed. */
void hoop_lookup_stop(struct hoop_lookup *lookup);

#endif
