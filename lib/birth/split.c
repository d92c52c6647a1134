/* Splitting a comm; see split.h. */
#include "birth/split.h"

#include "membership/membership.h"
#include "membership/serve.h"
#include "runtime/process.h"
#include <stdlib.h>
#include <string.h>

#define SPLIT_MAGIC 0x74696c70u /* "plit" */
#define SPLIT_GROW 0x776f7267u  /* "grow" */

struct hoop_split {
    struct hoop_split_word mine;
    uint32_t first;                 /* the new comm's rank 0, as a rank of the parent */
    bool serves;                    /* this rank serves the rendezvous */
    struct hoop_failure why;        /* explains mine.code */
    struct hoop_split_word words[]; /* [n of the parent] */
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
    birth->split->mine =
        (struct hoop_split_word){.magic = birth->grown > 0 ? SPLIT_GROW : SPLIT_MAGIC,
                                 .number = birth->grown > 0 ? birth->grown : ++parent->splits,
                                 .color = birth->color,
                                 .key = birth->key,
                                 .invitation = birth->invitation,
                                 .address = birth->address};
    return HOOP_OK;
}

void hoop_split_finish(struct hoop_birth *birth)
{
    if (birth->split != NULL && birth->split->serves) {
        hoop_rendezvous_withdraw(&birth->options.join.rendezvous);
    }
    if (birth->split != NULL) {
        hoop_comm_pin(birth->parent, false);
    }
    free(birth->split);
    birth->split = NULL;
    hoop_secret_wipe(&birth->options.join.rendezvous.secret, sizeof(struct hoop_secret));
}

