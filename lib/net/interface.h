/*
 * Which of this machine's addresses to use, and look-ups of host names. Only look-ups may block:
 * never on the service thread. Thread-safe.
 *
 * Settings: HOOP_SOCKET_FAMILY, and HOOP_SOCKET_IFNAME with NCCL's rules: a comma list of prefixes,
 * or of whole names after "="; "^" or "^=" in front means all but these.
 */
#ifndef HOOP_INTERFACE_H
#define HOOP_INTERFACE_H

#include "net/address.h"

/* Does a rule of HOOP_SOCKET_IFNAME allow this interface? A NULL rule allows all. */
bool hoop_interface_allowed(const char *rule, const char *name);

/*
 * The address at which other machines should reach this one, with port 0, on an interface that is
 * up and that the settings allow. Bridges of containers (docker*, br-*, virbr*, ...) are used only
 * if there is nothing else, and loopback last; IPv4 is preferred to IPv6, and both to link-local
 * addresses. HOOP_INVALID_USAGE if no interface is allowed; the sentence lists those that exist.
 */
hoop_result_t hoop_interface_choose(struct hoop_address *ret);

/*
 * The local address from which this machine reaches `to`, port 0: the one that the kernel's routing
 * picks, or if HOOP_SOCKET_IFNAME does not allow that interface the best allowed one of its family.
 */
hoop_result_t hoop_interface_towards(const struct hoop_address *to, struct hoop_address *ret);

/* Calls each() for every address that hoop_interface_choose() considers; verdict is static. */
typedef void hoop_interface_fn(void *arg, const char *name, const struct hoop_address *address,
                               const char *verdict);
void hoop_interface_each(hoop_interface_fn *each, void *arg);

/* Is it an address of this machine? Fails if that cannot be found out. */
hoop_result_t hoop_interface_is_mine(const struct hoop_address *address, bool *ret);

/* The prefix length of the address's network; 0 if it is not an address of this machine. */
uint32_t hoop_interface_prefix(const struct hoop_address *address);

#define HOOP_RESOLVE_MAX 8
/*
 * Resolves a host name or a numeric address to at most HOOP_RESOLVE_MAX addresses without ports, in
 * getaddrinfo()'s order, of the families that the settings allow. HOOP_INVALID_USAGE names the host
 * and the reason. Blocks.
 */
hoop_result_t hoop_resolve(const char *host, struct hoop_address ret[HOOP_RESOLVE_MAX],
                           uint32_t *ret_count);

/* HOOP_PORT_RANGE; {0, 0} if it is unset, or invalid, which is logged once. Thread-safe. */
struct hoop_ports hoop_port_range(void);

#endif
