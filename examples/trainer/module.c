#include "module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE "train_cuda.so"

/* The module's path: TRAIN_CUDA, or in the folder of the program. */
static bool module_path(char path[PATH_MAX + sizeof(MODULE)], struct problem *problem)
{
    const char *named = getenv("TRAIN_CUDA");
    if (named != NULL) {
        snprintf(path, PATH_MAX, "%s", named);
        return true;
    }
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0) {
        return problem_say(problem, "--device cuda: /proc/self/exe cannot be read");
    }
    path[length] = '\0';
    memcpy(strrchr(path, '/') + 1, MODULE, sizeof(MODULE));
    return true;
}

const struct backend *module_open(int device, int rank, struct problem *problem)
{
    char path[PATH_MAX + sizeof(MODULE)];
    backend_open *opener = NULL;
    if (!module_path(path, problem)) {
        return NULL;
    }
    if (access(path, F_OK) != 0) {
        problem_say(problem,
                    "--device cuda: there is no %s: it is built where nvcc, cuDNN and cuBLAS are",
                    path);
        return NULL;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (module != NULL) {
        *(void **)&opener = dlsym(module, "backend_cuda_open");
    }
    if (opener == NULL) {
        problem_say(problem, "--device cuda: %s", dlerror());
        return NULL;
    }
    return opener(device, rank, problem);
}
