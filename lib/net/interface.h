/*
 * Which of this machine's addresses to use, and what a host name stands for. System calls that may
 * block (a look-up of a name): on the caller's thread, never on the service thread. Thread-safe.
 *
 * Settings: HOOP_SOCKET_IFNAME by NCCL's rules (a comma list of prefixes; "=" in front: whole
 * names; "^": all but these; "^=": all but these whole names), HOOP_SOCKET_FAMILY.
 */
#ifndef HOOP_INTERFACE_H
#define HOOP_INTERFACE_H

#include "net/address.h"

/* Pure: does a rule of HOOP_SOCKET_IFNAME let this interface be used? rule NULL: every one. */
bool hoop_interface_allowed(const char *rule, const char *name);

/*
 * An address of this machine for others to reach it by, port 0: of an interface that is up and that
 * the settings allow. Of several, bridges of containers (docker*, br-*, virbr*, ...) come late and
 * loopback last; IPv4 before IPv6, link-local addresses after both. HOOP_INVALID_USAGE: no
 * interface is allowed; the sentence lists those there are.
 */
hoop_result_t hoop_interface_choose(struct hoop_address *ret);

/*
 * The address from which this machine reaches `to`, port 0: as the kernel would route, unless
 * HOOP_SOCKET_IFNAME does not allow that interface: then the best that it allows, of the family of
 * `to`.
 */
hoop_result_t hoop_interface_towards(const struct hoop_address *to, struct hoop_address *ret);

/* Each address that hoop_interface_choose() weighs, and what it makes of it, as a static text. */
typedef void hoop_interface_fn(void *arg, const char *name, const struct hoop_address *address,
                               const char *verdict);
void hoop_interface_each(hoop_interface_fn *each, void *arg);

/* Is this one of this machine's addresses? */
bool hoop_interface_is_mine(const struct hoop_address *address);

/* How many bits all addresses of its network begin with; 0: it is none of this machine's. */
uint32_t hoop_interface_prefix(const struct hoop_address *address);

#define HOOP_RESOLVE_MAX 8
/*
 * What host stands for, without a port; a numeric address stands for itself. At most
 * HOOP_RESOLVE_MAX, in getaddrinfo()'s order, of the family that the settings allow.
 * HOOP_INVALID_USAGE names host and reason. Blocks.
 */
hoop_result_t hoop_resolve(const char *host, struct hoop_address ret[HOOP_RESOLVE_MAX],
                           uint32_t *ret_count);

/* HOOP_PORT_RANGE; {0, 0} if it is not set or not valid (that was reported). Thread-safe. */
struct hoop_ports hoop_port_range(void);

#endif
