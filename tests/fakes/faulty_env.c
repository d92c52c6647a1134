/* Linked into a program, this installs the faults of HOOP_TEST_FAULT before main(). */
#include "fakes/faulty.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void faulty_env(void)
{
    if (!faulty_from_env()) {
        (void)fprintf(stderr, "HOOP_TEST_FAULT: cannot make sense of \"%s\"\n",
                      getenv("HOOP_TEST_FAULT"));
        _exit(2);
    }
}
