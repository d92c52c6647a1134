#!/bin/sh
# Dependencies point down only, and each outside header has one home (docs/architecture.md).
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0

# refuse WHY PATTERN FILES...: no file may contain the pattern.
refuse() {
    why=$1 pattern=$2
    shift 2
    found=$(grep -nE -- "$pattern" "$@" /dev/null)
    if [ -n "$found" ]; then
        printf 'FAILED: %s\n%s\n' "$why" "$found"
        failed=1
    fi
}

# except LIST FILES...: the files that the list of basenames does not name.
except() {
    list=" $1 "
    shift
    for file in "$@"; do
        case $list in
        *" ${file##*/} "*) ;;
        *) echo "$file" ;;
        esac
    done
}

all=$(find include lib transports bench examples tools tests -name '*.[ch]' | sort)
service="service.c agreement.c bootstrap.c contact.c control.c listener.c member.h packet.c packet.h
         rendezvous.c rendezvous.h roster.c vigil.c visitor.c watch.h control.h meeting.c"

# shellcheck disable=SC2046,SC2086
{
    refuse 'uv.h outside the service thread' '#include [<"]uv\.h' \
        $(except "$(echo $service)" $all)
    refuse 'OpenSSL outside base/auth.c' '#include [<"]openssl/' $(except auth.c $all)
    refuse 'verbs outside transports/rdma*' '#include [<"]infiniband/' \
        $(echo "$all" | grep -v '^transports/rdma')
    refuse 'CUDA outside lib/*cuda*' '#include [<"]cuda' $(echo "$all" | grep -v '^lib/.*cuda')
    refuse 'cmocka outside tests/' '#include [<"]cmocka' $(echo "$all" | grep -v '^tests/')
    refuse 'the public header includes something of ours' '#include "' include/hoop.h
    refuse 'outside programs look inside' '#include "(base|algo|transports|lib)/|#include "(comm|board|engine|memory|wait|service|bootstrap|plan|reduce|operation)\.h"' \
        $(find bench examples tools -name '*.[ch]')
    refuse 'base/ depends on what is above it' '#include "(algo|transports|comm|board|engine|memory|wait|service|bootstrap|plan|reduce|operation|device)' \
        $(find lib/base -name '*.[ch]')
    refuse 'an algorithm is not pure' '#include "(transports|comm|board|engine|memory|wait|service|bootstrap|plan|reduce|operation|device)|<(stdio|stdlib|time|unistd|pthread)\.h>' \
        $(find lib/algo -name '*.[ch]')
    refuse 'a transport knows what is above it' '#include "(algo|comm|board|engine|wait|service|bootstrap|plan|reduce|operation)' \
        $(find transports -name '*.[ch]')
    refuse 'waiting outside wait.c' '(^|[^_a-z])(sched_yield|nanosleep|usleep|epoll_wait|pthread_cond_(timed)?wait) *\(' \
        $(except 'wait.c board.c service.c' $(find lib transports -name '*.[ch]'))
}
exit $failed
