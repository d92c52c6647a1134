/* See job.h. */
#include "hoopinfo/job.h"
#include "hoopinfo/ask.h"
#include "hoopinfo/json.h"
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 512

struct job {
    struct process *processes;
    size_t count;
};

/* A rank of a comm, in one of the processes. */
struct seat {
    const struct process *process;
    const char *comm; /* its JSON object */
};

static const char *const state_texts[] = {
    [PROCESS_ANSWERED] = "has answered",
    [PROCESS_STOPPED] = "is stopped, by a signal or a debugger",
    [PROCESS_SILENT] = "does not answer: it is ending, or is busy with another hoopinfo",
    [PROCESS_UNREADABLE] = "answers what this hoopinfo cannot read: another version of hoop?",
};

/* Advances over the comms of all processes that answered. Begin with a zeroed seat. */
static bool seat_next(const struct job *job, struct seat *seat)
{
    const struct process *last = job->processes + job->count;
    const struct process *process = seat->process != NULL ? seat->process : job->processes;
    for (; process != NULL && process < last; process++, seat->comm = NULL) {
        if (process->state == PROCESS_ANSWERED) {
            seat->comm = json_next(json_member(process->text, "comms"), seat->comm);
            seat->process = process;
            if (seat->comm != NULL) {
                return true;
            }
        }
    }
    return false;
}

static long long seat_number(const struct seat *seat, const char *key)
{
    return json_number(json_member(seat->comm, key), -1);
}

/* The rank that it waits for, or -1. */
static long long seat_awaits(const struct seat *seat)
{
    return json_number(json_member(json_member(seat->comm, "waiting"), "rank"), -1);
}

static bool seat_is_of(const struct seat *seat, const char *id)
{
    char its[32];
    json_text(json_member(seat->comm, "id"), its, sizeof(its));
    return id[0] != 0 && strcmp(its, id) == 0;
}

/* "comm dp"; its id if it has no name. */
static const char *seat_name(const struct seat *seat, char *ret, size_t bytes)
{
    if (json_text(json_member(seat->comm, "name"), ret, bytes)[0] == 0) {
        json_text(json_member(seat->comm, "id"), ret, bytes);
    }
    return ret;
}

/* The entry of a rank in the comm's list of peers. */
static const char *seat_peer(const struct seat *seat, long long rank)
{
    const char *peers = json_member(seat->comm, "peers");
    const char *at = json_next(peers, NULL);
    while (at != NULL && json_number(json_member(at, "rank"), -1) != rank) {
        at = json_next(peers, at);
    }
    return at;
}

/* ---- What a rank does ----------------------------------------------------------------------- */

static void describe_wait(const struct seat *seat, const char *waiting, char *ret, size_t bytes)
{
    char what[160], whom[96], pid[32] = "";
    const long long rank = seat_awaits(seat);
    const long long its = json_number(json_member(seat_peer(seat, rank), "pid"), 0);
    if (rank >= 0 && its > 0) {
        (void)snprintf(pid, sizeof(pid), " (pid %lld)", its);
    }
    (void)snprintf(ret, bytes, "waits %.1f s in operation %lld, %s, for %s%s",
                   (double)json_number(json_member(waiting, "ms"), 0) / 1e3,
                   json_number(json_member(waiting, "sequence"), 0),
                   json_text(json_member(waiting, "what"), what, sizeof(what)),
                   json_text(json_member(waiting, "for"), whom, sizeof(whom)), pid);
}

static void describe_last(const struct seat *seat, char *ret, size_t bytes)
{
    const char *operations = json_member(seat->comm, "operations");
    const char *last = NULL, *next = NULL;
    char what[160], result[40];
    while ((next = json_next(operations, last)) != NULL) {
        last = next;
    }
    if (last == NULL) {
        (void)snprintf(ret, bytes, "is in no operation, and has not called any yet");
        return;
    }
    json_text(json_member(last, "result"), result, sizeof(result));
    (void)snprintf(ret, bytes, "is in %s %lld, %s",
                   strcmp(result, "HOOP_IN_PROGRESS") == 0 ? "operation"
                                                           : "no operation; its last was",
                   json_number(json_member(last, "sequence"), 0),
                   json_text(json_member(last, "what"), what, sizeof(what)));
}

