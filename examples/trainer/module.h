/*
 * Loads what computes on a device, train_cuda.so beside the program, when it is asked for: train
 * itself starts where nothing of CUDA is.
 */
#ifndef TRAINER_MODULE_H
#define TRAINER_MODULE_H

#include "nn/backend.h"

/* device, rank: see backend_open. NULL, and the problem, without module, driver or device. */
const struct backend *module_open(int device, int rank, struct problem *problem);

#endif
