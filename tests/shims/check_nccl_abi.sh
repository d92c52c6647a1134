#!/bin/sh
# Compares shims/nccl/nccl_abi.h with this machine's nccl.h (or NCCL_HEADER). The compiler checks
# the shim's functions with NVIDIA's declarations; a program prints numbers and layouts. Exit code
# 77: there is no nccl.h, or no CUDA for it.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuda=${CUDA_HOME:-/usr/local/cuda}/include
theirs=${NCCL_HEADER:-$cuda/nccl.h}
[ -f "$theirs" ] || theirs=/usr/include/nccl.h
[ -f "$theirs" ] && [ -f "$cuda/cuda_runtime.h" ] || { echo "skipped: no nccl.h with CUDA's headers"; exit 77; }
cc=${CC:-cc}
failed=0

# NVIDIA's header counts as a system header, so that its own warnings are ignored.
for file in shims/nccl/nccl_comms.c shims/nccl/nccl_calls.c; do
    # shellcheck disable=SC2086
    $cc -std=gnu11 -Werror=implicit -fsyntax-only -isystem "$cuda" -include "$theirs" -DNCCL_ABI_H \
        -DNCCL_CONFIG_MAGIC=0u -DNCCL_SIM_INFO_MAGIC=0u -Iinclude -Ishims "$file" ||
        { echo "FAILED: $file with $theirs"; failed=1; }
done

cat >"$work/print.c" <<'TEXT'
#include <stdio.h>
#define NUMBER(x) printf("%s %lld\n", #x, (long long)(x))
#define FIELD(type, field) \
    printf("%s.%s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field))
int main(void)
{
    NUMBER(ncclUnhandledCudaError); NUMBER(ncclSystemError); NUMBER(ncclInternalError);
    NUMBER(ncclInvalidArgument); NUMBER(ncclInvalidUsage); NUMBER(ncclRemoteError);
    NUMBER(ncclInProgress); NUMBER(ncclInt8); NUMBER(ncclUint8); NUMBER(ncclInt32);
    NUMBER(ncclUint32); NUMBER(ncclInt64); NUMBER(ncclUint64); NUMBER(ncclFloat16);
    NUMBER(ncclFloat32); NUMBER(ncclFloat64); NUMBER(ncclBfloat16); NUMBER(ncclFloat8e4m3);
    NUMBER(ncclFloat8e5m2); NUMBER(ncclProd); NUMBER(ncclMax); NUMBER(ncclMin); NUMBER(ncclAvg);
    NUMBER(ncclMaxRedOp); NUMBER(ncclScalarHostImmediate); NUMBER(NCCL_SPLIT_NOCOLOR);
    NUMBER(NCCL_CONFIG_UNDEF_INT); NUMBER(sizeof(ncclUniqueId));
    NUMBER(sizeof(ncclResult_t)); NUMBER(sizeof(ncclRedOp_t)); NUMBER(sizeof(ncclSimInfo_t));
    FIELD(ncclConfig_t, size); FIELD(ncclConfig_t, magic); FIELD(ncclConfig_t, version);
    FIELD(ncclConfig_t, blocking); FIELD(ncclConfig_t, netName); FIELD(ncclConfig_t, commName);
    FIELD(ncclConfig_t, nvlsCTAs); FIELD(ncclSimInfo_t, magic); FIELD(ncclSimInfo_t, estimatedTime);
#ifdef NCCL_CONFIG_MAGIC
    const unsigned config = NCCL_CONFIG_MAGIC, info = NCCL_SIM_INFO_MAGIC;
#else
    const ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
    const ncclSimInfo_t simulated = NCCL_SIM_INFO_INITIALIZER;
    const unsigned config = made.magic, info = simulated.magic;
#endif
    NUMBER(config); NUMBER(info);
    return 0;
}
TEXT
$cc -std=gnu11 -include shims/nccl/nccl_abi.h "$work/print.c" -o "$work/ours" &&
    $cc -std=gnu11 -isystem "$cuda" -include "$theirs" "$work/print.c" -o "$work/theirs" || exit 1
"$work/ours" >"$work/ours.txt"
"$work/theirs" >"$work/theirs.txt"
diff "$work/ours.txt" "$work/theirs.txt" || { echo "FAILED: nccl_abi.h (<) and $theirs (>) differ"; failed=1; }
exit $failed
