/*
 * Splitting a comm: two exchanges over it, and then joins that know where to meet.
 *
 *      every member   tells color and key                     all_gather
 *      rank 0 of each new comm serves its rendezvous
 *      every member   tells whether it can go on; rank 0s,    all_gather
 *                     where ranks of other machines find them
 *      every member   joins
 *
 * A growth is the same but for where: one member has an invitation, whose number and address it
 * tells in its first word; its secret all can make.
 *
 * Nobody is looked for before he is there, and no secret is told: who knows the comm's can make
 * those of its children.
 */
#ifndef HOOP_SPLIT_H
#define HOOP_SPLIT_H

#include "birth/join.h"
#include "comm/driver.h"

/* What a member tells the others, twice. */
struct hoop_split_word {
    uint32_t magic, number; /* the comm's how-manieth split, or to how many ranks it grows */
    int32_t color, key;
    int32_t code;                /* of this member's part so far */
    uint32_t invitation;         /* 0: I have none */
    struct hoop_address address; /* second word, a new rank 0: of its root; of my invitation */
};

hoop_result_t hoop_split_begin(struct hoop_birth *birth);
/* The exchange of words, as a request to the parent. */
struct hoop_request hoop_split_request(const struct hoop_birth *birth);
/* The first is over: who is with me, and am I to serve? What fails here the others are told, and
 * is settle's to return. */
hoop_result_t hoop_split_plan(struct hoop_birth *birth);
/* The second is over: where to join. */
hoop_result_t hoop_split_settle(struct hoop_birth *birth);
/* Makes an invitation of this rank to comm. */
hoop_result_t hoop_split_invite(struct hoop_comm *comm, hoop_unique_id_t *ret_id);
/* Is it one of those? Its number and address go to *birth. */
hoop_result_t hoop_split_invited(struct hoop_birth *birth, const hoop_unique_id_t *id);
void hoop_split_finish(struct hoop_birth *birth);

#endif
