#!/bin/sh
# hoopinfo: its page and JSON, a plan, the check of machines that have all, one CPU, few descriptors
# or no network, a wrong sum, which ranks of a job wait for which, and what it refuses.
#
#     test_hoopinfo.sh HOOPINFO HOOPINFO-WITH-FAULTS LATE_RANK
set -u
hoopinfo=$1
faulty=$2
late=$3
PATH=$(dirname "$hoopinfo"):$PATH # hooprun, for the faulty one
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

run 0 "$hoopinfo"
for line in '^hoop$' 'transports +inproc shm tcp' '^interfaces$' '^cpus$' 'open files +[0-9u]' \
            'shared memory +works' 'of other processes +[a-zA-Z]'; do
    says out "$line"
done
[ "$(grep -c '^hoop$' "$work/out")" = 1 ] || fail "two sections have one name"
cat >"$work/page.py" <<'END'
import json, sys
def pairs(found):
    keys = [key for key, _ in found]
    assert len(keys) == len(set(keys)), f"a key comes twice: {keys}"
    return dict(found)
said = json.load(open(sys.argv[1]), object_pairs_hook=pairs)["hoop"]
assert said["version"].count(".") == 2 and "rdma" in said, said
END
run 0 "$hoopinfo" --json
python3 "$work/page.py" "$work/out" || { failed=1; cat "$work/out"; }
# shellcheck disable=SC2016
twice='ip link add a type veth peer name b && for i in a b; do ip link set $i up; ip addr add 10.9.9.9/24 dev $i; done'
if unshare -n sh -c "$twice" 2>/dev/null; then
    run 0 unshare -n sh -c "$twice; exec \"\$0\" --json" "$hoopinfo"
    grep -q '"10.9.9.9 (2)"' "$work/out" || fail "an address that two interfaces have is there once"
    python3 "$work/page.py" "$work/out" || { failed=1; cat "$work/out"; }
fi
run 0 env HOOP_ALGO=ring "$hoopinfo"
says out 'HOOP_ALGO +ring'

run 0 "$hoopinfo" --explain all_reduce --bytes 8 --ranks 3
says out 'algo +oneshot'
says out 'ranks +3'
says out 'profile +-$'
run 0 env HOOP_TRANSPORT=tcp HOOP_BRUCK_RADIX=5 "$hoopinfo" --explain all_reduce --bytes 8 --ranks 3
says out 'algo +bruck'
says out 'radix +5'
run 0 "$hoopinfo" --explain broadcast --bytes 64M --ranks 2 --json
python3 -m json.tool "$work/out" >/dev/null || failed=1
run 1 "$hoopinfo" --explain all_produce
says err "'all_produce'"

run 2 "$hoopinfo" --ranks 0
says err '0: expected a number of ranks from 1 to 512'
run 2 "$hoopinfo" --bytes 12Q
says err '12Q: expected a number'
run 2 "$hoopinfo" please
run 2 "$hoopinfo" --test --job
says err '\-\-test \-\-job: expected one of them'
run 2 "$hoopinfo" --job --bytes 4K
says err '\-\-bytes 4K: expected --explain with it'
run 2 "$hoopinfo" --ranks 3 --settings
says err '\-\-ranks 3: expected --explain or --test with it'
run 0 "$hoopinfo" --json --help
says out '^ +\-\-calibrate'
run 0 "$hoopinfo" --version --json
python3 -c 'import json, sys
assert json.load(sys.stdin)["hoop"]["version"].count(".") == 2' <"$work/out" || failed=1
run 0 env HOOP_LANES=3 "$hoopinfo" --settings --json
python3 -c 'import json, sys
lanes = json.load(sys.stdin)["HOOP_LANES"]
assert lanes["value"] == "3" and lanes["default"] == "2", lanes' <"$work/out" || failed=1
long=/none$(printf '/.%.0s' $(seq 600)) # a value of any length
run 0 env HOOP_PROFILE="$long" "$hoopinfo" --settings --json
python3 -c 'import json, sys
assert json.load(sys.stdin)["HOOP_PROFILE"]["value"] == sys.argv[1]' "$long" <"$work/out" || fail "a value is cut"
for file in "$work/new/" "$work/$(printf '%0249d' 0)"; do
    run 1 "$hoopinfo" --calibrate "$file"
    says err '/: expected the name of a file$|0: File name too long$'
    grep -q 'up to 30 s' "$work/err" && fail "it measures before it refuses"
done
# The CPU limit, as the library looks for it: the least of this cgroup and those above it, as far as
# they can be read. The file that is written, its text, and what is said.
# shellcheck disable=SC2016
limit='mount -t tmpfs none /sys/fs/cgroup && mount -t tmpfs none /proc && mkdir /proc/self &&
    printf "4:cpuset,cpu:/box/in\n0::/deep/own\n" >/proc/self/cgroup &&
    mkdir -p /sys/fs/cgroup/deep /sys/fs/cgroup/cpu/box || exit 9
    cd /sys/fs/cgroup && echo "$2" >"$1"
    echo 100000 >cpu/box/cpu.cfs_period_us
    exec "$0"'
