/*
 * Loads train_cuda.so, which computes on a device, from beside the program when it is needed: so
 * train itself starts without CUDA.
 */
#ifndef TRAINER_MODULE_H
#define TRAINER_MODULE_H

#include "nn/backend.h"

/* device, rank: see backend_open. NULL, with the problem: there is no module, driver or device. */
const struct backend *module_open(int device, int rank, struct problem *problem);

#endif
