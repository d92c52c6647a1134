/*
 * All ways in which a shrink's agreement can go, for a few ranks and a little harm: all orders of
 * messages, timers, witnesses and joins, with deaths, stops and false accusations at every point
 * (agreement_world.h). Each state must be
 *
 *      safe     a decision is the same for all; when all ranks are through, one comm lives on; no
 *               rank fails that was not stopped or taken for lost
 *      alive    from here it can end without more harm: no rank waits for ever
 *
 *      test_agreement [STATES [RANKS [WALKS [HARMS]]]]
 *
 * visits STATES states (2000; 0: all) of each case of 2 to RANKS (4) ranks, and then goes WALKS
 * (30) random ways to their ends in each case of 4 and 5 ranks.
 */
#include "harness/splitmix.h"
#include "survivors/agreement_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define WAY_MOST 20000u /* the most events */

/* ---- Memory of the search: not the world's ------------------------------------------------ */

struct state {
    uint64_t hash;
    uint32_t before;          /* the state from which it was found first, */
    struct world_event event; /* and the event that led here */
    bool ends;                /* an end can be reached from it */
};

struct edge {
    uint32_t from, to;
};

static struct {
    struct state *states;
    struct edge *edges;
    uint32_t *table; /* by hash: number of a state, plus 1; 0: free */
    uint32_t count, room, table_mask;
    size_t edge_count, edge_room;
} search;

static void *grow(void *memory, size_t bytes)
{
    void *larger = realloc(memory, bytes);
    if (larger == NULL) {
        (void)fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return larger;
}

static void table_grow(void)
{
    const uint32_t size = search.table_mask == 0 ? 1u << 16 : 2 * (search.table_mask + 1);
    search.table = grow(search.table, size * sizeof(*search.table));
    memset(search.table, 0, size * sizeof(*search.table));
    search.table_mask = size - 1;
    for (uint32_t i = 0; i < search.count; i++) {
        uint32_t at = (uint32_t)search.states[i].hash & search.table_mask;
        while (search.table[at] != 0) {
            at = (at + 1) & search.table_mask;
        }
        search.table[at] = i + 1;
    }
}

/* The number of the world's state. *ret_new: it was not known before. */
static uint32_t state_of_world(uint32_t before, const struct world_event *event, bool *ret_new)
{
    const uint64_t hash = world_hash();
    if (search.table_mask == 0 || search.count > search.table_mask / 2) {
        table_grow();
    }
    uint32_t at = (uint32_t)hash & search.table_mask;
    while (search.table[at] != 0) {
        if (search.states[search.table[at] - 1].hash == hash) {
            *ret_new = false;
            return search.table[at] - 1;
        }
        at = (at + 1) & search.table_mask;
    }
    if (search.count == search.room) {
        search.room = search.room == 0 ? 1u << 14 : 2 * search.room;
        search.states = grow(search.states, search.room * sizeof(*search.states));
    }
    search.states[search.count] = (struct state){.hash = hash, .before = before, .event = *event};
    search.table[at] = ++search.count;
    *ret_new = true;
    return search.count - 1;
}

static void edge_add(uint32_t from, uint32_t to)
{
    if (search.edge_count == search.edge_room) {
        search.edge_room = search.edge_room == 0 ? 1u << 16 : 2 * search.edge_room;
        search.edges = grow(search.edges, search.edge_room * sizeof(*search.edges));
    }
    search.edges[search.edge_count++] = (struct edge){.from = from, .to = to};
}

/* ---- A case ------------------------------------------------------------------------------- */

struct test_case {
    uint8_t n;
    bool far, dead;
    uint8_t first;
    struct world_harm harm;
};

static void case_begin(const struct test_case *c)
{
    world_begin(c->n, c->far, c->first, c->dead, c->harm);
}

/* The events that led to a wrong state, the last one first. */
static struct {
    struct world_event events[WAY_MOST];
    uint32_t length;
} way;

static void way_explain(const struct test_case *c, const char *what)
{
    printf("%s:\n", what);
    case_begin(c);
    while (way.length > 0) {
        const struct world_event *event = &way.events[--way.length];
        char text[64];
        world_event_format(event, text, sizeof(text));
        printf("  %s\n", text);
        world_apply(event);
    }
    world_print();
}

static void explain(const struct test_case *c, uint32_t state, const char *what)
{
    way.length = 0;
    for (uint32_t at = state; at != 0 && way.length < WAY_MOST; at = search.states[at].before) {
        way.events[way.length++] = search.states[at].event;
    }
    way_explain(c, what);
}

/* Marks states from which an end can be reached: backwards, until no more are added. Returns one
 * from which none can. */
static uint32_t find_stuck(void)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = search.edge_count; i-- > 0;) {
            const struct edge *edge = &search.edges[i];
            if (search.states[edge->to].ends && !search.states[edge->from].ends) {
                search.states[edge->from].ends = more = true;
            }
        }
    }
    for (uint32_t i = 0; i < search.count; i++) {
        if (!search.states[i].ends) {
            return i;
        }
    }
    return NOBODY;
}

