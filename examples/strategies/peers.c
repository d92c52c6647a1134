/* The only file of the strategies that uses hoop. */
#include "peers.h"

#include <errno.h>
#include <hoop.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A comm of the server and one rank, so that ranks do not wait for each other. */
struct pair {
    hoop_comm_t comm;
    hoop_stream_t stream;
    hoop_ticket_t ticket; /* of the message that is expected */
    bool expected;
};

struct peers {
    hoop_comm_t comm;
    int rank, count;
    struct pair *pairs;   /* by rank; in a worker of rank r only [r] is used */
    struct pollfd *polls; /* in the server: one for each pair */
    int last;             /* in the server: the rank whose message arrived last */
};

static bool good(hoop_result_t result, hoop_comm_t comm, struct problem *problem)
{
    return result == HOOP_OK ||
           problem_say(problem, "%s: %s", hoop_get_error_string(result), hoop_get_last_error(comm));
}

struct peers *peers_open(struct problem *problem)
{
    struct peers *peers = calloc(1, sizeof(*peers));
    if (peers == NULL) {
        problem_say(problem, "no memory for the ranks");
        return NULL;
    }
    if (!good(hoop_comm_init_env(&peers->comm, NULL), HOOP_COMM_NULL, problem) ||
        !good(hoop_comm_user_rank(peers->comm, &peers->rank), peers->comm, problem) ||
        !good(hoop_comm_count(peers->comm, &peers->count), peers->comm, problem)) {
        peers_close(peers);
        return NULL;
    }
    return peers;
}

void peers_close(struct peers *peers)
{
    if (peers == NULL) {
        return;
    }
    for (int i = 0; peers->pairs != NULL && i < peers->count; i++) {
        hoop_stream_destroy(peers->pairs[i].stream);
        hoop_comm_destroy(peers->pairs[i].comm);
    }
    hoop_comm_destroy(peers->comm);
    free(peers->pairs);
    free(peers->polls);
    free(peers);
}

int peers_rank(const struct peers *peers)
{
    return peers->rank;
}

int peers_count(const struct peers *peers)
{
    return peers->count;
}

float *peers_memory(size_t count, struct problem *problem)
{
    void *memory = NULL;
    good(hoop_mem_alloc(&memory, count * sizeof(float), HOOP_MEM_HOST), HOOP_COMM_NULL, problem);
    return memory;
}

void peers_memory_free(float *memory)
{
    hoop_mem_free(memory);
}

bool peers_average(struct peers *peers, float *values, size_t count, struct problem *problem)
{
    return good(hoop_all_reduce(values, values, count, HOOP_FLOAT32, HOOP_AVG, peers->comm, NULL),
                peers->comm, problem);
}

bool peers_send(struct peers *peers, int to, const float *values, size_t count,
                struct problem *problem)
{
    return good(hoop_send(values, count, HOOP_FLOAT32, to, peers->comm, NULL), peers->comm,
                problem);
}

bool peers_receive(struct peers *peers, int from, float *values, size_t count,
                   struct problem *problem)
{
    return good(hoop_recv(values, count, HOOP_FLOAT32, from, peers->comm, NULL), peers->comm,
                problem);
}

/* ---- A server: of a pair the server is rank 0, and the other 1 ------------------------------ */

/* Makes a stream for a pair: its descriptor becomes readable when a message has arrived. */
static bool pair_listen(struct peers *peers, int i, struct problem *problem)
{
    struct pair *pair = &peers->pairs[i];
    peers->polls[i].events = POLLIN;
    return good(hoop_stream_create(&pair->stream), HOOP_COMM_NULL, problem) &&
           good(hoop_stream_get_fd(pair->stream, &peers->polls[i].fd), HOOP_COMM_NULL, problem);
}

bool peers_serve(struct peers *peers, struct problem *problem)
{
    peers->pairs = calloc((size_t)peers->count, sizeof(*peers->pairs));
    peers->polls = calloc((size_t)peers->count, sizeof(*peers->polls));
    if (peers->pairs == NULL || peers->polls == NULL) {
        return problem_say(problem, "no memory for %d pairs", peers->count);
    }
    peers->polls[0].fd = -1; /* the server itself: poll() skips it */
    for (int i = 1; i < peers->count; i++) {
        const bool member = peers->rank == 0 || peers->rank == i;
        if (!good(hoop_comm_split(peers->comm, member ? 0 : HOOP_SPLIT_NOCOLOR, 0,
                                  &peers->pairs[i].comm, NULL),
                  peers->comm, problem) ||
            (peers->rank == 0 && !pair_listen(peers, i, problem))) {
            return false;
        }
    }
    return true;
}

bool peers_ask(struct peers *peers, const float *question, float *ret_answer, size_t count,
               struct problem *problem)
{
    hoop_comm_t comm = peers->pairs[peers->rank].comm;
    return good(hoop_send(question, count, HOOP_FLOAT32, 0, comm, NULL), comm, problem) &&
           good(hoop_recv(ret_answer, count, HOOP_FLOAT32, 0, comm, NULL), comm, problem);
}

bool peers_expect(struct peers *peers, int from, float *values, size_t count,
                  struct problem *problem)
{
    struct pair *pair = &peers->pairs[from];
    pair->expected = true;
    return good(hoop_recv(values, count, HOOP_FLOAT32, 1, pair->comm, pair->stream), pair->comm,
                problem) &&
           good(hoop_stream_record(pair->stream, &pair->ticket), pair->comm, problem);
}

/* A rank whose message has arrived; 0: none; -1: the problem. Asks ranks in turn, to be fair. */
static int pairs_query(struct peers *peers, struct problem *problem)
{
    for (int k = 1; k <= peers->count; k++) {
        const int i = (peers->last + k) % peers->count;
        struct pair *pair = &peers->pairs[i];
        const hoop_result_t result =
            pair->expected ? hoop_ticket_query(pair->ticket) : HOOP_IN_PROGRESS;
        if (result != HOOP_IN_PROGRESS) {
            pair->expected = false;
            peers->last = i;
            return good(result, pair->comm, problem) ? i : -1;
        }
    }
    return 0;
}

int peers_arrived(struct peers *peers, struct problem *problem)
{
    for (;;) {
        const int i = pairs_query(peers, problem);
        if (i != 0) {
            return i;
        }
        /* Each receive has hoop's own time limit, after which its ticket is complete. */
        if (poll(peers->polls, (nfds_t)peers->count, -1) < 0 && errno != EINTR) {
            problem_say(problem, "poll: %s", strerror(errno));
            return -1;
        }
        for (int k = 1; k < peers->count; k++) {
            uint64_t completed;
            if ((peers->polls[k].revents & POLLIN) != 0 &&
                read(peers->polls[k].fd, &completed, sizeof(completed)) < 0) {
                continue; /* it was read before; the loop asks again anyhow */
            }
        }
    }
}

bool peers_answer(struct peers *peers, int to, const float *values, size_t count,
                  struct problem *problem)
{
    hoop_comm_t comm = peers->pairs[to].comm;
    return good(hoop_send(values, count, HOOP_FLOAT32, 1, comm, NULL), comm, problem);
}
