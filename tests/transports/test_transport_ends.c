/*
 * The contract of transports/transport.h with both ends at work: in two threads, in two processes,
 * and with one end destroyed while the other works. Usage: `test_transport_ends inproc|shm|tcp|rdma
 * [faulty]`
 */
#include "memory/region.h"
#include "runtime/process.h"
#include "runtime/watch.h"
#include "transports/link_stream.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct hoop_transport *transport;

static void test_threads(void **state)
{
    (void)state;
    struct pair pair;
    struct stream send, recv;
    pthread_t thread;
    const hoop_result_t opened = pair_open(&pair, transport, STREAM_SLOTS, STREAM_CHUNK);
    assert_int_equal(opened, HOOP_OK);
    const uint32_t chunks = pair_has_device() ? 1000 : 10000; /* an emulated device is slow */
    assert_true(stream_init(&send, &pair, chunks, 1));
    assert_true(stream_init(&recv, &pair, chunks, 2));
    assert_int_equal(pthread_create(&thread, NULL, stream_send, &send), 0);
    (void)stream_recv(&recv);
    pthread_join(thread, NULL);
    assert_int_equal(recv.result, HOOP_OK);
    assert_int_equal(send.result, HOOP_OK);
    pair_close(&pair);
    free(send.data);
    free(recv.data);
    assert_true(pair_nothing_left());
}

/*
 * One end is destroyed, and its memory overwritten and freed, while the other end works in its own
 * thread. The other end receives the right data, or nothing.
 */
static void check_destroy(uint32_t round, bool sender_first)
{
    static struct pair pair;
    struct stream early, late;
    pthread_t thread;
    _Atomic bool stop_early = false, stop_late = false;
    assert_int_equal(pair_open(&pair, transport, STREAM_SLOTS, STREAM_CHUNK), HOOP_OK);
    assert_true(stream_init(&early, &pair, 1 + round % 23, round));
    assert_true(stream_init(&late, &pair, UINT32_MAX, round + 1));
    early.stop = &stop_early;
    late.stop = &stop_late;
    assert_int_equal(pthread_create(&thread, NULL, sender_first ? stream_recv : stream_send, &late),
                     0);
    struct hoop_link **mine = sender_first ? &pair.sender : &pair.receiver;
    struct item extra;
    (void)(sender_first ? stream_send : stream_recv)(&early);
    if (sender_first && round % 2 == 0) { /* is being sent when the end comes */
        pattern_fill(early.data, stream_bytes(early.count), early.count);
        item_fill(&extra, early.data, stream_bytes(early.count), early.count);
        (void)hoop_link_send(*mine, &extra.xfer);
    }
    hoop_link_destroy(*mine);
    memset(early.data, 0xdd, STREAM_DATA_BYTES);
    free(early.data);
    *mine = NULL;
    for (unsigned i = 0; i < round % 7; i++) {
        sched_yield();
    }
    atomic_store(&stop_late, true);
    pthread_join(thread, NULL);
    assert_int_equal(early.result, HOOP_OK);
    if (sender_first && pair_is_network(&pair) && late.result == HOOP_REMOTE_ERROR) {
        /* a goodbye; in the other direction it takes longer until the end is believed */
        assert_non_null(strstr(pair.receiver->failure.text, "rank 0 has left the communicator"));
    } else {
        assert_int_equal(late.result, HOOP_TIMEOUT); /* it was stopped, nothing else */
    }
    pair_close(&pair);
    free(late.data);
    assert_true(pair_nothing_left());
}

static void test_destroy_under_way(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < (pair_has_device() ? 12 : 120); round++) {
        check_destroy(round, true);
        check_destroy(round, false);
    }
}

/* Two ranks of one process may use shm too, with the very same mapping. */
static hoop_result_t import_own(void *arg, uint32_t peer, uint64_t region_id, uint32_t generation,
                                void **ret_base, uint64_t *ret_bytes)
{
    (void)arg;
    (void)peer;
    const uint64_t me = hoop_process_id();
    const hoop_result_t result = hoop_region_use(me, region_id, generation, ret_base, ret_bytes);
    if (result == HOOP_OK) {
        hoop_region_unuse(me, region_id, generation); /* the receiver's end goes last */
    }
    return result;
}

