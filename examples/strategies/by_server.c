/*
 * A parameter server: rank 0 has the parameters and only updates them; the others send it their
 * gradients and get new parameters.
 *
 * Synchronous: the server waits for all workers, updates by the mean, and answers all. That gives
 * the same updates as all_reduce, but everything goes through the server. Asynchronous: each
 * gradient is an update at once, and only its sender is answered. Nobody waits for a slow worker,
 * but a gradient may be of parameters that others have changed meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "peers.h"
#include "study.h"

/* A message has all gradients and the worker's loss, or all parameters and 1 for stop, else 0. */
static size_t message_length(const struct study *study)
{
    return study->count + 1;
}

static float *messages_new(const struct study *study, int count, struct problem *problem)
{
    float *messages = calloc((size_t)count * message_length(study), sizeof(float));
    if (messages == NULL) {
        problem_say(problem, "no memory for %d messages of %zu parameters", count, study->count);
    }
    return messages;
}

/* ---- The server ---------------------------------------------------------------------------- */

struct server {
    struct study *study;
    struct peers *peers;
    float *messages; /* at 0 the answer, at each worker's rank what it sent */
    size_t length;   /* of a message, in floats */
    int workers, stopped;
};

static float *message_of(const struct server *server, int rank)
{
    return server->messages + (size_t)rank * server->length;
}

static bool expect(struct server *server, int worker, struct problem *problem)
{
    return peers_expect(server->peers, worker, message_of(server, worker), server->length, problem);
}

/* Sends a worker the parameters, or stop; unless it stops, begins to receive its next message. */
static bool answer(struct server *server, int worker, bool stop, struct problem *problem)
{
    float *message = message_of(server, 0);
    message[server->study->count] = stop;
    server->stopped += stop;
    return peers_answer(server->peers, worker, message, server->length, problem) &&
           (stop || expect(server, worker, problem));
}

/* Updates by the mean of what these workers have sent, added in rank order. */
static void update(struct server *server, int first, int last)
{
    struct study *study = server->study;
    memcpy(study->gradients, message_of(server, first), study->count * sizeof(float));
    for (int w = first + 1; w <= last; w++) {
        const float *message = message_of(server, w);
        for (size_t i = 0; i < study->count; i++) {
            study->gradients[i] += message[i];
        }
    }
    for (size_t i = 0; last > first && i < study->count; i++) {
        study->gradients[i] /= (float)(last - first + 1);
    }
    study_update(study);
    if (study_due(study)) {
        study_test(study);
    }
    study_pack(study, message_of(server, 0));
}

static bool serve_step(struct server *server, struct problem *problem)
{
    for (int k = 0; k < server->workers; k++) {
        if (peers_arrived(server->peers, problem) < 0) {
            return false;
        }
    }
    update(server, 1, server->workers);
    const bool stop = server->study->updates == server->study->options->steps;
    bool good = true;
    for (int w = 1; good && w <= server->workers; w++) {
        good = answer(server, w, stop, problem);
    }
    return good;
}

/* Serves one message. After as many gradients as all steps have, workers are told to stop. */
static bool serve_one(struct server *server, struct problem *problem)
{
    const int w = peers_arrived(server->peers, problem);
    const int all = server->study->options->steps * server->study->updates_of_step;
    if (w < 0) {
        return false;
    }
    if (server->study->updates < all) {
        update(server, w, w);
    }
    return answer(server, w, server->study->updates == all, problem);
}

static bool serve(struct server *server, struct problem *problem)
{
    const bool async = server->study->options->async;
    server->study->began_s = report_now();
    server->study->updates_of_step = async ? server->workers : 1;
    for (int w = 1; w <= server->workers; w++) {
        if (!expect(server, w, problem)) {
            return false;
        }
    }
    while (server->stopped < server->workers) {
        if (!(async ? serve_one : serve_step)(server, problem)) {
            return false;
        }
    }
    study_over(server->study, async ? "by_server --async" : "by_server", server->workers + 1);
    return true;
}

static bool run_server(struct study *study, struct peers *peers, struct problem *problem)
{
    const int ranks = peers_count(peers);
    struct server server = {
        study, peers, messages_new(study, ranks, problem), message_length(study), ranks - 1, 0};
    if (server.messages == NULL || !serve(&server, problem)) {
        return false; /* not freed: messages that are expected may still arrive there */
    }
    free(server.messages);
    return true;
}

/* ---- A worker ------------------------------------------------------------------------------ */

static bool run_worker(struct study *study, struct peers *peers, struct problem *problem)
{
    const size_t length = message_length(study);
    float *question = messages_new(study, 2, problem);
    if (question == NULL) {
        return false;
    }
    float *parameters = question + length;
    bool good = true;
    study_place(study, question);
    while (good && parameters[study->count] == 0) {
        study_compute(study);
        question[study->count] = (float)study->loss;
        good = peers_ask(peers, question, parameters, length, problem);
        study_unpack(study, parameters);
    }
    free(question);
    return good;
}

/* The training if there is only one rank, which has no server. */
static bool run_alone(struct study *study)
{
    for (int step = 0; step < study->options->steps; step++) {
        study_compute(study);
        study_update(study);
        if (study_due(study)) {
            study_test(study);
        }
    }
    study_over(study, "by_server", 1);
    return true;
}

static bool run(const struct study_options *options, const struct study_data *data,
                struct problem *problem)
{
    struct peers *peers = peers_open(problem);
    if (peers == NULL) {
        return false;
    }
    const int rank = peers_rank(peers), ranks = peers_count(peers);
    const int workers = ranks > 1 ? ranks - 1 : 1;
    struct study study;
    bool done = study_open(&study, options, data, rank > 0 ? rank - 1 : 0, workers, rank == 0, NULL,
                           problem);
    if (done && ranks == 1) {
        done = run_alone(&study);
    } else if (done) {
        done = peers_serve(peers, problem) &&
               (rank == 0 ? run_server : run_worker)(&study, peers, problem);
    }
    done = done && report_kept(&study.report, problem);
    study_close(&study);
    peers_close(peers);
    return done;
}

int main(int argc, char **argv)
{
    return study_main(argc, argv,
                      "hooprun -n RANKS by_server [options]: rank 0 is a parameter server", run);
}
