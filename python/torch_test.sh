#!/usr/bin/env bash
# torch_test.sh WHEELS: runs the tests of hoop.torch with the wheel in that folder and PyPI's torch. The
# last line has the counts. 77: torch or the wheel is not available; the line before says why.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(ls "$1"/hoop-*_"$(uname -m)".whl 2>/dev/null) || { echo "skip: no wheel in $1"; exit 77; }
wheel=$(readlink -f "$wheel")
env=$("$here/torch_env.sh") || { echo "$env"; exit 77; }
. "$env/env.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# hoop is installed beside the environment, which others use, too.
pip -q --disable-pip-version-check install --no-index --no-deps --target "$work" "$wheel"
# Tests, on the CPU, the program that bench/gpu_suite.sh runs on GPUs.
export PYTHONPATH=$work PATH=$work/bin:$PATH
hooprun -n 2 --timeout 100 python "$here/../bench/gpu/torch_nccl.py" cpu
python "$here/tests/run.py" test_torch