struct hoop_request hoop_split_request(const struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    return (struct hoop_request){
        .signature = {.collective = HOOP_COLL_ALL_GATHER,
                      .type = HOOP_UINT8,
                      .op = HOOP_ALL_GATHER_OF_BIRTH,
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

static const char *split_function(uint32_t magic)
{
    return magic == SPLIT_MAGIC  ? "hoop_comm_split"
           : magic == SPLIT_GROW ? "hoop_comm_grow"
                                 : "hoop_all_gather";
}

static hoop_result_t split_check(const struct hoop_birth *birth)
{
    const struct hoop_split *split = birth->split;
    const char *function = split_function(split->mine.magic);
    for (uint32_t rank = 0; rank < birth->parent->n; rank++) {
        const struct hoop_split_word *word = &split->words[rank];
        if (word->magic != split->mine.magic) { /* a program's all_gather would fit, too */
            return hoop_error(HOOP_MISMATCH, "rank %u called %s(), rank %u %s()",
                              birth->parent->rank, function, rank, split_function(word->magic));
        }
        if (word->number != split->mine.number) {
            return hoop_error(HOOP_MISMATCH, "rank %u called %s() for %u, rank %u for %u",
                              birth->parent->rank, function, split->mine.number, rank,
                              word->number);
        }
    }
    return HOOP_OK;
}

/* Counts the ranks of this color, on all machines and on this one. Finds this rank's place among
 * them, and their first rank. */
static void split_count(struct hoop_birth *birth)
{
    const struct hoop_comm *parent = birth->parent;
    const struct hoop_peer *peers = parent->board.peers;
    struct hoop_split *split = birth->split;
    struct hoop_comm_options *options = &birth->options;
    const uint32_t me = parent->rank;
    options->join.n = options->join.rank = options->join.rendezvous.local_n = 0;
    split->first = me;
    for (uint32_t rank = 0; rank < parent->n; rank++) {
        if (split->words[rank].color == birth->color) {
            options->join.n++;
            options->join.rank += split_precedes(split->words, rank, me) ? 1 : 0;
            options->join.rendezvous.local_n += peers[rank].machine == peers[me].machine ? 1 : 0;
            split->first = split_precedes(split->words, rank, split->first) ? rank : split->first;
        }
    }
}

static bool split_is_here(const struct hoop_birth *birth)
{
    return birth->options.join.rendezvous.local_n == birth->options.join.n;
}

static hoop_result_t split_serve(struct hoop_birth *birth)
{
    struct hoop_rendezvous *rendezvous = &birth->options.join.rendezvous;
    struct hoop_split *split = birth->split;
    split->serves = true;
    const hoop_result_t result =
        hoop_rendezvous_serve(birth->parent->member, split_is_here(birth), rendezvous);
    split->mine.address = rendezvous->addresses[0];
    return result;
}

/* ---- Invitations -------------------------------------------------------------------------------
 */

static hoop_result_t split_invitation(const struct hoop_comm *comm, uint32_t rank, uint32_t number,
                                      struct hoop_rendezvous *ret)
{
    const uint32_t what[2] = {rank, number};
    return hoop_rendezvous_derive(comm->member, "grow", what, sizeof(what), ret);
}

hoop_result_t hoop_split_invite(struct hoop_comm *comm, hoop_unique_id_t *ret_id)
{
    struct hoop_rendezvous rendezvous;
    hoop_comm_pin(comm, true);
    hoop_result_t result = hoop_comm_refuse(comm);
    if (result == HOOP_OK) {
        const uint32_t number = atomic_fetch_add(&comm->invitations, 1) + 1;
        result = split_invitation(comm, comm->rank, number, &rendezvous);
    }
    if (result == HOOP_OK) {
        result = hoop_rendezvous_serve_id(&rendezvous, false, ret_id);
    }
    hoop_comm_pin(comm, false);
    return result;
}

hoop_result_t hoop_split_invited(struct hoop_birth *birth, const hoop_unique_id_t *id)
{
    struct hoop_comm *comm = birth->parent;
    struct hoop_rendezvous given, mine;
    hoop_result_t result = hoop_rendezvous_from_id(id, &given);
    if (result != HOOP_OK) {
        return result;
    }
    hoop_comm_pin(comm, true);
    const uint32_t made = hoop_comm_state(comm, NULL) == HOOP_OK ? comm->invitations : 0;
    for (uint32_t number = made; number > 0 && birth->invitation == 0; number--) {
        if (split_invitation(comm, comm->rank, number, &mine) == HOOP_OK &&
            strcmp(mine.name, given.name) == 0) {
            birth->invitation = number;
            birth->address = given.addresses[0];
        }
        hoop_rendezvous_finish(&mine);
    }
    hoop_comm_pin(comm, false);
    hoop_rendezvous_finish(&given);
    return birth->invitation != 0
               ? HOOP_OK
               : hoop_error(HOOP_INVALID_ARGUMENT,
                            "hoop_comm_grow: expected an id that this rank got from "
                            "hoop_comm_get_unique_id() of this communicator");
}

/* Finds the one rank that has the invitation. */
static hoop_result_t split_plan_growth(struct hoop_birth *birth)
{
    const struct hoop_comm *parent = birth->parent;
    struct hoop_split *split = birth->split;
    struct hoop_rendezvous *rendezvous = &birth->options.join.rendezvous;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < parent->n; rank++) {
        count += split->words[rank].invitation != 0 ? 1 : 0;
        split->first = split->words[rank].invitation != 0 ? rank : split->first;
    }
    if (count != 1) {
        return hoop_error(HOOP_INVALID_ARGUMENT, "hoop_comm_grow: %u ranks gave an id, expected 1",
                          count);
    }
    const struct hoop_split_word *word = &split->words[split->first];
    const hoop_result_t result =
        split_invitation(parent, split->first, word->invitation, rendezvous);
    rendezvous->address_count = word->address.family != 0 ? 1 : 0;
    rendezvous->addresses[0] = word->address;
    birth->options.join.n = birth->grown;
    birth->options.join.rank = parent->rank;
    return result;
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

/*
 * Checks that this process can open the descriptors of the join: for itself, for its way to the
 * leader, and for every other rank of the machine; whoever serves also needs some for all that
 * come. If they were missing only in the join, the others would wait for this rank.
 */
static hoop_result_t split_check_descriptors(const struct hoop_birth *birth)
{
    const uint32_t local_n = birth->options.join.rendezvous.local_n;
    const uint32_t here = local_n > 0 ? local_n : hoop_member_roster(birth->parent->member)->here;
    const bool serves = birth->split->first == birth->parent->rank;
    return hoop_process_check_descriptors(serves ? 3 * here + 2 : here + 2,
                                          "a rank of the new communicator");
}

hoop_result_t hoop_split_plan(struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    hoop_result_t result = split_check(birth);
    if (result == HOOP_OK && birth->grown > 0) {
        result = split_plan_growth(birth);
    } else if (result == HOOP_OK && birth->color >= 0) {
        const uint32_t what[2] = {split->mine.number, (uint32_t)birth->color};
        result = hoop_rendezvous_derive(birth->parent->member, "split", what, sizeof(what),
                                        &birth->options.join.rendezvous);
        if (result == HOOP_OK) {
            split_count(birth);
        }
        if (result == HOOP_OK && split->first == birth->parent->rank) {
            result = split_serve(birth);
        }
    }
    if (result == HOOP_OK && birth->comm != NULL) {
        result = split_check_descriptors(birth);
    }
    if (result != HOOP_OK) {
        (void)hoop_failure_take(&split->why, result, -1);
    }
    split->mine.code = result;
    return HOOP_OK;
}

hoop_result_t hoop_split_settle(struct hoop_birth *birth)
{
    struct hoop_split *split = birth->split;
    struct hoop_rendezvous *rendezvous = &birth->options.join.rendezvous;
    hoop_result_t result = split_check(birth);
    if (split->mine.code != HOOP_OK) {
        result = hoop_error((hoop_result_t)split->mine.code, "%s", split->why.text);
    }
    for (uint32_t rank = 0; rank < birth->parent->n && result == HOOP_OK; rank++) {
        const struct hoop_split_word *word = &split->words[rank];
        if (word->color == birth->color && word->code != HOOP_OK) {
            result = hoop_error(HOOP_REMOTE_ERROR, "rank %u cannot take part: %s", rank,
                                hoop_get_error_string((hoop_result_t)word->code));
        }
    }
    if (result == HOOP_OK && birth->grown == 0 && birth->color >= 0 && !split_is_here(birth)) {
        rendezvous->address_count = 1;
        rendezvous->addresses[0] = split->words[split->first].address;
    }
    return result;
}
