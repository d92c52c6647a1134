/* The hoop processes of this machine that this user may ask, and their answers. */
#ifndef HOOPINFO_ASK_H
#define HOOPINFO_ASK_H

#include <stddef.h>

enum process_state { PROCESS_ANSWERED, PROCESS_STOPPED, PROCESS_SILENT, PROCESS_UNREADABLE };

struct process {
    char name[108]; /* of its socket */
    int pid;        /* in this pid namespace */
    unsigned uid;
    enum process_state state;
    char program[64];
    char *text; /* JSON object, a report only if PROCESS_ANSWERED; or NULL */
};

/* Sorted by pid. Returns 0 or an errno; *ret is empty then. */
int processes_ask(struct process **ret, size_t *ret_count);
void processes_free(struct process *processes, size_t count);

#endif
