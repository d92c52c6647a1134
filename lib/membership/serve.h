/* New rendezvous. Any thread but the service thread. */
#ifndef HOOP_SERVE_H
#define HOOP_SERVE_H

#include "membership/membership.h"

/*
 * hoop_get_unique_id(): a new rendezvous with a fresh secret; this process serves it from now on
 * until the comm exists. here: for ranks that are all on this machine: no port is opened.
 */
hoop_result_t hoop_rendezvous_create(bool here, hoop_unique_id_t *ret_id);

/*
 * A rendezvous for members of a comm that exists, without a new exchange of secrets: its
 * secret is made from the comm's, of what and of the bytes that all who are to meet say alike.
 * No address is in it.
 */
hoop_result_t hoop_rendezvous_derive(const struct hoop_member *member, const char *what,
                                     const void *bytes, size_t count, struct hoop_rendezvous *ret);

/* Such a one, served from now on for members and for who is given its id. */
hoop_result_t hoop_rendezvous_invite(const struct hoop_member *member, const void *bytes,
                                     size_t count, hoop_unique_id_t *ret_id);
/* Serves one until the comm exists: here, or for several machines at the place where the member's
 * other machines reach this one, which becomes its address. */
hoop_result_t hoop_rendezvous_serve(const struct hoop_member *member, bool here,
                                    struct hoop_rendezvous *rendezvous);
/* Nobody will come after all. */
void hoop_rendezvous_withdraw(struct hoop_rendezvous *rendezvous);

#endif
