/*
 * A rendezvous: where the ranks of one comm find each other, and with what secret they prove that
 * they belong. The ways to one: a unique id (unique_id.c), the launcher's environment or a url
 * (url.c), of which a file is one (file_store.c).
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
 * Where the ranks of one comm meet, and with what they prove that they belong.
 *
 * No two jobs may become one. So name and secret are made from all that was told of the job: its
 * secret, the text of address and ports, run id, attempt, number of ranks. And where jobs cannot be
 * told apart by that, a machine never settles alone what others may have a word in: a leader that
 * has all n joins completes the comm by itself only where the launcher did not say that ranks are
 * on other machines (hoop_rendezvous_is_whole_here); else it asks the root as if some were missing.
 */
struct hoop_rendezvous {
    char name[HOOP_NAME_BYTES]; /* abstract socket name, a C string */
    /* Where the job was given none it follows from its names, which are no secret: then it is the
     * uid that the kernel tells which protects a machine, whose comm gets one of its own. */
    struct hoop_secret secret;
    /*
     * Several machines: where the root may be, in the order in which to try them; the process that
     * serves opens it at the first that it can. 0: one machine.
     */
    uint32_t address_count;
    struct hoop_address addresses[HOOP_RENDEZVOUS_ADDRESSES];
    /* What the addresses are made of (hoop_hosts_find); "": they were given as they are. */
    char host[HOOP_LAUNCHER_HOST_BYTES];
    struct hoop_ports ports;
    /* Where others learn of the root's address (rendezvous/file_store.h), in the process that
     * serves a rendezvous at a file; else NULL. Owned: hoop_rendezvous_finish(). */
    char *file;
    uint32_t local_n; /* the launcher's word on how many ranks are on this machine; 0: none */
    char job[HOOP_RENDEZVOUS_JOB_BYTES]; /* the job, to be named in a sentence; "": no name */
    const char *hint; /* ends the sentence that somebody did not come; NULL: none. Static */
};

/* May all n ranks be on this machine, by what the launcher said? */
static inline bool hoop_rendezvous_is_whole_here(const struct hoop_rendezvous *rendezvous,
                                                 uint32_t n)
{
    return rendezvous->address_count == 0 || rendezvous->local_n == 0 || rendezvous->local_n >= n;
}

/* Wipes the secret, frees. Any thread. */
void hoop_rendezvous_finish(struct hoop_rendezvous *rendezvous);
/* The same for the caller whose join is over: what is to be removed of a file is. */
void hoop_rendezvous_close(struct hoop_rendezvous *rendezvous);

/* The rendezvous of this secret, whose name follows from it; of a new one. No addresses. */
hoop_result_t hoop_rendezvous_by_secret(const struct hoop_secret *secret,
                                        struct hoop_rendezvous *ret);
hoop_result_t hoop_rendezvous_random(struct hoop_rendezvous *ret);

/* The id of a rendezvous with a secret and at most one address. */
hoop_result_t hoop_rendezvous_to_id(const struct hoop_rendezvous *rendezvous,
                                    hoop_unique_id_t *ret_id);
/* HOOP_INVALID_ARGUMENT: the bytes are no unique id of this version. */
hoop_result_t hoop_rendezvous_from_id(const hoop_unique_id_t *id, struct hoop_rendezvous *ret);
/*
 * The next rendezvous of the launcher's job (see hoop_comm_init_env): the k-th call of a process
 * gives the k-th rendezvous. *ret_n and *ret_rank from WORLD_SIZE and RANK (also Open MPI's,
 * Slurm's and PMI's names); 1 and 0 without them. HOOP_INIT says where. Bad or contradictory
 * values: HOOP_INVALID_USAGE naming variable and value. timeout_ms: a name may be looked up, or a
 * file awaited, for that long. To be finished.
 */
hoop_result_t hoop_rendezvous_from_env(uint64_t timeout_ms, struct hoop_rendezvous *ret,
                                       uint32_t *ret_n, uint32_t *ret_rank);

/*
 * The k-th rendezvous at a url of this process: env://, tcp://host:port, file:///path, with n and
 * rank from the caller. HOOP_INVALID_ARGUMENT quotes the url and says what is expected.
 */
hoop_result_t hoop_rendezvous_from_url(const char *url, uint32_t n, uint32_t rank,
                                       uint64_t timeout_ms, struct hoop_rendezvous *ret);

/* prefix, and these bytes in hexadecimal. */
void hoop_rendezvous_name(const char *prefix, const uint8_t bytes[HOOP_RENDEZVOUS_NAME_RANDOM],
                          char ret_name[HOOP_NAME_BYTES]);

/* What this process's environment says; see hoop_launcher_read(). */
hoop_result_t hoop_rendezvous_launcher(struct hoop_launcher *ret);

/* Are the ranks on one machine, by the launcher's word and HOOP_HOSTID? */
enum hoop_spread hoop_rendezvous_spread(const struct hoop_launcher *launcher);

/* ---- hosts.c: what the name of rank 0's machine stands for ----------------------------------- */

/*
 * Fills in the addresses of a rendezvous from its host and ports: every port at every address of
 * the host, as many as fit. A name may be known a moment later, so it is looked up again and again;
 * HOOP_INVALID_USAGE: in vain, until the deadline, with the resolver's reason. Not on the service
 * thread.
 */
hoop_result_t hoop_hosts_find(struct hoop_rendezvous *rendezvous, uint64_t timeout_ms);

struct hoop_lookup;
typedef void hoop_lookup_fn(void *arg, const struct hoop_address *addresses, uint32_t count);

/*
 * Looks the host up every second, in a thread of its own, and calls moved() when it stands for
 * others than before: pods come back with other addresses, tables are mended. Service thread, as
 * moved() is. *ret NULL: there is nothing to look up. arg: borrowed until stopped.
 */
hoop_result_t hoop_lookup_start(const struct hoop_rendezvous *rendezvous, hoop_lookup_fn *moved,
                                void *arg, struct hoop_lookup **ret);
/* moved() is not called any more. NULL is allowed. */
void hoop_lookup_stop(struct hoop_lookup *lookup);

#endif