static void test_same_mapping(void **state)
{
    (void)state;
    struct pair pair = {.slots = STREAM_SLOTS, .chunk_bytes = STREAM_CHUNK};
    struct hoop_link_params sending = pair_params(&pair, true);
    const struct hoop_link_params receiving = pair_params(&pair, false);
    struct stream send, recv;
    pthread_t thread;
    sending.import = import_own;
    assert_int_equal(hoop_link_create(transport, &sending, &pair.sender, &pair.sender_blob, NULL),
                     HOOP_OK);
    assert_int_equal(
        hoop_link_create(transport, &receiving, &pair.receiver, &pair.receiver_blob, NULL),
        HOOP_OK);
    assert_int_equal(pair_bind(pair.sender, &pair.receiver_blob), HOOP_OK);
    assert_int_equal(pair_bind(pair.receiver, &pair.sender_blob), HOOP_OK);
    assert_true(stream_init(&send, &pair, 500, 4));
    assert_true(stream_init(&recv, &pair, 500, 5));
    assert_int_equal(pthread_create(&thread, NULL, stream_send, &send), 0);
    (void)stream_recv(&recv);
    pthread_join(thread, NULL);
    assert_int_equal(send.result, HOOP_OK);
    assert_int_equal(recv.result, HOOP_OK);
    pair_close(&pair);
    free(send.data);
    free(recv.data);
}

/* ---- Two processes --------------------------------------------------------------------------- */

#define FORK_CHUNKS 400u

/* A message between parent (receiver) and child (sender): a blob, or a request for a region, and
 * the answer with its descriptor. */
struct message {
    struct hoop_blob blob;
    uint64_t id, bytes;
    uint32_t generation, kind;
};

static bool message_send(int socket, const struct message *message, int fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } connection = {.space = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = connection.space;
        header.msg_controllen = sizeof(connection.space);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL) == (ssize_t)sizeof(*message);
}

/* The socket has a deadline of its own. */
static bool message_recv(int socket, struct message *message, int *ret_fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } connection;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = connection.space,
                            .msg_controllen = sizeof(connection.space)};
    *ret_fd = -1;
    if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*message)) {
        return false;
    }
    const struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    if (cmsg != NULL && cmsg->cmsg_type == SCM_RIGHTS) {
        memcpy(ret_fd, CMSG_DATA(cmsg), sizeof(*ret_fd));
    }
    return true;
}

/* One process's connections to the other. */
struct contact {
    int messages; /* a socket for messages */
    int stream;   /* the connection of a link over a network, made before the fork */
};

/* The child asks its parent for the region. */
static hoop_result_t import_from_parent(void *arg, uint32_t peer, uint64_t region_id,
                                        uint32_t generation, void **ret_base, uint64_t *ret_bytes)
{
    const int socket = ((const struct contact *)arg)->messages;
    (void)peer;
    struct message question = {.id = region_id, .generation = generation}, answer;
    int fd = -1;
    if (!message_send(socket, &question, -1) || !message_recv(socket, &answer, &fd)) {
        return HOOP_SYSTEM_ERROR;
    }
    const hoop_result_t result = hoop_region_import(PAIR_OTHER_PROCESS, region_id, generation,
                                                    answer.kind, answer.bytes, fd);
    return result != HOOP_OK
               ? result
               : hoop_region_use(PAIR_OTHER_PROCESS, region_id, generation, ret_base, ret_bytes);
}

static hoop_result_t stream_of_contact(void *arg, uint32_t peer, uint32_t lane, bool sending,
                                       const struct hoop_address *address, int *ret_fd,
                                       struct hoop_secret *ret_key)
{
    struct contact *contact = arg;
    (void)peer;
    (void)lane;
    (void)sending;
    (void)address;
    *ret_key = (struct hoop_secret){.bytes = {0}};
    *ret_fd = contact->stream;
    contact->stream = -1;
    return HOOP_OK;
}

static void contact_tell(void *arg, uint32_t peer, uint32_t lane, bool sending,
                         const struct hoop_blob *blob)
{
    const struct message message = {.blob = *blob};
    (void)peer;
    (void)lane;
    (void)sending;
    (void)message_send(((const struct contact *)arg)->messages, &message, -1);
}

