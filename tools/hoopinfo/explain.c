/* See explain.h. It makes real ranks in this process, so that the plan is the library's own. */
#include "hoopinfo/explain.h"
#include "hoop.h"
#include <stdio.h>
#include <stdlib.h>

/* The caller frees *ret; NULL: no plan. Its size varies, as it includes a path. */
static hoop_result_t plan_get(hoop_comm_t comm, const char *collective, size_t count, char **ret)
{
    size_t needed = 0;
    hoop_result_t result =
        hoop_explain_json(comm, collective, count, HOOP_FLOAT, HOOP_SUM, NULL, 0, &needed);
    *ret = needed > 0 ? malloc(needed) : NULL;
    if (*ret != NULL) {
        result =
            hoop_explain_json(comm, collective, count, HOOP_FLOAT, HOOP_SUM, *ret, needed, &needed);
    } else if (needed > 0) {
        fputs("hoopinfo: no memory for the plan\n", stderr);
    }
    return result;
}

int explain_add(struct facts *facts, const char *collective, size_t bytes, int ranks)
{
    hoop_comm_t *comms = calloc((size_t)ranks, sizeof(hoop_comm_t));
    char *plan = NULL;
    hoop_result_t result =
        comms != NULL ? hoop_comm_init_all(comms, ranks, NULL) : HOOP_OUT_OF_MEMORY;
    const int born = result == HOOP_OK ? ranks : 0;
    if (result == HOOP_OK) {
        result = plan_get(comms[0], collective, (bytes + 3) / 4, &plan);
    }
    if (result == HOOP_OK && plan != NULL) {
        facts_add_json(facts, "plan", plan);
    } else {
        fprintf(stderr, "hoopinfo: %s\n", hoop_get_last_error(NULL));
    }
    for (int i = 0; i < born; i++) {
        (void)hoop_comm_destroy(comms[i]);
    }
    free(plan);
    free(comms);
    return result == HOOP_OK ? 0 : 1;
}
