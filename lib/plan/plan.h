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

/* Where all ranks' buffers lie: in host memory, on one device, or not all in the same place. */
enum hoop_reach_place { HOOP_REACH_HOST, HOOP_REACH_DEVICE, HOOP_REACH_MIXED };

/* How all ranks' buffers can be reached, from the announcements. */
struct hoop_reach {
    enum hoop_reach_place place;
    bool one_device;     /* all ranks' are on the same */
    bool launched;       /* some ranks' calls are launched there */
    uint32_t folder;     /* who folds where one does */
    bool mapped;         /* every rank's buffers can be mapped by whoever touches them */
    bool unreadable;     /* a rank's plain memory can be read by nobody else: no cma */
    uint8_t choice;      /* enum hoop_choice: which of cma and slab, if either can be had */
    uint64_t head_bytes; /* the most that lies before the first whole page of an output that others
                            write to */
    uint64_t tail_bytes; /* and after the last */
};

/*
 * The largest block, in bytes, whose data travel with the announcement (oneshot). That choice is
 * made before anything is known of the others.
 */
uint64_t hoop_plan_oneshot_most(const struct hoop_agreement *agreed, uint32_t n,
                                enum hoop_collective collective);

/* May this one run where its buffers are, on a device? All know it alike. */
bool hoop_plan_may_be_direct(const struct hoop_agreement *agreed, enum hoop_collective collective);

/* Completes the plan of one whose data travel with the announcement. */
void hoop_plan_oneshot(struct hoop_plan *plan);

/* May what is not mapped be read from its process, if it can be? All know it alike. */
bool hoop_plan_may_read(const struct hoop_agreement *agreed, enum hoop_collective collective);

/* The choice that what was learned makes, of a plan that was begun. */
enum hoop_choice hoop_plan_learned(const struct hoop_agreement *agreed,
                                   const struct hoop_learned *learned,
                                   const struct hoop_plan *plan);

/* Completes a plan that was begun, the announcements being known. */
void hoop_plan_choose(const struct hoop_agreement *agreed, const struct hoop_reach *reach,
                      struct hoop_plan *plan);

/* Does this algorithm send over links? */
bool hoop_plan_is_over_links(enum hoop_algo algo);

/* Do its steps touch the others' buffers? */
bool hoop_plan_reaches(enum hoop_algo algo);

/*
 * Completes the plan of an operation over links, without announcements: they are in the first
 * chunk. With count 0 it is a barrier, whatever the collective. grid: NULL where there is none.
 */
void hoop_plan_links(const struct hoop_agreement *agreed, const struct hoop_grid *grid,
                     struct hoop_plan *plan);

/* How ranks are spread over machines. *ret NULL: there is one, or one rank on each, or they have
 * neither equally many nor such as follow each other. To be freed. */
hoop_result_t hoop_plan_grid_create(const struct hoop_peer *peers, uint32_t n,
                                    struct hoop_grid **ret);

/*
 * What the model says of every algorithm that could be chosen for a plan that was begun, among
 * those over links or over memory: ns, 0 for the others.
 */
void hoop_plan_costs(const struct hoop_agreement *agreed, bool over_links,
                     const struct hoop_plan *plan, uint64_t ret_ns[HOOP_ALGO_COUNT]);

/* The same of sends and receives that run at once, of at most so many bytes one way. */
uint64_t hoop_plan_transfer_cost(const struct hoop_agreement *agreed, bool over_links,
                                 uint64_t bytes);

/* From how many bytes on a send is read by its receiver, among ranks of several processes of one
 * machine; UINT64_MAX: it never is. */
uint64_t hoop_plan_read_least(const struct hoop_agreement *agreed);

#endif
