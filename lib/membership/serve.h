/* Making new rendezvous. Any thread but the service thread. */
#ifndef HOOP_SERVE_H
#define HOOP_SERVE_H

#include "membership/membership.h"

/*
 * hoop_get_unique_id(): makes a rendezvous with a random secret, which this process serves until
 * the comm exists. here: all its ranks are on this machine, so no port is opened.
 */
hoop_result_t hoop_rendezvous_create(bool here, hoop_unique_id_t *ret_id);

/*
 * A rendezvous for members of an existing comm, without exchanging secrets: its secret derives from
 * the comm's, from what, and from bytes on which all who are to meet agree. It has no address.
 */
hoop_result_t hoop_rendezvous_derive(const struct hoop_member *member, const char *what,
                                     const void *bytes, size_t count, struct hoop_rendezvous *ret);

/* Serves a rendezvous until the comm exists, for whoever is given its id. here: as above. Finishes
 * *rendezvous. */
hoop_result_t hoop_rendezvous_serve_id(struct hoop_rendezvous *rendezvous, bool here,
                                       hoop_unique_id_t *ret_id);
/* Serves a rendezvous until the comm exists: here, or for several machines at the address where the
 * member's other machines reach this one, which becomes its address. */
hoop_result_t hoop_rendezvous_serve(const struct hoop_member *member, bool here,
                                    struct hoop_rendezvous *rendezvous);
/* Stops serving: the comm exists, or this process cannot take part after all, as whoever has come
 * is told. */
void hoop_rendezvous_withdraw(struct hoop_rendezvous *rendezvous);

#endif
