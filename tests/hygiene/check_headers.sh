#!/bin/sh
# Every header compiles alone as C11; the public one also as C++, and without any other header.
set -u
cd "$(dirname "$0")/../.." || exit 1
cc=${CC:-cc}
failed=0
unit=$(mktemp --suffix=.c)
trap 'rm -f "$unit"' EXIT
for header in $(git ls-files -co --exclude-standard -- '*.h' 2>/dev/null || find . -name '*.h'); do
    case $header in
    */reduce_cpu_vec.h) continue ;; # a part of reduce_cpu_tmpl.c, compiled once per instruction set
    esac
    printf '#include "%s"\ntypedef int not_empty;\n' "$PWD/$header" >"$unit"
    $cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -Iinclude -Ilib -I. -Ibench -Itests \
        -Itools -Iexamples/trainer -Ishims -fsyntax-only "$unit" || { echo "FAILED: $header alone"; failed=1; }
done
$cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c include/hoop.h || failed=1
if command -v c++ >/dev/null; then
    c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ include/hoop.h || failed=1
fi
exit $failed
