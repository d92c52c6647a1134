/* See explain.h. The ranks are real ones, all of this process: so the plan is the library's own. */
#include "hoopinfo/explain.h"
#include "hoop.h"
#include <stdio.h>
#include <stdlib.h>

#define PLAN_BYTES 4096

int explain_add(struct facts *facts, const char *collective, size_t bytes, int ranks)
{
    hoop_comm_t *comms = calloc((size_t)ranks, sizeof(hoop_comm_t));
    char plan[PLAN_BYTES];
    size_t needed = 0;
    hoop_result_t result =
        comms != NULL ? hoop_comm_init_all(comms, ranks, NULL) : HOOP_OUT_OF_MEMORY;
    const int born = result == HOOP_OK ? ranks : 0;
    if (result == HOOP_OK) {
        result = hoop_explain_json(comms[0], collective, (bytes + 3) / 4, HOOP_FLOAT, HOOP_SUM,
                                   plan, sizeof(plan), &needed);
    }
    if (result == HOOP_OK) {
        facts_add_json(facts, "plan", plan);
    } else {
        fprintf(stderr, "hoopinfo: %s\n", hoop_get_last_error(NULL));
    }
    for (int i = 0; i < born; i++) {
        (void)hoop_comm_destroy(comms[i]);
    }
    free(comms);
    return result == HOOP_OK ? 0 : 1;
}
