/* New rendezvous. Any thread but the service thread. */
#ifndef HOOP_SERVE_H
#define HOOP_SERVE_H

#include "base/error.h"

/*
 * hoop_get_unique_id(): a new rendezvous with a fresh secret; this process serves it from now on
 * until the comm exists. here: for ranks that are all on this machine: no port is opened.
 */
hoop_result_t hoop_rendezvous_create(bool here, hoop_unique_id_t *ret_id);

#endif
