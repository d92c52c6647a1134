/* Prints the version of the NCCL that the program finds. */
#include <stdio.h>

int ncclGetVersion(int *version);

int main(void)
{
    int version = 0;
    const int result = ncclGetVersion(&version);
    printf("%d\n", version);
    return result;
}
