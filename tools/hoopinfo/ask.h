/* The processes of a job that can be asked, and their answers. */
#ifndef HOOPINFO_ASK_H
#define HOOPINFO_ASK_H

#include <stddef.h>

enum process_state { PROCESS_ANSWERED, PROCESS_STOPPED, PROCESS_SILENT, PROCESS_UNREADABLE };

struct process {
    char name[108]; /* of its socket */
    int pid;        /* as it is here */
    unsigned uid;
    enum process_state state;
    char program[64];
    char *text; /* one JSON object, a report only of those that answered; NULL: none */
};

/* Sorted by pid. 0 or an errno; nothing is there then. */
int processes_ask(struct process **ret, size_t *ret_count);
void processes_free(struct process *processes, size_t count);

#endif
