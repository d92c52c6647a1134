/*
 * Network addresses as plain data that fits into a message, and their text. Nothing here looks up a
 * name or uses the network.
 */
#ifndef HOOP_NET_ADDRESS_H
#define HOOP_NET_ADDRESS_H

#include "base/error.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* All in host byte order except ip, which is in network byte order. */
struct hoop_address {
    uint16_t family; /* 4, 6, or 0 for none */
    uint16_t port;   /* 0: any */
    uint32_t scope;  /* of a link-local address: the interface's index on this machine */
    uint8_t ip[16];  /* IPv4 uses the first 4 bytes; the rest is 0 */
};

/* Enough for "[ffff:...:ffff%4294967295]:65535". */
#define HOOP_ADDRESS_TEXT_BYTES 80

/* Checks an address from the wire: all fields in range, unused bytes zero. */
bool hoop_address_is_valid(const struct hoop_address *address);
bool hoop_address_is_loopback(const struct hoop_address *address);
/* Is it 0.0.0.0 or ::, which stand for all addresses of a machine? */
bool hoop_address_is_any(const struct hoop_address *address);
/* Scopes are compared only if both addresses have one. False if the family is 0. */
bool hoop_address_same_ip(const struct hoop_address *a, const struct hoop_address *b);

/* Adapts an address that another machine sent. Interface indices differ between machines, so a
 * scope is replaced by that of `mine`. */
static inline void hoop_address_rescope(struct hoop_address *address,
                                        const struct hoop_address *mine)
{
    address->scope = address->scope != 0 ? mine->scope : 0;
}

/* "10.0.0.1:29500", "[fe80::1%2]:29500"; no port if it is 0; "nowhere" if the family is 0. */
void hoop_address_format(const struct hoop_address *address, char *ret_text, size_t bytes);

/*
 * The reverse, for numeric addresses with or without a port; zones are numeric, too (for names see
 * hoop_resolve()). An IPv4-mapped address becomes IPv4. On error HOOP_INVALID_ARGUMENT, and the
 * sentence quotes the text.
 */
hoop_result_t hoop_address_parse(const char *text, struct hoop_address *ret);

/*
 * Splits "host:port", "[ipv6]:port", "host" or "ipv6", without look-ups. *ret_port is 0 if there is
 * no port. host_bytes is the size of ret_host. HOOP_INVALID_ARGUMENT quotes the text.
 */
hoop_result_t hoop_host_port_parse(const char *text, char *ret_host, size_t host_bytes,
                                   uint16_t *ret_port);

/* An inclusive range of ports; first 0 means any port. */
struct hoop_ports {
    uint16_t first, last;
};
/* Parses "29500-29600" or "29500". HOOP_INVALID_ARGUMENT quotes the text. */
hoop_result_t hoop_ports_parse(const char *text, struct hoop_ports *ret);

socklen_t hoop_address_to_sockaddr(const struct hoop_address *address,
                                   struct sockaddr_storage *ret);
/* Returns false if the family is neither. An IPv4-mapped address becomes IPv4. */
bool hoop_address_from_sockaddr(const struct sockaddr *from, struct hoop_address *ret);

#endif
