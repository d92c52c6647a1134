/*
 * Going to sleep (lib/runtime/wait.c) while two publish (hoop_board_wake_sleepers()), for both of
 * whom it waits. Checked: the sleeper always ends, by its last look or by being woken, though of
 * those who find it asleep only the first wakes it.
 *
 * A publisher's store may drain later, and its load of `sleeping` be done earlier, than the
 * program says; its exchange drains. membarrier is a full barrier at some place of each
 * publisher's program: what is before it has drained, and what is behind it, also what was loaded
 * early, is done again.
 * -DRELAXED: there is none.
 */
#define N 2
bool event[N], buffer[N], early[N], early_value[N]; /* of `sleeping` */
bool sleeping = false, woken = false;

proctype drain(byte i)
{
end: do
    :: buffer[i] -> d_step { event[i] = true; buffer[i] = false }
    od
}

proctype publisher(byte i)
{
    bool seen;
    if
    :: d_step { early[i] = true; early_value[i] = sleeping }
    :: skip
    fi;
    buffer[i] = true;
    d_step {
        if
        :: early[i] -> seen = early_value[i]
        :: else -> seen = sleeping
        fi
    }
    if
    :: seen ->
        d_step {
            seen = sleeping;
            sleeping = false;
            if
            :: buffer[i] -> event[i] = true; buffer[i] = false
            :: else -> skip
            fi
        }
    :: else -> skip
    fi;
    if
    :: seen -> woken = true
    :: else -> skip
    fi
}

#ifndef RELAXED
#define MEMBARRIER(i)                                                                              \
    d_step {                                                                                       \
        early[i] = false;                                                                          \
        if                                                                                         \
        :: buffer[i] -> event[i] = true; buffer[i] = false                                         \
        :: else -> skip                                                                            \
        fi                                                                                         \
    }
#else
#define MEMBARRIER(i) skip
#endif

proctype sleeper()
{
    do
    :: event[0] && event[1] -> break
    :: else ->
        sleeping = true; /* and drained: a membarrier is one for its caller, too */
        MEMBARRIER(0);
        MEMBARRIER(1);
        if
        :: event[0] && event[1] -> skip
        :: else -> woken; woken = false
        fi;
        sleeping = false
    od
}

init { atomic { run drain(0); run drain(1); run publisher(0); run publisher(1); run sleeper() } }
