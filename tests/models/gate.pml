/*
 * A gate (lib/exec/gate.h): rank w writes slices of rank v's buffer, v gives up at some moment.
 * Checked: when v has returned, no store of w reaches the pages that v sees; and when v finds w
 * writing, v sees the announcement of a third rank that w has seen before.
 *
 * w's stores go to a buffer that drains in any order; what is stored with release waits for them. A
 * store may reach w before it reaches v; w's release hands on what w has seen. -DRELAXED: w takes
 * and leaves the gate without release.
 */
mtype = { OPEN, CLOSED, WRITING, LEFT };

mtype gate = OPEN;
byte pending = 0;                             /* w's stores that have not drained */
bool fenced = false, returned = false;        /* v's */
bool seen_by_w = false, seen_by_v = false;    /* the third rank's announcement */

proctype third()
{
    if
    :: seen_by_w = true; seen_by_v = true
    :: seen_by_v = true; seen_by_w = true
    fi
}

proctype drain()
{
end: do
    :: pending > 0 -> d_step { assert(!returned || fenced); pending-- }
    od
}

#ifdef RELAXED
#define RELEASED true
#else
#define RELEASED (pending == 0)
#endif

proctype w()
{
    byte slices = 2;
    seen_by_w; /* acquire, of the announcement's tag */
    do
    :: slices == 0 -> break
    :: else ->
        atomic {
            if
            :: gate == OPEN -> gate = WRITING;
#ifndef RELAXED
                seen_by_v = true
#endif
            :: else -> goto given_up
            fi
        }
        pending = pending + 2;
        atomic {
            RELEASED;
            if
            :: gate == WRITING -> gate = OPEN
            :: else -> gate = LEFT; goto given_up
            fi
        }
        slices--
    od;
given_up: skip
}

proctype v()
{
    do
    :: atomic { gate == OPEN -> gate = CLOSED; break }
    :: atomic { gate == WRITING -> assert(seen_by_v) } /* within the patience */
    :: atomic { gate == WRITING -> gate = CLOSED };    /* and behind it */
        if
        :: fenced = true
        :: gate == LEFT /* no fresh pages, or w is of this process */
        fi;
        break
    od;
    returned = true
}

init { atomic { run third(); run drain(); run w(); run v() } }
