/*
 * --nccl: programs that were built for NCCL find hoop's libnccl.so.2 before any other. It must be
 * preloaded: PyTorch's libraries name the folder of their own by DT_RPATH, which is searched before
 * LD_LIBRARY_PATH.
 */
#ifndef HOOPRUN_NCCL_H
#define HOOPRUN_NCCL_H

#include <stdbool.h>

/*
 * Finds it, in the folder hoop/ beside libhoop or, in a build, in shims/nccl/, and puts it before
 * whatever LD_PRELOAD says to this process. False: it says why not.
 */
bool hooprun_nccl_preload(void);

#endif