/* States that are still to be looked at: worlds, each followed by its number. */
struct pending {
    size_t bytes;
    uint32_t state;
};

static struct {
    uint8_t *bytes;
    size_t used, room;
} stack;

static void stack_push(uint32_t state)
{
    if (stack.room - stack.used < sizeof(world) + sizeof(struct pending)) {
        stack.room = 2 * stack.room + sizeof(world) + sizeof(struct pending);
        stack.bytes = grow(stack.bytes, stack.room);
    }
    const struct pending top = {.bytes = world_keep(stack.bytes + stack.used), .state = state};
    memcpy(stack.bytes + stack.used + top.bytes, &top, sizeof(top));
    stack.used += top.bytes + sizeof(top);
}

static uint32_t stack_pop(uint8_t ret_world[sizeof(struct world)])
{
    struct pending top;
    stack.used -= sizeof(top);
    memcpy(&top, stack.bytes + stack.used, sizeof(top));
    stack.used -= top.bytes;
    memcpy(ret_world, stack.bytes + stack.used, top.bytes);
    return top.state;
}

/* False: something is wrong with this state. */
static bool judge(const struct test_case *c, uint32_t state)
{
    const char *wrong = world_wrong();
    search.states[state].ends = wrong == NULL && world_is_over(&wrong);
    if (wrong != NULL) {
        explain(c, state, wrong);
    }
    return wrong == NULL;
}

static bool expand(const struct test_case *c, uint32_t from, uint8_t *origin)
{
    struct world_event events[WORLD_EVENTS];
    world_come_back(origin);
    const size_t count = world_events(events);
    for (size_t i = 0; i < count; i++) {
        bool is_new = false;
        if (i > 0) {
            world_come_back(origin);
        }
        world_apply(&events[i]);
        const uint32_t to = state_of_world(from, &events[i], &is_new);
        if (events[i].kind < EVENT_RESET && to != from) {
            edge_add(from, to);
        }
        if (is_new && !judge(c, to)) {
            return false;
        }
        if (is_new) {
            stack_push(to);
        }
    }
    return true;
}

static bool case_run(const struct test_case *c, uint32_t most)
{
    static uint8_t origin[sizeof(struct world)];
    bool fine = true, is_new = false;
    const struct world_event none = {.kind = 0};
    search.count = search.table_mask = 0;
    search.edge_count = 0;
    case_begin(c);
    (void)state_of_world(0, &none, &is_new);
    fine = judge(c, 0);
    stack_push(0);
    while (fine && stack.used > 0 && (most == 0 || search.count < most)) {
        const uint32_t from = stack_pop(origin);
        fine = expand(c, from, origin);
    }
    const bool whole = stack.used == 0;
    stack.used = 0;
    const uint32_t stuck = fine && whole ? find_stuck() : NOBODY;
    if (stuck != NOBODY) {
        explain(c, stuck, "somebody waits for ever");
    }
    printf("%u ranks, %s, rank %u %s; then %u deaths, %u stops, %u false accusations, %u resets: "
           "%u states, "
           "%zu steps%s\n",
           c->n, c->far ? "a machine each" : "one machine", c->first,
           c->dead ? "dead" : "stopped and taken for lost", c->harm.deaths, c->harm.stops,
           c->harm.accusations, c->harm.resets, search.count, search.edge_count,
           whole ? "" : ", not all of them");
    (void)fflush(stdout);
    return fine && stuck == NOBODY;
}