static bool contact_hear(void *arg, uint32_t peer, uint32_t lane, bool sending,
                         struct hoop_blob *ret)
{
    struct message message;
    int fd = -1;
    (void)peer;
    (void)lane;
    (void)sending;
    if (!message_recv(((const struct contact *)arg)->messages, &message, &fd)) {
        return false;
    }
    *ret = message.blob;
    return true;
}

static int child_main(struct contact *parent)
{
    const int socket = parent->messages;
    static uint8_t data[STREAM_DATA_BYTES];
    struct pair pair = {.slots = STREAM_SLOTS, .chunk_bytes = STREAM_CHUNK};
    struct hoop_link_params params = pair_params(&pair, true);
    struct stream stream = {.pair = &pair, .count = FORK_CHUNKS, .seed = 8, .data = data};
    struct message mine = {.id = 0}, theirs;
    int fd = -1;
    params.import = import_from_parent;
    params.stream = stream_of_contact;
    params.tell = contact_tell;
    params.hear = contact_hear;
    params.wake = NULL;
    params.arg = parent;
    if (hoop_link_create(transport, &params, &pair.sender, &mine.blob, NULL) != HOOP_OK ||
        !message_send(socket, &mine, -1) || !message_recv(socket, &theirs, &fd) ||
        pair_bind(pair.sender, &theirs.blob) != HOOP_OK) {
        return 1;
    }
    (void)stream_send(&stream);
    hoop_link_destroy(pair.sender);
    return stream.result == HOOP_OK ? 0 : 2;
}

/* What the parent does before the stream: exchanges blobs, and gives the region to the child. */
static bool parent_greet(struct contact *child, struct pair *pair)
{
    const int socket = child->messages;
    struct hoop_link_params params = pair_params(pair, false);
    struct message mine = {.id = 0}, theirs, question, answer = {.id = 0};
    int none = -1, fd = -1;
    params.stream = stream_of_contact;
    params.tell = contact_tell;
    params.hear = contact_hear;
    params.wake = NULL;
    params.arg = child;
    bool fine =
        hoop_link_create(transport, &params, &pair->receiver, &mine.blob, NULL) == HOOP_OK &&
        message_send(socket, &mine, -1) && message_recv(socket, &theirs, &none) &&
        pair_bind(pair->receiver, &theirs.blob) == HOOP_OK;
    if (!pair_is_network(pair)) {
        fine = fine && message_recv(socket, &question, &none) &&
               hoop_region_export(question.id, question.generation, &fd, &answer.bytes,
                                  &answer.kind) == HOOP_OK &&
               message_send(socket, &answer, fd);
    }
    if (fd >= 0) {
        close(fd);
    }
    return fine;
}

static void test_two_processes(void **state)
{
    (void)state;
    const bool fake = strcmp(transport->name, "rdma") == 0 && !pair_has_device();
    if (fake || strcmp(transport->name, "inproc") == 0) {
        return;
    }
    int ends[2], sockets[2];
    const struct timeval deadline = {.tv_sec = STREAM_DEADLINE_MS / 1000};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_true(pair_connect(sockets));
    const pid_t child = fork();
    assert_true(child >= 0);
    const int mine = child == 0;
    struct contact contact = {ends[mine], sockets[mine]};
    close(ends[!mine]);
    hoop_fork_close(sockets[!mine]);
    (void)setsockopt(contact.messages, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
    if (child == 0) {
        _exit(child_main(&contact));
    }
    struct pair pair = {.transport = transport, .slots = STREAM_SLOTS, .chunk_bytes = STREAM_CHUNK};
    struct stream stream;
    assert_true(stream_init(&stream, &pair, FORK_CHUNKS, 9));
    const bool greeted = parent_greet(&contact, &pair);
    if (greeted) {
        (void)stream_recv(&stream);
    }
    close(contact.messages); /* so that a child that still waits for an answer ends */
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(greeted);
    assert_int_equal(stream.result, HOOP_OK);
    assert_int_equal(status, 0);
    pair_close(&pair);
    hoop_fork_close(contact.stream);
    free(stream.data);
    assert_true(pair_nothing_left());
}

int main(int argc, char **argv)
{
    transport = pair_transport(argc, argv);
    if (transport == NULL) {
        (void)fprintf(stderr, "usage: test_transport_ends inproc|shm|tcp|rdma [faulty]\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_destroy_under_way),
        cmocka_unit_test(test_same_mapping),
        cmocka_unit_test(test_two_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
