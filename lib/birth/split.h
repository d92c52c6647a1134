/*
 * Splitting a comm: two exchanges over it, and then joins at a known place.
 *
 *      every member   sends color and key                     all_gather
 *      rank 0 of each new comm serves its rendezvous
 *      every member   sends whether it can go on; each new    all_gather
 *                     rank 0 also where other machines find its root
 *      every member   joins
 *
 * A growth differs only in the place: one member has an invitation, and its first word has its
 * number and address; all members can derive its secret.
 *
 * So nobody dials before the root listens, and no secret is sent: whoever knows the comm's secret
 * can derive those of its children.
 */
#ifndef HOOP_SPLIT_H
#define HOOP_SPLIT_H

#include "birth/join.h"
#include "comm/driver.h"

/* What a member sends to the others in both exchanges. */
struct hoop_split_word {
    uint32_t magic, number; /* counts the comm's splits; a growth: new size */
    int32_t color, key;
    int32_t code;                /* result of this member's part so far */
    uint32_t invitation;         /* 0: this member has none */
    struct hoop_address address; /* of the invitation; second word, new rank 0: of its root */
};

hoop_result_t hoop_split_begin(struct hoop_birth *birth);
/* The exchange of words, as a request to the parent. */
struct hoop_request hoop_split_request(const struct hoop_birth *birth);
/* After the first exchange: finds out who is in the new comm, and serves if this rank has to. A
 * failure is sent to the others, and returned by settle. */
hoop_result_t hoop_split_plan(struct hoop_birth *birth);
/* After the second exchange: finds out where to join. */
hoop_result_t hoop_split_settle(struct hoop_birth *birth);
/* Makes an invitation of this rank to comm. */
hoop_result_t hoop_split_invite(struct hoop_comm *comm, hoop_unique_id_t *ret_id);
/* Is id one of this rank's invitations? Then *birth gets its number and address. */
hoop_result_t hoop_split_invited(struct hoop_birth *birth, const hoop_unique_id_t *id);
void hoop_split_finish(struct hoop_birth *birth);

#endif
