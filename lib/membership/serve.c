/* Making a rendezvous, which this process then serves; see serve.h. */
#include "membership/serve.h"
#include "base/settings.h"
#include "net/interface.h"
#include "rendezvous/rendezvous.h"
#include "runtime/service.h"
#include "tree/leader.h"

/* Where others may come, the ranks of each machine serve themselves: this process may have none,
 * and end when all are in. */
static hoop_result_t serve_run(void *arg)
{
    struct hoop_rendezvous *rendezvous = arg;
    return rendezvous->address_count > 0 ? hoop_root_serve(rendezvous, &rendezvous->addresses[0])
                                         : hoop_leader_serve(rendezvous);
}

/*
 * The interface at which others may come, unless none can. Without a network there is no address,
 * which is fine, unless the user named an interface that is not there.
 */
static hoop_result_t serve_invite(struct hoop_rendezvous *rendezvous)
{
    struct hoop_launcher launcher;
    struct hoop_address address;
    const bool told = hoop_rendezvous_launcher(&launcher) == HOOP_OK && launcher.family != NULL;
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

hoop_result_t hoop_rendezvous_create(bool here, hoop_unique_id_t *ret_id)
{
    struct hoop_rendezvous rendezvous = {.has_secret = false};
    hoop_result_t result = hoop_service_start();
    if (result == HOOP_OK) {
        result = hoop_rendezvous_random(&rendezvous);
    }
    if (result == HOOP_OK && !here) {
        result = serve_invite(&rendezvous);
    }
    if (result == HOOP_OK) {
        result = hoop_service_call(serve_run, &rendezvous);
    }
    if (result == HOOP_OK) {
        result = hoop_rendezvous_to_id(&rendezvous, ret_id);
    }
    hoop_rendezvous_finish(&rendezvous);
    return result;
}
