/* Where in a program a code address lies, for messages about who called what. */
#ifndef HOOP_SITE_H
#define HOOP_SITE_H

#include <stddef.h>
#include <stdint.h>

#define HOOP_SITE_TEXT_BYTES 80

/*
 * Describes a return address, by the instruction before it: "train_step+0x2a (prog+0x11f3)" is the
 * function, if the file has a symbol for it, and the place as addr2line takes it. pid: a process of
 * this machine, not necessarily this one. What cannot be found out is left out, down to the plain
 * number. Reads /proc and the program's file: slow, meant for failures.
 */
void hoop_site_describe(int pid, uint64_t address, char *buf, size_t bytes);

#endif
