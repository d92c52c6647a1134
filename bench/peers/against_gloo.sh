#!/bin/sh
# hoop as PyTorch's backend against gloo: against_gloo.sh BUILD_DIR [ROUNDS]
#
# With the Python package of this tree, BUILD_DIR's library, and the torch of python/torch_env.sh. Prints each aim
# as met or not met. 77: torch is not available; the line before says why.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

build=$(readlink -f "${1:?usage: against_gloo.sh BUILD_DIR [ROUNDS]}")
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
torch=$("$root/python/torch_env.sh") || { echo "$torch" && exit 77; }
# shellcheck disable=SC1091
. "$torch/env.sh"
export PYTHONPATH="$root/python" LIBHOOP="$build/libhoop.so.0" PYTHONDONTWRITEBYTECODE=1
exec python "$root/bench/peers/against_gloo.py" "$@"
