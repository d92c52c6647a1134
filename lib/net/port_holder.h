/* Who listens at a TCP port of this machine, for the sentence that it is taken. From /proc. */
#ifndef HOOP_NET_PORT_HOLDER_H
#define HOOP_NET_PORT_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HOOP_PORT_HOLDER_BYTES 96 /* of its description */

struct hoop_port_holder {
    uid_t uid;
    pid_t pid;     /* 0: not to be seen from here */
    char name[32]; /* of the program; "" likewise */
};

/* False: nobody, as far as can be seen. */
bool hoop_port_holder(uint16_t port, struct hoop_port_holder *ret);

/* "; process 7 (python3) of user 1000 listens there"; "" where nobody is seen. */
void hoop_port_describe_holder(uint16_t port, char *ret_text, size_t bytes);

#endif
