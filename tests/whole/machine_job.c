/* Ranks on several machines; see machine_job.h. */
#include "whole/machine_job.h"
#include "control/connection.h"
#include "control/endpoint.h"
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct machine_job job;

/* Is this port of loopback free? */
static bool job_is_free(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool is_free = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_free;
}

/* A free port that the kernel does not use for outgoing connections, which might take it any
 * time. */
static uint16_t job_port(void)
{
    uint16_t port = 0;
    do {
        assert_int_equal(hoop_random(&port, sizeof(port)), HOOP_OK);
        port = (uint16_t)(20000 + port % 12000);
    } while (!job_is_free(port));
    return port;
}

struct hoop_rendezvous job_meeting(uint32_t addresses)
{
    struct hoop_rendezvous rendezvous;
    assert_int_equal(hoop_rendezvous_random(&rendezvous), HOOP_OK);
    rendezvous.address_count = addresses;
    for (uint32_t i = 0; i < addresses; i++) {
        rendezvous.addresses[i] =
            (struct hoop_address){.family = 4, .port = job_port(), .ip = {127, 0, 0, 1}};
    }
    return rendezvous;
}

void job_place(uint32_t n, uint32_t machines, bool blocks)
{
    const struct hoop_rendezvous rendezvous = job_meeting(1);
    job.n = n;
    job.machines = machines;
    for (uint32_t i = 0; i < n; i++) {
        job.machine_of[i] = blocks ? i / (n / machines) : i % machines;
        rank_init(&job.ranks[i], &rendezvous, n, i);
        job.ranks[i].join.dead_after_ms = 60000;
        (void)snprintf(job.ranks[i].host_id, sizeof(job.ranks[i].host_id), "m%u",
                       job.machine_of[i]);
    }
}

void job_spawn(void)
{
    for (uint32_t i = 0; i < job.n; i++) {
        assert_int_equal(rank_spawn(&job.ranks[i], NULL), 0);
    }
}

void job_join(void)
{
    job_spawn();
    for (uint32_t i = 0; i < job.n; i++) {
        assert_true(rank_line(&job.ranks[i], "joined", JOB_LONG_MS));
    }
}

void job_finish(void)
{
    for (uint32_t i = 0; i < job.n; i++) {
        rank_finish(&job.ranks[i]);
    }
}

void job_expect(const char *line, uint32_t but, uint32_t but_machine)
{
    for (uint32_t i = 0; i < job.n; i++) {
        if (i != but && job.machine_of[i] != but_machine) {
            assert_true(rank_line(&job.ranks[i], line, JOB_LONG_MS));
        }
    }
}

/* The answer to a question comes after everything that was reported before it. */
void job_expect_nothing(uint32_t but)
{
    for (uint32_t i = 0; i < job.n; i++) {
        if (i != but) {
            rank_command(&job.ranks[i], "gate");
            assert_true(rank_line(&job.ranks[i], "gate ", JOB_LONG_MS));
        }
    }
}

bool job_is_gate(uint32_t rank)
{
    rank_command(&job.ranks[rank], "gate");
    assert_true(rank_line(&job.ranks[rank], "gate ", JOB_LONG_MS));
    return strcmp(job.ranks[rank].line, "gate 1") == 0;
}

uint32_t job_find(bool gate, uint32_t from)
{
    for (uint32_t i = 0; i < job.n; i++) {
        if (job.machine_of[i] >= from && job_is_gate(i) == gate) {
            return i;
        }
    }
    fail_msg("no such rank");
    return 0;
}
