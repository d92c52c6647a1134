#!/usr/bin/env bash
# torch_env.sh: a virtual environment with PyPI's torch for CPU use, made once and kept in
# ~/.cache/hoop; prints its path. TORCH=2.14.1 chooses another version.
#
# PyPI has no torch for Linux without CUDA, and with all its dependencies it takes 3 GB. This installs
# only the wheel (540 MB, 1.4 GB unpacked), with stand-ins for the rest (standins.py). Usage:
#     . "$(python/torch_env.sh)"/env.sh; python -c 'import torch'
# 77: it is not available; the line before says why.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${TORCH:-2.15.0}
dir=${XDG_CACHE_HOME:-$HOME/.cache}/hoop/torch-$version
log=$dir.log

skip() { printf 'skip: %s\n' "$*"; exit 77; }

if [ -f "$dir/complete" ] && "$dir/bin/python" -c ''; then
    echo "$dir"
    exit 0
fi
[ "$(uname -m)" = x86_64 ] || skip "torch $version is tried on x86_64 only"
command -v gcc >/dev/null && command -v readelf >/dev/null || skip "no gcc and binutils"
rm -rf "$dir"
mkdir -p "$dir"
[ "$(df --output=avail -BM "$dir" | tail -n 1 | tr -dc 0-9)" -gt 4000 ] || skip "less than 4 GB free in $dir"
python3 -m venv "$dir" >"$log" 2>&1 || skip "python3 has no venv (Debian: python3-venv)"
pip=("$dir/bin/pip" -q --disable-pip-version-check --no-cache-dir install --no-compile)
timeout 600 "${pip[@]}" numpy typing-extensions filelock sympy networkx jinja2 fsspec setuptools expecttest psutil \
    >>"$log" 2>&1 && timeout 600 "${pip[@]}" --no-deps "torch==$version" >>"$log" 2>&1 ||
    skip "PyPI gave no torch $version: $(tail -n 1 "$log")"
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python3 "$here/standins.py" "$site/torch" "$dir/standins" >>"$log" 2>&1 ||
    skip "no stand-ins for CUDA's libraries: $(tail -n 1 "$log")"
cat >"$dir/env.sh" <<TEXT
export PATH=$dir/bin:\$PATH LD_LIBRARY_PATH=$dir/standins\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
TEXT
(. "$dir/env.sh" && python -c 'import torch.distributed as d; assert d.is_gloo_available()') >>"$log" 2>&1 ||
    skip "torch $version cannot be imported: $(tail -n 1 "$log")"
touch "$dir/complete"
echo "$dir"
