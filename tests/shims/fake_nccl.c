/* Another libnccl.so.2, which a program is linked to; the shim must be found first. */
int ncclGetVersion(int *version);

__attribute__((visibility("default"))) int ncclGetVersion(int *version)
{
    *version = 1;
    return 0;
}
