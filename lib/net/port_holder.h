/* Who listens at a TCP port of this machine, from /proc: for the error that the port is taken. */
#ifndef HOOP_NET_PORT_HOLDER_H
#define HOOP_NET_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HOOP_PORT_HOLDER_BYTES 96 /* of a description */

struct hoop_port_holder {
    uid_t uid;
    pid_t pid;     /* 0 if this process may not see it */
    char name[32]; /* the program's name; "" if pid is 0 */
};

/* Returns false if nobody was found. */
bool hoop_port_holder(uint16_t port, struct hoop_port_holder *ret);

/* Writes "; process 7 (python3) of user 1000 listens there", or "" if nobody was found. */
void hoop_port_describe_holder(uint16_t port, char *ret_text, size_t bytes);

#endif
