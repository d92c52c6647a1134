/*
 * Plans: which algorithm an operation uses, with which parameters. The cost model (cost/cost.h)
 * chooses from a fixed list of candidates, the same on every rank and in every run; only between
 * cma and slab, which give the same bits, what was learned decides (cost/learned.h). Every input of
 * the choice is known to be equal on all ranks: the signature, the settings agreed at the join, the
 * announcements of all ranks.
 */
#ifndef HOOP_PLAN_H
#define HOOP_PLAN_H

#include "algo/step.h"
#include "cost/copies.h"
#include "cost/cost.h"
#include "cost/learned.h"
#include "membership/membership.h"
#include "transports/signature.h"

/* What is known of an operation before the choice: a plan without an algorithm. It is filled in
 * place and not returned, since this happens while an announcement's stores are under way: copying
 * a struct in larger pieces than it was written in would wait for all of them. */
void hoop_plan_begin(struct hoop_plan *plan, const struct hoop_signature *signature, uint32_t me,
                     uint32_t n, bool in_place);

/* Where all ranks' buffers lie: in host memory, on devices that reach each other, or mixed. */
enum hoop_reach_place { HOOP_REACH_HOST, HOOP_REACH_DEVICE, HOOP_REACH_MIXED };

/* How all ranks' buffers can be reached, according to the announcements. */
struct hoop_reach {
    enum hoop_reach_place place;
    bool one_acts;   /* all buffers are on devices, where one rank can reach them all, and acts */
    bool launched;   /* some ranks have launched their calls there */
    uint32_t actor;  /* that rank */
    bool mapped;     /* every rank's buffers can be mapped by all that access them */
    bool gives;      /* a gather: so can the root's output */
    bool unreadable; /* some rank's plain memory cannot be read by others: no cma */
    uint8_t choice;  /* enum hoop_choice: cma or slab, if both are possible */
    uint8_t grant;   /* enum hoop_grant, for the next calls */
    uint64_t head_bytes; /* most bytes before the first whole page of an output that peers write */
    uint64_t tail_bytes; /* and after its last */
};

/* The largest block, in bytes, whose data travel with the announcement (oneshot). This choice is
 * made before anything is known of the others. */
uint64_t hoop_plan_oneshot_most(const struct hoop_agreement *agreed, uint32_t n,
                                enum hoop_collective collective);

/* The same for calls that earlier ones granted (cost/learned.h): 0 without a root, or where ranks
 * outnumber CPUs. */
uint64_t hoop_plan_granted_most(const struct hoop_agreement *agreed, uint32_t n,
                                enum hoop_collective collective);

/* May this collective run on the device where its buffers are? The same answer on all ranks. */
bool hoop_plan_may_be_direct(const struct hoop_agreement *agreed, enum hoop_collective collective);

/* Completes the plan of an operation whose data travel with the announcement. */
void hoop_plan_oneshot(struct hoop_plan *plan);

/* May memory that is not mapped be read from its process, if that works? The same on all ranks. */
bool hoop_plan_may_read(const struct hoop_agreement *agreed, enum hoop_collective collective);

/* Which of cma and slab the learned times favour, for a plan that was begun, and whether oneshot
 * for the next ones, which is not asked if !grants. */
struct hoop_learned_say hoop_plan_learned(const struct hoop_agreement *agreed,
                                          const struct hoop_learned *learned,
                                          const struct hoop_plan *plan, bool grants);

/* Completes a plan that was begun, once all announcements are known. */
void hoop_plan_choose(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                      struct hoop_plan *plan);

/* Does this algorithm send over links? */
bool hoop_plan_is_over_links(enum hoop_algo algo);

/* Do its steps access the others' buffers? */
bool hoop_plan_reaches(enum hoop_algo algo);

/* Completes the plan of an operation over links, where the first chunk is the announcement. With
 * count 0 it is a barrier, whatever the collective. grid: NULL where there is none. */
void hoop_plan_links(const struct hoop_agreement *agreed, const struct hoop_grid *grid,
                     struct hoop_plan *plan);

/* How ranks are spread over machines; to be freed. *ret NULL: there is only one machine, or one
 * rank on each, or machines have neither equally many ranks nor ranks with consecutive numbers. */
hoop_result_t hoop_plan_grid_create(const struct hoop_peer *peers, uint32_t n,
                                    struct hoop_grid **ret);

/* The time in ns that the model predicts for every algorithm that could be chosen for a plan that
 * was begun, among those over links or over memory; 0 for the others. */
void hoop_plan_costs(const struct hoop_agreement *agreed, bool over_links,
                     const struct hoop_plan *plan, uint64_t ret_ns[HOOP_ALGO_COUNT]);

/* The same for concurrent sends and receives, of at most so many bytes in one direction. */
uint64_t hoop_plan_transfer_cost(const struct hoop_agreement *agreed, bool over_links,
                                 uint64_t bytes);

/* The size from which a send is read by its receiver, among ranks of several processes of one
 * machine; UINT64_MAX: none is. */
uint64_t hoop_plan_read_least(const struct hoop_agreement *agreed);

#endif