if unshare -m sh -c "$limit" "$hoopinfo" none '' >/dev/null 2>&1; then
    for case in 'none  unknown' 'cpu.max max 100000 no limit' 'cpu.max 150000 100000 1.50 CPUs' \
                'deep/cpu.max 150000 100000 1.50 CPUs' 'cpu/box/cpu.cfs_quota_us -1 no limit' \
                'cpu/box/cpu.cfs_quota_us 50000 0.50 CPUs'; do
        said=$(echo "$case" | grep -oE '(unknown|no limit|[0-9.]+ CPUs)$')
        file=${case%% *}
        text=${case#"$file "}
        run 0 unshare -m sh -c "$limit" "$hoopinfo" "$file" "${text%" $said"}"
        says out "cgroup +$said\$"
    done
fi
# Children can be waited for although SIGCHLD is ignored at the start, which dash's trap cannot do.
ignore='import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.environ["PATH"] = "/none" # no hooprun
os.execv(sys.argv[1], sys.argv[1:])'
run 0 python3 -c "$ignore" "$hoopinfo"
grep -q 'of other processes  *Resource' "$work/out" && fail "it could not wait for a child"
run 1 python3 -c "$ignore" "$faulty" --test --ranks 2
says err 'cannot start hooprun'
says out 'hoop does NOT work here'
for options in --settings '' '--explain all_reduce' '--version --json'; do
    for lost in '>/dev/full' '>&-'; do
        run 1 sh -c "'$hoopinfo' $options $lost"
        printf 'hoopinfo: cannot write to standard output\n' | cmp -s - "$work/err" ||
            fail "hoopinfo $options $lost does not say so, once"
    done
done

# says_in_time PATTERN: hoopinfo --job prints this, when it is run again and again
says_in_time() {
    for _ in $(seq 200); do
        run 0 "$hoopinfo" --job
        grep -qE -- "$1" "$work/out" && return
        sleep 0.1
    done
    says out "$1"
}

hooprun -n 3 --timeout 120 "$late" "$work/go" >"$work/job" 2>&1 </dev/null &
job=$!
says_in_time '^late\?"one": 2 ranks here wait for rank 2, pid [0-9]+, which is in no operation; its last was 1, all_reduce'
says out '^[0-9]+ +late_rank +late\?"one" +0 of 3 +waits [0-9.]+ s in operation 2, all_reduce of 1 float sum, for .*rank 2 \(pid'
says out '^[0-9]+ +late_rank +late\?"one" +2 of 3 +is in no operation; its last was 1, all_reduce of 1 float sum$'
pid=$(sed -nE 's/^late\?"one": .* rank 2, pid ([0-9]+),.*/\1/p' "$work/out")
run 0 "$hoopinfo" --job --json
python3 - "$work/out" "$pid" <<'END' || failed=1
import json, sys
jobs = [p for p in json.load(open(sys.argv[1]))["processes"] if p["program"] == "late_rank"]
comms = {p["pid"]: p["report"]["comms"][0] for p in jobs}
late = comms.pop(int(sys.argv[2]))
assert late["waiting"] is None and late["rank"] == 2, late
assert sorted(c["rank"] for c in comms.values()) == [0, 1], comms
assert all(c["waiting"]["rank"] == 2 and c["id"] == late["id"] for c in comms.values()), comms
END
kill -STOP "$pid"
says_in_time 'wait for rank 2, pid [0-9]+, which is stopped, by a signal'
kill -CONT "$pid"
: >"$work/go"
wait $job || { cat "$work/job"; failed=1; }
run 0 "$hoopinfo" --job
grep -q late_rank "$work/out" && { cat "$work/out"; failed=1; }

# No line that comes from the stranger has a control character.
plain() {
    LC_ALL=C grep -aw "$stranger" "$work/out" |
        LC_ALL=C grep -aq "[$(printf '\001-\011\013-\037\177-\377')]" && {
        echo "FAILED: control characters in:"
        cat -v "$work/out"
        failed=1
    }
}

# stranger REPORT: a process that answers this, under a name of its choice
stranger() {
    rm -f "$work/up"
    python3 - "$1" "$work/up" <<'END' &
import os, socket, sys
with open("/proc/self/comm", "wb") as f:
    f.write(b"st\x1b[31m\x9b\xc2\x9br")
at = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
at.bind("\0hoop-job-%d-%d-00000000" % (os.geteuid(), os.getpid()))
at.listen()
open(sys.argv[2], "w").close()
for _ in range(2):
    one = at.accept()[0]
    one.send(sys.argv[1].encode("latin-1").decode("unicode_escape").encode("latin-1"))
    one.close()
END
    stranger=$!
    for _ in $(seq 100); do
        [ -e "$work/up" ] && break
        sleep 0.1
    done
    run 0 "$hoopinfo" --job
    plain
    says out "^$stranger +st\\?\\[31m\\?\\?\\?r +$2"
    run 0 "$hoopinfo" --job --json
    plain
    python3 -m json.tool "$work/out" >/dev/null || failed=1
    wait $stranger
}

unreadable='- +- +answers what this hoopinfo cannot read'
for bad in '\x1b[31m' 'x' '+1' '01' '1.' '1e' '-' 'truefalse' '"\x1b[31m"' '"\x9b"' '"\xc0\x80"' \
           '"\xed\xa0\x80"' '"\\x"' '"\\u12"' '[1}' '[1,]' '{"a"}' '1 2' '1,'; do
    stranger "{\"version\":$bad}" "$unreadable"
done
# JSON that is no report.
for bad in '{}' '{"comms":5}' '{"comms":[5]}' '{"comms":[{}]}' '{"comms":[],"streams":[[]]}' \
           '{"comms":[{"rank":"0","ranks":1,"state":"HOOP_OK"}]}' '{"comms":{"rank":0}}' \
           '{"comms":[{"rank":0,"ranks":1,"state":["HOOP_OK"]}]}'; do
    stranger "$bad" "$unreadable"
done
long=$(printf '%0366d.' 0)
comm='"name":"c\x7f\xc2\x9b31m\\u001b","rank":0,"ranks":1,"state":"HOOP_OUT_OF_MEMORY"'
stranger "{\"version\":\r[-0.5e+3,0,true,false,null],\"comms\":[{$comm,\"failure\":\"$long\"}]}" \
         'c\?\?31m\? +0 of 1 +has failed: 0{366}\.$'

run 0 "$hoopinfo" --test --ranks 3
[ "$(grep -c ' right ' "$work/out")" = 18 ] || { cat "$work/out"; failed=1; }
says out 'hoop works here\.'

# report CODE WORKS JOBS: what --test --json must report
report() {
    python3 - "$work/out" "$@" <<'END' || { failed=1; cat "$work/out"; }
import json, sys
said, code, works, jobs = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3], sys.argv[4:]
assert [job["transport"] for job in said["jobs"]] == jobs, said
assert said["works"] is (works == "works") and ("NOT" in said["verdict"]) != said["works"], said
for job in said["jobs"]:
    ran, rows = job["error"] == "", job["operations"]
    assert job["ranks"] == 2 and job["block_bytes"] == 1 << 20, job
    assert job["works"] is (ran and all(row["right"] for row in rows)), job
    assert (job["wrong_elements"] > 0) == (code == "7"), job
    assert not ran or len(rows) == 9 and all(row["us_8_bytes"] > 0 < row["gb_per_s_1_mib"]
                                             for row in rows), job
END
}
run 0 "$hoopinfo" --test --ranks 2 --json
report 0 works auto tcp
run 0 hooprun -n 2 "$hoopinfo" --json --test
report 0 works auto
run 0 hooprun -n 2 "$hoopinfo" --test --ranks 2
says out '8 bytes +1 MiB a block$'
run 2 hooprun -n 2 "$hoopinfo" --test --ranks 3
says err '\-\-ranks 3: the launcher started 2 ranks, expected the same$'
run 1 env HOOP_TRANSPORT=rdma HOOP_IB_HCA=none "$hoopinfo" --test --ranks 2 --json
report 1 fails rdma
says err 'RDMA'
run 1 env RANK= WORLD_SIZE= HOOP_PROFILE="$work/none" "$hoopinfo" --test --json # no launcher
python3 - "$work/out" <<'END' || { failed=1; cat "$work/out"; }
import json, sys
said = json.load(open(sys.argv[1]))
assert said["works"] is False and said["jobs"] == [] and "NOT" in said["verdict"], said
assert "/none: ENOENT" in said["error"], said
END
run 1 env HOOP_CHECK=aes "$hoopinfo" --test --ranks 2 --json
grep -q 'HOOP_CHECK is .*aes.*, expected one of: sum crc32c off aead' "$work/out" || { failed=1; cat "$work/out"; }
export HOOP_TRANSPORT=auto
run 7 env HOOP_ALGO=ring HOOP_TEST_FAULT=flip:3 "$faulty" --test --ranks 2 --json
report 7 fails auto
run 0 taskset -c 0 "$hoopinfo" --test --ranks 2
run 0 "$hoopinfo" --test --ranks 17 # smaller blocks
says out '8 bytes +512 KiB a block$'
run 0 sh -c "ulimit -n 64; '$hoopinfo' --test --ranks 3"
run 1 sh -c "ulimit -n 12; '$hoopinfo' --test --ranks 3"
says err 'EMFILE \(raise ulimit -n\)'
run 7 env HOOP_ALGO=ring HOOP_TEST_FAULT=flip:3 "$faulty" --test --ranks 2
says out 'WRONG'
says out 'hoop does NOT work here'
unset HOOP_TRANSPORT
if unshare -n true 2>/dev/null; then
    run 1 unshare -n "$hoopinfo" --test --ranks 2
    says out 'over TCP it does NOT'
    says err 'no route to 127.0.0.1: ENETUNREACH'
fi
# shellcheck disable=SC2016
noproc='mount -t tmpfs none /proc && exec "$0" "$@"' # that it starts there at all is the linker's affair
if unshare -m sh -c "$noproc" "$hoopinfo" --version >/dev/null 2>&1; then
    run 0 unshare -m sh -c "$noproc" "$hoopinfo" --test --ranks 2
fi
exit $failed
