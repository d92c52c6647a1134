#!/bin/sh
# compile_kernels.sh NVCC OUT [options of nvcc]: the kernels of reduce/reduce_cuda.cu for the kinds of
# GPUs that there are, and PTX of the last for those to come. OUT.c: as reduce_cuda_image.c.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
nvcc=$1 out=$2
shift 2
for kind in 80 90 100; do
    set -- "$@" -gencode "arch=compute_$kind,code=sm_$kind"
done
set -- "$@" -gencode "arch=compute_$kind,code=compute_$kind"
"$nvcc" -std=c++17 -O3 --threads 2 -diag-suppress 177 -I"$root/include" -I"$root/lib" "$@" \
    -Xfatbin -compress-all -fatbin -o "${out%.c}.fatbin" "$root/lib/reduce/reduce_cuda.cu"
case $out in
*.c)
    {
        printf '#include "reduce/reduce_cuda.h"\n_Alignas(16) const unsigned char hoop_cuda_image[] = {\n'
        od -An -v -tx1 "${out%.c}.fatbin" | sed 's/ \(..\)/0x\1,/g'
        printf '};\n'
    } >"$out"
    ;;
esac