/* ---- Ways that are drawn -------------------------------------------------------------------- */

static uint32_t draw(uint64_t *random, size_t end)
{
    return (uint32_t)(splitmix(random) % end);
}

/* Harm is drawn rarely, or all of it would come at the beginning. */
static struct world_event draw_event(uint64_t *random, const struct world_event *events,
                                     size_t count)
{
    struct world_event event = events[draw(random, count)];
    for (int i = 0; i < 3 && event.kind >= EVENT_RESET; i++) {
        event = events[draw(random, count)];
    }
    return event;
}

/* NULL: it came to a good end. */
static const char *way_go(const struct test_case *c, uint64_t seed)
{
    struct world_event events[WORLD_EVENTS];
    uint64_t random = seed;
    case_begin(c);
    for (way.length = 0; way.length < WAY_MOST; way.length++) {
        const char *wrong = world_wrong();
        const bool over = wrong == NULL && world_is_over(&wrong);
        const size_t count = world_events(events);
        if (wrong != NULL || (over && (count == 0 || draw(&random, 8) == 0))) {
            return wrong;
        }
        if (count == 0) {
            return "somebody waits for ever";
        }
        way.events[way.length] = draw_event(&random, events, count);
        world_apply(&way.events[way.length]);
    }
    return "it came to no end";
}

static bool case_walk(const struct test_case *c, uint32_t walks)
{
    for (uint32_t i = 0; i < walks; i++) {
        const char *wrong = way_go(c, i);
        if (wrong != NULL) {
            for (uint32_t k = 0; k < way.length / 2; k++) {
                const struct world_event event = way.events[k];
                way.events[k] = way.events[way.length - 1 - k];
                way.events[way.length - 1 - k] = event;
            }
            way_explain(c, wrong);
            return false;
        }
    }
    return true;
}

/* ---- All of them ---------------------------------------------------------------------------- */

struct effort {
    uint32_t states, walks; /* for each case */
    unsigned long ranks;    /* the most ranks whose states are looked at */
    unsigned long harms;
};

/* Runs the case with each kind of harm. */
static bool cases_run(struct test_case c, const struct effort *effort)
{
    static const struct world_harm harms[] = {
        {.deaths = 0}, {.resets = 1}, {.deaths = 1}, {.stops = 1}, {.accusations = 1},
    };
    bool fine = true;
    for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]) && i < effort->harms; i++) {
        c.harm = harms[i];
        fine = (c.n > effort->ranks || case_run(&c, effort->states)) && fine;
        fine = (c.n < WORLD_RANKS - 1 || case_walk(&c, effort->walks)) && fine;
    }
    return fine;
}

int main(int argc, char **argv)
{
    const struct effort effort = {
        .states = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000,
        .ranks = argc > 2 ? strtoul(argv[2], NULL, 10) : 4,
        .walks = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 30,
        .harms = argc > 4 ? strtoul(argv[4], NULL, 10) : 5,
    };
    bool fine = true;
    for (uint8_t n = 2; n <= WORLD_RANKS; n++) {
        for (unsigned how = 0; how < 4u * n; how++) {
            const struct test_case c = {.n = n,
                                        .first = (uint8_t)(how / 4),
                                        .far = (how & 1u) != 0,
                                        .dead = (how & 2u) != 0};
            fine = cases_run(c, &effort) && fine;
        }
    }
    return fine ? 0 : 1;
}
