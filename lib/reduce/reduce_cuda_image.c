/* The device code of a library that is built without nvcc: a module of no kernels. */
#include "reduce/reduce_cuda.h"

const unsigned char hoop_cuda_image[] = ".version 7.0\n.target sm_80\n.address_size 64\n";
