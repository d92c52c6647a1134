/* Where in a program an address is, for sentences about who called what. */
#ifndef HOOP_SITE_H
#define HOOP_SITE_H

#include <stddef.h>
#include <stdint.h>

#define HOOP_SITE_TEXT_BYTES 80

/*
 * "train_step+0x2a (prog+0x11f3)": the function, if the file has a symbol of it, and what addr2line
 * takes; of a return address, so the instruction before it. pid: a process of this machine, which
 * may be another. What cannot be found out is left out, down to the plain number. Reads /proc and
 * the program's file: slow, for failures.
 */
void hoop_site_describe(int pid, uint64_t address, char *buf, size_t bytes);

#endif
