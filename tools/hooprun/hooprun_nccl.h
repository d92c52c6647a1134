/*
 * --nccl: makes programs that were built for NCCL find hoop's libnccl.so.2 before any other. It has
 * to be preloaded: PyTorch's libraries name the folder of their own copy by DT_RPATH, which is
 * searched before LD_LIBRARY_PATH.
 */
#ifndef HOOPRUN_NCCL_H
#define HOOPRUN_NCCL_H

#include <stdbool.h>

/*
 * Finds the library, in the folder hoop/ beside libhoop or in a build tree in shims/nccl/, and puts
 * it first in this process's LD_PRELOAD. Returns false after it has reported why not.
 */
bool hooprun_nccl_preload(void);

#endif
