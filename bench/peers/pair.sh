#!/bin/sh
# Compares two builds of hoop, interleaved: is B no slower than A?
#
#     pair.sh BUILD_A BUILD_B [-c collective] [-n ranks] [-r rounds] [-i iterations] [-m] [-R 0|1|2] [size ...]
#
# The ratio is A / B; above 1 B is faster. compare.sh does the work, and describes the options.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"
usage='usage: pair.sh BUILD_A BUILD_B [-c collective] [-n ranks] [-r rounds] [-i iterations] [-m] [-R 0|1|2] [size ...]'
a=$(cd "${1:?$usage}" && pwd)
: "${2:?$usage}"
shift
exec "$(dirname "$0")/compare.sh" "$a" "$@"
