/* The device code of benchmarks that were built without nvcc: a module without kernels. */
#include "perf/perf_kernels.h"

const unsigned char perf_kernels_image[] = ".version 7.0\n.target sm_80\n.address_size 64\n";
