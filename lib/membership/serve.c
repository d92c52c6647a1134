/* Makes a rendezvous that this process serves; see serve.h. */
#include "membership/serve.h"
#include "base/settings.h"
#include "membership/membership_inside.h"
#include "net/interface.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"
#include "tree/leader.h"
#include <string.h>

/* If ranks may be on several machines, the ranks of each machine serve as its leader. This process
 * may have no rank, and end when all are in. */
static hoop_result_t serve_run(void *arg)
{
    return hoop_leader_begin(arg);
}

/*
 * Sets the address for other machines, unless none can come. Without a network there is no address,
 * which is an error only if the user named an interface that does not exist.
 */
static hoop_result_t serve_invite(struct hoop_rendezvous *rendezvous)
{
    struct hoop_launcher launcher;
    struct hoop_address address;
    const bool told = hoop_launcher_read(&launcher) == HOOP_OK && launcher.family != NULL;
    if (told && hoop_rendezvous_spread(&launcher) == HOOP_SPREAD_ONE) {
        return HOOP_OK;
    }
    const hoop_result_t result = hoop_interface_choose(&address);
    if (result != HOOP_OK) {
        return hoop_settings()->socket_ifname != NULL ? result : HOOP_OK;
    }
    const bool alone = hoop_address_is_loopback(&address) && hoop_settings()->host_id == NULL;
    if (!alone) {
        rendezvous->address_count = 1;
        rendezvous->addresses[0] = address;
    }
    return HOOP_OK;
}

hoop_result_t hoop_rendezvous_serve_id(struct hoop_rendezvous *rendezvous, bool here,
                                       hoop_unique_id_t *ret_id)
{
    hoop_result_t result = here ? HOOP_OK : serve_invite(rendezvous);
    if (result == HOOP_OK) {
        result = hoop_service_call(serve_run, rendezvous);
    }
    if (result == HOOP_OK) {
        result = hoop_rendezvous_to_id(rendezvous, ret_id);
    }
    hoop_rendezvous_finish(rendezvous);
    return result;
}

hoop_result_t hoop_rendezvous_create(bool here, hoop_unique_id_t *ret_id)
{
    struct hoop_rendezvous rendezvous;
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = hoop_rendezvous_random(&rendezvous);
    }
    return result == HOOP_OK ? hoop_rendezvous_serve_id(&rendezvous, here, ret_id) : result;
}

/* ---- From a comm that exists --------------------------------------------------------------- */

hoop_result_t hoop_rendezvous_derive(const struct hoop_member *member, const char *what,
                                     const void *bytes, size_t count, struct hoop_rendezvous *ret)
{
    /* includes the id, since comms of a job share its secret */
    const uint64_t comm = member->roster.comm_id;
    struct hoop_secret own, child;
    _Static_assert(sizeof(own.bytes) == HOOP_MAC_BYTES, "a MAC is a secret");
    hoop_result_t result =
        hoop_hmac(&member->secret, "hoop comm", &comm, sizeof(comm), NULL, 0, own.bytes);
    if (result == HOOP_OK) {
        result = hoop_hmac(&own, "hoop child", what, strlen(what) + 1, bytes, count, child.bytes);
    }
    if (result == HOOP_OK) {
        result = hoop_rendezvous_by_secret(&child, ret);
    }
    hoop_secret_wipe(&own, sizeof(own));
    hoop_secret_wipe(&child, sizeof(child));
    return result;
}

hoop_result_t hoop_rendezvous_serve(const struct hoop_member *member, bool here,
                                    struct hoop_rendezvous *rendezvous)
{
    if (!here) {
        rendezvous->address_count = 1;
        rendezvous->addresses[0] = member->address;
        rendezvous->addresses[0].port = 0;
    }
    return hoop_service_call(serve_run, rendezvous);
}

static void serve_withdraw(void *arg)
{
    const struct hoop_rendezvous *rendezvous = arg;
    hoop_leader_retire(rendezvous->name, false);
}

void hoop_rendezvous_withdraw(struct hoop_rendezvous *rendezvous)
{
    hoop_service_run(serve_withdraw, rendezvous);
}
