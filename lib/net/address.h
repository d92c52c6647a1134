/*
 * Network addresses: plain data that fits a message, and their text. Pure: no look-up, no system
 * call that leaves this process.
 */
#ifndef HOOP_NET_ADDRESS_H
#define HOOP_NET_ADDRESS_H

#include "base/error.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* Host byte order but for ip, which is as on the wire. */
struct hoop_address {
    uint16_t family; /* 0: none; 4; 6 */
    uint16_t port;   /* 0: any */
    uint32_t scope;  /* the interface's index of a link-local address, on this machine */
    uint8_t ip[16];  /* family 4: the first 4, the rest 0 */
};

/* Enough for "[ffff:...:ffff%4294967295]:65535". */
#define HOOP_ADDRESS_TEXT_BYTES 80

/* Everything in its range and the rest zero: what came over a wire may be used. */
bool hoop_address_is_valid(const struct hoop_address *address);
bool hoop_address_is_loopback(const struct hoop_address *address);
/* 0.0.0.0 or ::, which stand for every address of a machine. */
bool hoop_address_is_any(const struct hoop_address *address);
/* Scopes differ only where both have one. Family 0: never. */
bool hoop_address_same_ip(const struct hoop_address *a, const struct hoop_address *b);

/* What another machine told: an interface has its own number on each, here that of `mine`. */
static inline void hoop_address_rescope(struct hoop_address *address,
                                        const struct hoop_address *mine)
{
    address->scope = address->scope != 0 ? mine->scope : 0;
}

/* "10.0.0.1:29500", "[fe80::1%2]:29500"; without ":port" if it is 0; "nowhere" for none. */
void hoop_address_format(const struct hoop_address *address, char *ret_text, size_t bytes);

/*
 * The other way; a numeric address with or without port, a zone by number (look names up with
 * hoop_resolve()). An IPv4 address in IPv6's form becomes family 4. HOOP_INVALID_ARGUMENT quotes
 * the text.
 */
hoop_result_t hoop_address_parse(const char *text, struct hoop_address *ret);

/*
 * "host:port", "[ipv6]:port" or "ipv6" into its two halves, neither looked up. *ret_port is 0 where
 * there is none. host_bytes is the room in ret_host. HOOP_INVALID_ARGUMENT quotes text.
 */
hoop_result_t hoop_host_port_parse(const char *text, char *ret_host, size_t host_bytes,
                                   uint16_t *ret_port);

/* A first and a last port; first 0: any port. */
struct hoop_ports {
    uint16_t first, last;
};
/* "29500-29600" or "29500". HOOP_INVALID_ARGUMENT quotes text. */
hoop_result_t hoop_ports_parse(const char *text, struct hoop_ports *ret);

socklen_t hoop_address_to_sockaddr(const struct hoop_address *address,
                                   struct sockaddr_storage *ret);
/* False: of no family that hoop uses. IPv4 in IPv6's form becomes family 4. */
bool hoop_address_from_sockaddr(const struct sockaddr *from, struct hoop_address *ret);

#endif
