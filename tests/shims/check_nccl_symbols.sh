#!/bin/sh
# libnccl.so.2 has the symbols that its clients need, and exports no others. A single missing name
# breaks `import torch`, which binds all names at once.
#     check_nccl_symbols.sh LIBNCCL.SO.2
set -u
library=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Undefined in libtorch_cuda.so of PyTorch 2.14.1 and 2.15.0, without the prefix nccl.
torch="AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommDeregister CommDestroy
    CommFinalize CommGetAsyncError CommGetUniqueId CommGrow CommInitAll CommInitRank
    CommInitRankConfig CommInitRankScalable CommMemStats CommRegister CommResume CommRevoke
    CommShrink CommSplit CommSuspend CommUserRank CommWindowDeregister CommWindowRegister
    DevCommCreate DevCommDestroy Gather GetErrorString GetLastError GetLsaMultimemDevicePointer
    GetPeerDevicePointer GetUniqueId GetVersion GroupEnd GroupSimulateEnd GroupStart MemAlloc
    MemFree PutSignal Recv RedOpCreatePreMulSum RedOpDestroy Reduce ReduceScatter Send Signal
    WaitSignal WinGetUserPtr"
# Undefined in CuPy 14.2.0, or loaded by XGBoost 3.2.0 and JAX's CUDA plugin 0.12.0, and not above.
others="CommCuDevice CommQueryProperties GetLsaDevicePointer ResetDebugInit Scatter"
# Declared in nccl.h next to one of those.
more="GetMultimemDevicePointer"

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$work/has"
# shellcheck disable=SC2086
printf 'nccl%s\n' $torch $others $more | sort >"$work/wanted"
[ "$(echo "$torch" | wc -w)" = 51 ] || { echo "FAILED: torch's list is not 51 names"; failed=1; }
diff "$work/has" "$work/wanted" || { echo "FAILED: exports (<) and what is wanted (>) differ"; failed=1; }
readelf -d "$library" | grep -q 'soname: \[libnccl\.so\.2\]' || { echo "FAILED: its soname"; failed=1; }
if nm -D "$library" | grep ' nccl.*@'; then echo "FAILED: NCCL's symbols have no versions"; failed=1; fi
exit $failed
