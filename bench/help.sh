# shellcheck shell=sh
# Sourced by scripts first: with -h or --help they print the comment at their beginning.
case ${1:-} in
-h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
