#!/bin/sh
# Pages agree with what they repeat: the table of docs/settings.md with `hoopinfo --settings`, the
# program in README.md with examples/. Every link leads to a file and, if it names one, to a
# heading. Lines of prose have at most 100 columns.
#
#     check_docs.sh HOOPINFO            compares
#     check_docs.sh HOOPINFO --write    updates the table and the program
set -u

hoopinfo=$(readlink -f "${1:?usage: check_docs.sh HOOPINFO [--write]}")
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# in_step FILE TEXT FIRST LAST: checks that TEXT is between the lines FIRST and LAST of FILE.
in_step() {
    awk -v text="$2" -v first="$3" -v last="$4" '
        !inside || $0 == last { print; inside = 0 }
        !done && $0 == first { while ((getline line <text) > 0) print line; inside = done = 1 }
        END { exit !done }' "$1" >"$work/page" || {
        echo "FAILED: $1 has no line '$3'"
        failed=1
        return
    }
    if [ "$mode" = --write ]; then
        cat "$work/page" >"$1"
    elif ! diff -u "$1" "$work/page"; then
        echo "FAILED: $1: to mend it, $0 HOOPINFO --write"
        failed=1
    fi
}

mode=${2:-compare}
# Each setting has two lines: NAME  value  (origin; default PRESET; RANGE), then the text.
env -i "$hoopinfo" --settings >"$work/settings" || exit 1
{
    echo "| variable | default | allowed | meaning |"
    echo "|---|---|---|---|"
    # shellcheck disable=SC2016
    sed -nE '/^HOOP_/ { N
        s/^(HOOP_[A-Z_]+) .*\([a-z]+; default ([^;]*); ([^\n]*)\)\n +(.*)$/| `\1` | \2 | \3 | \4 |/p
    }' "$work/settings"
} >"$work/table"
want=$(grep -c '^HOOP_' "$work/settings")
got=$(grep -c '^| `HOOP_' "$work/table")
if [ "$want" != "$got" ] || [ "$got" = 0 ]; then
    echo "FAILED: $got of $want settings were understood"
    failed=1
fi
in_step docs/settings.md "$work/table" '<!-- hoopinfo --settings -->' '<!-- end -->'
# shellcheck disable=SC2016
in_step README.md examples/hello_allreduce.c '```c' '```'

# The anchors of a page's headings.
anchors() {
    sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9_ -]//g; s/ /-/g'
}

pages="README.md CONTRIBUTING.md CHANGELOG.md python/README.md examples/trainer/README.md"
pages="$pages $(ls docs/*.md docs/inside/*.md)"
for page in $pages; do
    grep -oE '\]\([^)]+' "$page" | cut -c3- | grep -v '^[a-z]*:' | while read -r link; do
        file=${link%%#*}
        file=${file:+$(dirname "$page")/$file}
        file=${file:-$page}
        if [ ! -e "$file" ]; then
            echo "$page: $link"
        elif [ "$link" != "${link%%#*}" ] && ! anchors "$file" | grep -qxF -e "${link#*#}"; then
            echo "$page: $link (no such heading)"
        fi
    done
done >"$work/links"
[ ! -s "$work/links" ] || {
    echo "FAILED: these links lead nowhere:"
    cat "$work/links"
    failed=1
}

# Does not count programs (indented or fenced), tables, pictures, and later bytes of UTF-8 letters.
for page in $pages; do
    LC_ALL=C sed 's/[\x80-\xbf]//g' "$page" | LC_ALL=C awk -v page="$page" '
        /^```/ { fenced = !fenced }
        !fenced && !/^(    |\||!\[)/ && length > 100 { print page ":" FNR ": " length " columns" }'
done >"$work/long"
[ ! -s "$work/long" ] || {
    echo "FAILED: these lines have more than 100 columns:"
    cat "$work/long"
    failed=1
}
exit $failed
