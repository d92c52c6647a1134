#!/bin/sh
# compile_kernels.sh NVCC SOURCE OUT [options of nvcc]: the kernels of a .cu for the kinds of GPUs that there are,
# and PTX of the last for those to come. OUT is NAME.c, an array of that name, or NAME: then only NAME.fatbin is made.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
nvcc=$1 source=$2 out=$3
shift 3
for kind in 80 90 100; do
    set -- "$@" -gencode "arch=compute_$kind,code=sm_$kind"
done
set -- "$@" -gencode "arch=compute_$kind,code=compute_$kind"
"$nvcc" -std=c++17 -O3 --threads 2 -diag-suppress 177 -I"$root/include" -I"$root/lib" -I"$root/bench" "$@" \
    -Xfatbin -compress-all -fatbin -o "${out%.c}.fatbin" "$source"
case $out in
*.c)
    name=$(basename "$out" .c)
    {
        printf 'extern const unsigned char %s[];\n_Alignas(16) const unsigned char %s[] = {\n' "$name" "$name"
        od -An -v -tx1 "${out%.c}.fatbin" | sed 's/ \(..\)/0x\1,/g'
        printf '};\n'
    } >"$out"
    ;;
esac