static const char *describe(const struct seat *seat, char *ret, size_t bytes)
{
    char state[40], failure[TEXT_BYTES - 32];
    const char *waiting = json_member(seat->comm, "waiting");
    json_text(json_member(seat->comm, "state"), state, sizeof(state));
    if (strcmp(state, "HOOP_IN_PROGRESS") == 0) {
        (void)snprintf(ret, bytes, "joins: not all ranks are in yet");
    } else if (strcmp(state, "HOOP_OK") != 0) {
        (void)snprintf(ret, bytes, "has failed: %s",
                       json_text(json_member(seat->comm, "failure"), failure, sizeof(failure)));
    } else if (json_next(waiting, NULL) != NULL) {
        describe_wait(seat, waiting, ret, bytes);
    } else {
        describe_last(seat, ret, bytes);
    }
    return ret;
}

/* ---- Who keeps whom waiting ------------------------------------------------------------------ */

/* Describes what is known of a rank that is waited for. */
static void describe_awaited(const struct job *job, const struct seat *waiter, const char *id,
                             long long rank, char *ret, size_t bytes)
{
    char host[80], mine[80];
    const char *peer = seat_peer(waiter, rank);
    const long long pid = json_number(json_member(peer, "pid"), 0);
    struct seat seat = {.comm = NULL};
    while (seat_next(job, &seat)) {
        if (seat_is_of(&seat, id) && seat_number(&seat, "rank") == rank) {
            describe(&seat, ret, bytes);
            return;
        }
    }
    json_text(json_member(peer, "host"), host, sizeof(host));
    json_text(json_member(seat_peer(waiter, seat_number(waiter, "rank")), "host"), mine,
              sizeof(mine));
    (void)snprintf(ret, bytes, "is unknown here");
    if (strcmp(host, mine) != 0) {
        (void)snprintf(ret, bytes, "is on %s: hoopinfo --job there says more", host);
    }
    for (size_t i = 0; i < job->count; i++) {
        if (pid > 0 && job->processes[i].pid == pid) {
            (void)snprintf(ret, bytes, "%s", state_texts[job->processes[i].state]);
        }
    }
}

/* Does that rank wait for another one itself? */
static bool waits_too(const struct job *job, const char *id, long long rank)
{
    struct seat seat = {.comm = NULL};
    while (seat_next(job, &seat)) {
        if (seat_is_of(&seat, id) && seat_number(&seat, "rank") == rank) {
            return seat_awaits(&seat) >= 0;
        }
    }
    return false;
}

/* Prints why ranks wait for the rank that `first` waits for, if first is the first of them. */
static bool print_cause(const struct job *job, const struct seat *first)
{
    char id[32], text[TEXT_BYTES], name[160];
    unsigned waiters = 0;
    const long long rank = seat_awaits(first);
    struct seat seat = {.comm = NULL};
    json_text(json_member(first->comm, "id"), id, sizeof(id));
    while (rank >= 0 && seat_next(job, &seat)) {
        if (seat_is_of(&seat, id) && seat_awaits(&seat) == rank) {
            if (waiters == 0 && seat.comm != first->comm) {
                return false;
            }
            waiters++;
        }
    }
    if (waiters == 0 || waits_too(job, id, rank)) {
        return false;
    }
    describe_awaited(job, first, id, rank, text, sizeof(text));
    printf("%s: %u rank%s here wait%s for rank %lld, ", seat_name(first, name, sizeof(name)),
           waiters, waiters == 1 ? "" : "s", waiters == 1 ? "s" : "", rank);
    const long long pid = json_number(json_member(seat_peer(first, rank), "pid"), 0);
    if (pid > 0) {
        printf("pid %lld, ", pid);
    }
    printf("which %s\n", text);
    return true;
}

