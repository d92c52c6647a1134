/* The device code of a library that was built without nvcc: a module without kernels. */
#include "reduce/reduce_cuda.h"

const unsigned char hoop_cuda_image[] = ".version 7.0\n.target sm_80\n.address_size 64\n";
