/* Splitting a comm (see split.h). */
#include "birth/split.h"

#include "membership/serve.h"
#include <stdlib.h>
#include <string.h>

#define SPLIT_MAGIC 0x74696c70u /* "plit" */

struct hoop_split {
    struct hoop_split_word mine;
    uint32_t first;                 /* rank in the parent of the new comm's rank 0 */
    bool serves;                    /* mine is that */
    struct hoop_split_word words[]; /* [n] of the parent */
};

hoop_result_t hoop_split_begin(struct hoop_birth *birth)
{
    struct hoop_comm *parent = birth->parent;
    birth->split = calloc(1, sizeof(*birth->split) + parent->n * sizeof(struct hoop_split_word));
    if (birth->split == NULL) {
        return hoop_error(HOOP_OUT_OF_MEMORY, "no memory to split a communicator of %u ranks",
                          parent->n);
    }
    hoop_comm_pin(parent, true);
    birth->split->mine = (struct hoop_split_word){
        .magic = SPLIT_MAGIC, .number = ++parent->splits, .color = birth->color, .key = birth->key};
    return HOOP_OK;
}

void hoop_split_finish(struct hoop_birth *birth)
{
    if (birth->split != NULL && birth->split->serves) {
        hoop_rendezvous_withdraw(&birth->options.rendezvous);
    }
    if (birth->split != NULL) {
        hoop_comm_pin(birth->parent, false);
    }
    free(birth->split);
    birth->split = NULL;
    hoop_secret_wipe(&birth->options.rendezvous.secret, sizeof(struct hoop_secret));
}

struct hoop_request hoop_split_request(const struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    return (struct hoop_request){
        .signature = {.collective = HOOP_COLL_ALL_GATHER,
                      .type = HOOP_UINT8,
                      .root = -1,
                      .count = sizeof(struct hoop_split_word)},
        .in = &split->mine,
        .out = split->words,
    };
}

/* Does rank a of the parent come before b in the new comm? */
static bool split_precedes(const struct hoop_split_word *words, uint32_t a, uint32_t b)
{
    return words[a].key != words[b].key ? words[a].key < words[b].key : a < b;
}

static hoop_result_t split_check(const struct hoop_birth *birth)
{
    const struct hoop_split *split = birth->split;
    for (uint32_t rank = 0; rank < birth->parent->n; rank++) {
        const struct hoop_split_word *word = &split->words[rank];
        if (word->magic != SPLIT_MAGIC || word->number != split->mine.number) {
            return hoop_error(HOOP_MISMATCH,
                              "rank %u called hoop_comm_split(), rank %u something else",
                              birth->parent->rank, rank);
        }
    }
    return HOOP_OK;
}

/* Those of my color: how many, which am I, who is the first, and how many are on my machine? */
static void split_count(struct hoop_birth *birth)
{
    const struct hoop_comm *parent = birth->parent;
    const struct hoop_peer *peers = parent->board.peers;
    struct hoop_split *split = birth->split;
    struct hoop_comm_options *options = &birth->options;
    const uint32_t me = parent->rank;
    options->n = options->rank = options->rendezvous.local_n = 0;
    split->first = me;
    for (uint32_t rank = 0; rank < parent->n; rank++) {
        if (split->words[rank].color == birth->color) {
            options->n++;
            options->rank += split_precedes(split->words, rank, me) ? 1 : 0;
            options->rendezvous.local_n += peers[rank].machine == peers[me].machine ? 1 : 0;
            split->first = split_precedes(split->words, rank, split->first) ? rank : split->first;
        }
    }
}

static bool split_is_here(const struct hoop_birth *birth)
{
    return birth->options.rendezvous.local_n == birth->options.n;
}

static hoop_result_t split_serve(struct hoop_birth *birth)
{
    struct hoop_rendezvous *rendezvous = &birth->options.rendezvous;
    struct hoop_split *split = birth->split;
    split->serves = true;
    const hoop_result_t result =
        split_is_here(birth) ? hoop_rendezvous_serve(rendezvous)
                             : hoop_rendezvous_serve_root(birth->parent->member, rendezvous);
    split->mine.address = rendezvous->addresses[0];
    return result;
}

hoop_result_t hoop_split_plan(struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    hoop_result_t result = split_check(birth);
    if (result == HOOP_OK && birth->color >= 0) {
        const uint32_t what[2] = {split->mine.number, (uint32_t)birth->color};
        result = hoop_rendezvous_derive(birth->parent->member, "split", what, sizeof(what),
                                        &birth->options.rendezvous);
        if (result == HOOP_OK) {
            split_count(birth);
        }
        if (result == HOOP_OK && split->first == birth->parent->rank) {
            result = split_serve(birth);
        }
    }
    split->mine.code = result;
    return result;
}

hoop_result_t hoop_split_settle(struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    struct hoop_rendezvous *rendezvous = &birth->options.rendezvous;
    hoop_result_t result = split_check(birth);
    for (uint32_t rank = 0; rank < birth->parent->n && result == HOOP_OK; rank++) {
        const struct hoop_split_word *word = &split->words[rank];
        if (word->color == birth->color && word->code != HOOP_OK) {
            const bool mine = rank == birth->parent->rank;
            result =
                mine ? (hoop_result_t)word->code
                     : hoop_error(HOOP_REMOTE_ERROR, "rank %u cannot take part in the split: %s",
                                  rank, hoop_get_error_string((hoop_result_t)word->code));
        }
    }
    if (result == HOOP_OK && birth->color >= 0 && !split_is_here(birth)) {
        rendezvous->address_count = 1;
        rendezvous->addresses[0] = split->words[split->first].address;
        result = hoop_rendezvous_serve(rendezvous);
    }
    return result;
}