static void print_causes(const struct job *job)
{
    struct seat seat = {.comm = NULL};
    bool any = false, waiting = false;
    while (seat_next(job, &seat)) {
        waiting |= seat_awaits(&seat) >= 0;
        any |= print_cause(job, &seat);
    }
    if (waiting && !any) {
        puts("Every rank that is waited for waits as well: for each other, or only for a moment.");
    }
}

/* ---- Printing ------------------------------------------------------------------------------- */

static void print_streams(const struct process *process)
{
    const char *streams = json_member(process->text, "streams");
    char handle[32], first[160];
    for (const char *at = json_next(streams, NULL); at != NULL; at = json_next(streams, at)) {
        const long long queued = json_number(json_member(at, "queued"), 0);
        if (queued > 0) {
            printf("%-8d %-15s stream %s: %lld queued; first: %s\n", process->pid, process->program,
                   json_text(json_member(at, "stream"), handle, sizeof(handle)), queued,
                   json_text(json_member(at, "first"), first, sizeof(first)));
        }
    }
}

static void print_left_out(const struct process *process)
{
    const long long comms = json_number(json_member(process->text, "left_out"), 0);
    const long long streams = json_number(json_member(process->text, "streams_left_out"), 0);
    if (comms > 0 || streams > 0) {
        printf("%-8d %-15s and %lld more communicators, %lld more streams\n", process->pid,
               process->program, comms, streams);
    }
}

static void print_process(const struct job *job, const struct process *process)
{
    char name[160], text[TEXT_BYTES], place[48];
    struct seat seat = {.comm = NULL};
    unsigned comms = 0;
    while (seat_next(job, &seat)) {
        if (seat.process == process) {
            (void)snprintf(place, sizeof(place), "%lld of %lld", seat_number(&seat, "rank"),
                           seat_number(&seat, "ranks"));
            printf("%-8d %-15s %-16s %-9s %s\n", process->pid, process->program,
                   seat_name(&seat, name, sizeof(name)), place,
                   describe(&seat, text, sizeof(text)));
            comms++;
        }
    }
    if (comms == 0 && json_number(json_member(process->text, "left_out"), 0) <= 0) {
        printf("%-8d %-15s %-16s %-9s %s\n", process->pid, process->program, "-", "-",
               process->state == PROCESS_ANSWERED ? "has no communicator"
                                                  : state_texts[process->state]);
    }
    if (process->state == PROCESS_ANSWERED) {
        print_streams(process);
        print_left_out(process);
    }
}

static void print_table(const struct job *job)
{
    if (job->count == 0) {
        puts("No process that uses hoop is running here.");
        return;
    }
    printf("%-8s %-15s %-16s %-9s %s\n", "PID", "PROGRAM", "COMM", "RANK", "WHAT IT IS AT");
    for (size_t i = 0; i < job->count; i++) {
        print_process(job, &job->processes[i]);
    }
    putchar('\n');
    print_causes(job);
}

static void print_json(const struct job *job)
{
    static const char *const states[] = {"answered", "stopped", "silent", "unreadable"};
    fputs("{\"processes\": [", stdout);
    for (size_t i = 0; i < job->count; i++) {
        const struct process *process = &job->processes[i];
        printf("%s\n {\"pid\": %d, \"uid\": %u, \"program\": ", i > 0 ? "," : "", process->pid,
               process->uid);
        json_quote(process->program, stdout);
        printf(", \"state\": \"%s\", \"report\": ", states[process->state]);
        json_print(process->text != NULL ? process->text : "null", stdout);
        putchar('}');
    }
    puts("]}");
}

int job_print(bool as_json)
{
    struct job job = {.count = 0};
    const int err = processes_ask(&job.processes, &job.count);
    if (err == 0) {
        (as_json ? print_json : print_table)(&job);
    } else {
        fprintf(stderr, "hoopinfo: /proc/net/unix: %s\n", strerror(err));
    }
    processes_free(job.processes, job.count);
    return err == 0 ? 0 : 1;
}
