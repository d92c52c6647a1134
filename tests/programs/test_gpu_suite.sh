#!/bin/sh
# Tests bench/gpu_suite.sh over the fake driver, with stand-ins for nvcc and what it builds: every
# step that needs no GPU passes, a step that fails makes the suite fail, and its JSON says so.
#     test_gpu_suite.sh BUILD FAKE_CUDA
set -u
build=$(readlink -f "$1")
driver=$(readlink -f "$2")
case $build in *[' :']*) echo "skipped: the shim of $build cannot be preloaded"; exit 77 ;; esac
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/programs/cases.sh
. tests/programs/cases.sh

mkdir "$work/bin" "$work/lib" "$work/build"
stand_in() { # NAME LINES
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in nvidia-smi 'echo "Fake 0"'
stand_in ninja 'exit 0'
stand_in compute-sanitizer 'shift 2; exec "$@"'
# What it compiles prints what the program of the kernels prints.
stand_in nvcc 'while [ "$1" != -o ]; do shift; done
printf "#!/bin/sh\necho float 2 268435456 2000 2500 0.8\nexit \$FAKE_KERNELS\n" >"$2"
chmod +x "$2"'
ln -s "$driver" "$work/lib/libcuda.so.1"
for part in bench tools shims; do
    ln -s "$build/$part" "$work/build/$part"
done
: >"$work/build/build.ninja"
export PATH="$work/bin:$PATH" LD_LIBRARY_PATH="$work/lib"

# looks EXPRESSION: is true for the JSON, which is `suite`, and `steps` by their names
looks() {
    python3 -c 'import json, sys
suite = json.load(open(sys.argv[1]))
steps = {step["name"]: step for step in suite["steps"]}
sys.exit(not eval(sys.argv[2]))' "$work/build/suite.json" "$1" || { echo "FAILED: not so in the JSON: $1"; failed=1; }
}

export FAKE_KERNELS=0
run 0 bench/gpu_suite.sh "$work/build" 4096
says out '^Fake 0, [0-9]+ s: all right$'
looks 'suite["device"] == "Fake 0" and suite["gpus"] == 1'
looks 'all(step["code"] == 0 or name[:5] in ("gpus_", "torch") for name, step in steps.items())'
looks 'steps["gpus_threads_2"]["code"] == 77 and "1 GPUs, expected 2" in steps["gpus_threads_2"]["output"]'
looks 'steps["kernels"]["figures"] == [{"type": "float", "sources": 2, "bytes": 268435456, "fold_gbps": 2000,
    "copy_gbps": 2500, "share": 0.8}]'
looks '[row["bytes"] for row in steps["threads_4"]["figures"]] == [8, 64, 512, 4096]'
looks 'steps["processes_2"]["figures"][0]["of_bound"] is not None'

export FAKE_KERNELS=7
run 1 bench/gpu_suite.sh "$work/build" 4096
says out '^kernels +[0-9]+ s  failed with 7$'
says out '^Fake 0, [0-9]+ s: something failed$'
looks '[name for name, step in steps.items() if step["code"] not in (0, 77)] == ["probe", "facts", "ipc", "kernels"]'

# Built for another machine: nothing is built again, because that may have no compiler.
run 0 bench/gpu_suite.sh -b sm_90 "$work/build"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/nvcc"
FAKE_KERNELS=0
run 0 bench/gpu_suite.sh "$work/build" 4096
looks '"build" not in steps and steps["facts"]["code"] == 0'
run 1 bench/gpu_suite.sh -b
says err 'expected the kind of GPU behind -b'

[ $failed = 0 ]
