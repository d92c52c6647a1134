/* What of this machine decides how hoop does on it: read from the kernel, nothing is changed. */
#ifndef HOOPINFO_MACHINE_H
#define HOOPINFO_MACHINE_H

#include "hoopinfo/facts.h"

void machine_add(struct facts *facts);
/* Its name and its CPU's. */
void machine_name(char *ret, size_t bytes);

#endif
