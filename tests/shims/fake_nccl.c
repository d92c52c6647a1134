/* Another libnccl.so.2, which a program was linked to: the shim must be found before it. */
int ncclGetVersion(int *version);

__attribute__((visibility("default"))) int ncclGetVersion(int *version)
{
    *version = 1;
    return 0;
}
