/*
 * Model parallelism: the net is cut, and every rank has some of its layers. Activations go from
 * rank to rank, and their gradients back. Parameters never travel, and the net may be larger than a
 * rank's memory; but while one rank computes the others wait.
 */
#include "peers.h"
#include "study.h"

struct part {
    struct study study;
    struct peers *peers;
    struct net_edge in, out;
    bool first, last;
};

/* Computes this part: from its inputs, which are the images in the first part, to its outputs. */
static bool forward(struct part *part, const struct batch *batch, bool training,
                    struct net_result *ret, struct problem *problem)
{
    const int rank = peers_rank(part->peers);
    const size_t n = (size_t)batch->n;
    if (!part->first &&
        !peers_receive(part->peers, rank - 1, part->in.data, n * part->in.image, problem)) {
        return false;
    }
    if (!part->study.options->exchange) {
        *ret = net_forward(part->study.net, part->first ? batch->images : part->in.data,
                           part->last ? batch->labels : NULL, batch->n, training);
    }
    return part->last ||
           peers_send(part->peers, rank + 1, part->out.data, n * part->out.image, problem);
}

static bool backward(struct part *part, const struct batch *batch, struct problem *problem)
{
    const int rank = peers_rank(part->peers);
    const size_t n = (size_t)batch->n;
    if (!part->last &&
        !peers_receive(part->peers, rank + 1, part->out.gradient, n * part->out.image, problem)) {
        return false;
    }
    if (!part->study.options->exchange) {
        net_backward(part->study.net, false, NULL, NULL);
    }
    return part->first ||
           peers_send(part->peers, rank - 1, part->in.gradient, n * part->in.image, problem);
}

/* Tests the net, by all parts together; the last one knows the result. */
static bool test(struct part *part, struct problem *problem)
{
    const struct dataset *images = &part->study.data->test;
    const double began = report_now();
    struct sampler all = {0};
    struct loader *loader = loader_create(images, part->study.options->batch, 0, problem);
    bool good = loader != NULL && (sampler_init_once(&all, images->count, 1, 0) ||
                                   problem_say(problem, "no memory for a test"));
    if (good) {
        loader_start(loader, all.mine, all.count, 0);
    }
    struct net_result sum = {0, 0}, got = {0, 0};
    for (const struct batch *batch; good && (batch = loader_next(loader)) != NULL;) {
        good = forward(part, batch, false, &got, problem);
        sum.loss += got.loss;
        sum.correct += got.correct;
    }
    sampler_finish(&all);
    loader_destroy(loader);
    if (good) {
        study_tell(&part->study, sum.loss, sum.correct, images->count, began);
    }
    return good;
}

static bool train(struct part *part, struct problem *problem)
{
    struct study *study = &part->study;
    struct net_result result;
    study->began_s = report_now();
    for (int step = 0; step < study->options->steps; step++) {
        const struct batch *batch = study_batch(study);
        if (!forward(part, batch, true, &result, problem) || !backward(part, batch, problem)) {
            return false;
        }
        study_update(study);
        if (study_due(study) && !test(part, problem)) {
            return false;
        }
    }
    study_over(study, "by_model", peers_count(part->peers));
    return true;
}

static bool run(const struct study_options *options, const struct study_data *data,
                struct problem *problem)
{
    struct part part = {.peers = peers_open(problem)};
    if (part.peers == NULL) {
        return false;
    }
    const int rank = peers_rank(part.peers), ranks = peers_count(part.peers);
    part.first = rank == 0;
    part.last = rank == ranks - 1;
    struct net *net = net_create_part(options->model, rank, ranks, options->batch, problem);
    bool done = false;
    if (net != NULL) {
        part.in = net_inputs(net);
        part.out = net_outputs(net);
        done = study_open(&part.study, options, data, 0, 1, part.last, net, problem) &&
               train(&part, problem) && report_kept(&part.study.report, problem);
        study_close(&part.study);
    }
    peers_close(part.peers);
    return done;
}

int main(int argc, char **argv)
{
    return study_main(argc, argv,
                      "hooprun -n RANKS by_model [options]: the layers dealt out to ranks", run);
}
