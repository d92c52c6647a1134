/* The properties of this machine that matter for hoop, read from the kernel. Nothing is changed. */
#ifndef HOOPINFO_MACHINE_H
#define HOOPINFO_MACHINE_H

#include "hoopinfo/facts.h"

void machine_add(struct facts *facts);
/* The names of the machine and of its CPU. */
void machine_name(char *ret, size_t bytes);

#endif
