/*
 * Going to sleep (lib/runtime/wait.c) while somebody publishes (hoop_board_wake_sleepers()).
 * Checked: the sleeper always ends, by its last look or by being woken.
 *
 * The publisher's store may drain later, and its load of `sleeping` be done earlier, than the
 * program says. membarrier is a full barrier at some place of the publisher's program: what is
 * before it has drained, and what is behind it, also what was loaded early, is done again.
 * -DRELAXED: there is none.
 */
bool event = false, event_buffer = false, sleeping = false, woken = false;
bool early = false, early_value; /* of `sleeping` */

proctype drain()
{
end: do
    :: event_buffer -> d_step { event = true; event_buffer = false }
    od
}

proctype publisher()
{
    bool seen;
    if
    :: d_step { early = true; early_value = sleeping }
    :: skip
    fi;
    event_buffer = true;
    atomic {
        if
        :: early -> seen = early_value
        :: else -> seen = sleeping
        fi
    }
    if
    :: seen -> woken = true
    :: else -> skip
    fi
}

proctype sleeper()
{
    sleeping = true; /* and drained: a membarrier is one for its caller, too */
#ifndef RELAXED
    d_step {
        early = false;
        if
        :: event_buffer -> event = true; event_buffer = false
        :: else -> skip
        fi
    }
#endif
    if
    :: event -> skip
    :: else -> woken
    fi
}

init { atomic { run drain(); run publisher(); run sleeper() } }
