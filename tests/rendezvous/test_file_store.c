/* Files in which ranks meet, and files with secrets: what is trusted, what is refused, and what is
 * left behind. */
#include "base/clock.h"
#include "rendezvous/asker.h"
#include "rendezvous/file_store.h"
#include "rendezvous/private_file.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define READERS 6
#define DIGITS "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static char folder[64];      /* of this test, mode 0700 */
static char file_url[96];    /* file://FOLDER/meet */
static char file_folder[96]; /* FOLDER/meet.hoop */

static void write_file(const char *path, const void *bytes, size_t count, mode_t mode)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* ---- Secrets ------------------------------------------------------------------------------ */

static void test_secret_file(void **state)
{
    static const struct {
        const char *text;
        mode_t mode;
        const char *sentence; /* the error text; NULL: success */
    } files[] = {
        {DIGITS, 0600, NULL},
        {DIGITS "\n", 0400, NULL},
        {DIGITS, 0640, "has mode 0640: nobody but its owner may have access (chmod 600)"},
        {DIGITS, 0602, "has mode 0602"},
        {DIGITS, 0604, "has mode 0604"},
        {"", 0600, "has 0 characters; expected 64"},
        {"\n", 0600, "has 1 characters; expected 64"},
        {DIGITS "0", 0600, "has more than 64 characters"},
        {DIGITS "\n\n", 0600, "has more than 64 characters"},
        {DIGITS "\r\n", 0600, "has more than 64 characters"},
        {DIGITS DIGITS, 0600, "has more than 64 characters"},
        {" " DIGITS, 0600, "has more than 64 characters"},
        {"x" DIGITS, 0600, "has more than 64 characters"},
        {"HOOP_SECRET=" DIGITS, 0600, "has more than 64 characters"},
        {"zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 0600,
         "character 1 of the secret is not a hexadecimal digit"},
    };
    char entry[256];
    const char *const env[] = {"WORLD_SIZE=2", "RANK=1", entry, NULL};
    const char *const direct[] = {"WORLD_SIZE=2", "RANK=1", "HOOP_SECRET=" DIGITS, NULL};
    (void)state;
    (void)snprintf(entry, sizeof(entry), "HOOP_SECRET_FILE=%s/secret", folder);
    const char *path = strchr(entry, '/');
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        write_file(path, files[i].text, strlen(files[i].text), files[i].mode);
        const struct answer answer = ask(&(struct question){.env = env});
        if (files[i].sentence == NULL) {
            const struct answer same_secret = ask(&(struct question){.env = direct});
            assert_true(answers_meet(&answer, &same_secret));
        } else {
            expect_answer(&answer, HOOP_INVALID_USAGE, files[i].sentence);
            expect_answer(&answer, HOOP_INVALID_USAGE, path);
            assert_null(strstr(answer.text, "0001020304"));
        }
        assert_int_equal(unlink(path), 0);
    }
    write_file(path, "01\0" DIGITS, 64, 0600);
    struct answer answer = ask(&(struct question){.env = env});
    expect_answer(&answer, HOOP_INVALID_USAGE, "a NUL byte");
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 1, (gid_t)-1), 0);
        answer = ask(&(struct question){.env = env});
        expect_answer(&answer, HOOP_INVALID_USAGE, "belongs to user 1: expected user 0");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    answer = ask(&(struct question){.env = env});
    expect_answer(&answer, HOOP_INVALID_USAGE, "is not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    answer = ask(&(struct question){.env = env});
    expect_answer(&answer, HOOP_INVALID_USAGE, "is not a regular file");
    assert_int_equal(rmdir(path), 0);
}

/* As in a container that does not run as root: the file is root's, and its group may read it. */
static void test_secret_of_root(void **state)
{
    static const struct {
        mode_t mode;
        hoop_result_t result;
    } files[] = {
        {0440, HOOP_OK},
        {0640, HOOP_OK},
        {0400, HOOP_INVALID_USAGE}, /* it can't be opened */
        {0460, HOOP_INVALID_USAGE},
        {0450, HOOP_INVALID_USAGE},
        {0444, HOOP_INVALID_USAGE},
        {0442, HOOP_INVALID_USAGE},
    };
    char path[96];
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: makes a file of root's\n");
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/secret", folder);
    assert_int_equal(chmod(folder, 0711), 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int status = 0;
        write_file(path, DIGITS, strlen(DIGITS), files[i].mode);
        assert_int_equal(chown(path, 0, 1), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            struct hoop_secret secret;
            const bool dropped = setgroups(0, NULL) == 0 && setgid(1) == 0 && setuid(1) == 0;
            _exit(dropped && hoop_secret_read(path, &secret) == files[i].result ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(chmod(folder, 0700), 0);
}

/* ---- Rendezvous ----------------------------------------------------------------------------- */

static struct asker start_server(int calls)
{
    return asker_start(&(struct question){
        .url = file_url, .n = READERS + 1, .calls = calls, .publish = "127.0.0.1"});
}

static struct asker start_reader(uint32_t rank, int calls)
{
    return asker_start(
        &(struct question){.url = file_url, .n = READERS + 1, .rank = rank, .calls = calls});
}

static int count_files(void)
{
    DIR *dir = opendir(file_folder);
    int count = 0;
    if (dir == NULL) {
        return -1;
    }
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        count += entry->d_name[0] != '.' ? 1 : 0;
    }
    (void)closedir(dir);
    return count;
}

/* The reader got what the server has published. */
static void expect_meeting(const struct answer *served, const struct answer *got)
{
    expect_answer(got, HOOP_OK, "");
    assert_true(answers_meet(served, got));
    assert_int_equal(got->rendezvous.address_count, 1);
    assert_memory_equal(&got->rendezvous.addresses[0], &served->rendezvous.addresses[0],
                        sizeof(struct hoop_address));
    assert_null(got->rendezvous.file);
}

static void expect_cleared(void)
{
    const uint64_t deadline = hoop_deadline_ns(LONG_MS);
    while (count_files() != -1 && hoop_now_ns() < deadline) {
        const struct timespec moment = {.tv_nsec = 1000000};
        (void)nanosleep(&moment, NULL);
    }
    assert_int_equal(count_files(), -1);
}

/* All ranks at once, some earlier and some later; several calls with one path; all of it twice. */
static void test_file(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        struct asker readers[READERS];
        struct asker server;
        char last[HOOP_NAME_BYTES] = "";
        for (uint32_t i = 0; i <= READERS; i++) {
            if (i == round) {
                server = start_server(3);
            }
            if (i < READERS) {
                readers[i] = start_reader(i + 1, 3);
            }
        }
        for (int call = 0; call < 3; call++) {
            const struct answer served = asker_hear(&server);
            expect_answer(&served, HOOP_OK, "");
            assert_non_null(served.rendezvous.file);
            assert_int_equal(served.rendezvous.address_count, 1);
            assert_string_not_equal(served.rendezvous.name, last);
            memcpy(last, served.rendezvous.name, sizeof(last));
            for (uint32_t i = 0; i < READERS; i++) {
                const struct answer got = asker_hear(&readers[i]);
                expect_meeting(&served, &got);
            }
            asker_tell(&server);
            (void)asker_hear(&server);
        }
        for (uint32_t i = 0; i < READERS; i++) {
            asker_end(&readers[i], false);
        }
        asker_end(&server, false);
        expect_cleared();
    }
}

/* Finds the rendezvous's file. */
static void find_file(char *ret_path, size_t bytes)
{
    DIR *dir = opendir(file_folder);
    assert_non_null(dir);
    ret_path[0] = 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strlen(entry->d_name) == HOOP_RENDEZVOUS_KEY_BYTES - 1) {
            (void)snprintf(ret_path, bytes, "%s/%.32s", file_folder, entry->d_name);
        }
    }
    (void)closedir(dir);
}

/* Waits until there is a file whose inode number is not this one (0: any). Returns the number. The
 * file is written by a thread of rank 0. */
static ino_t await_file(ino_t before)
{
    const uint64_t deadline = hoop_deadline_ns(LONG_MS);
    const struct timespec moment = {.tv_nsec = 1000000};
    struct stat about = {.st_ino = before};
    while (about.st_ino == before && hoop_now_ns() < deadline) {
        char path[300] = "";
        (void)nanosleep(&moment, NULL);
        if (count_files() > 0) {
            find_file(path, sizeof(path));
        }
        if (path[0] == 0 || stat(path, &about) != 0) {
            about.st_ino = before;
        }
    }
    assert_true(about.st_ino != before);
    return about.st_ino;
}

/* The file of a killed job does not mislead the next job. */
static void test_stale_file(void **state)
{
    struct asker server = start_server(1);
    const struct answer dead = asker_hear(&server);
    struct asker lost = start_reader(1, 1);
    (void)state;
    struct answer got = asker_hear(&lost);
    expect_meeting(&dead, &got);
    asker_end(&lost, false);
    asker_end(&server, true);
    assert_int_equal(count_files(), 1);
    struct asker reader = start_reader(2, 1);
    assert_true(asker_is_silent(&reader, 300));
    server = start_server(1);
    const struct answer served = asker_hear(&server);
    got = asker_hear(&reader);
    assert_false(answers_meet(&dead, &served));
    expect_meeting(&served, &got);
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, false);
    asker_end(&reader, false);
    expect_cleared();
}

/* Of two servers the later one counts. When that has gone the other is found again. */
static void test_two_servers(void **state)
{
    struct asker first = start_server(1);
    const struct answer one = asker_hear(&first);
    const ino_t file = await_file(0);
    struct asker second = start_server(1);
    const struct answer two = asker_hear(&second);
    (void)await_file(file);
    struct asker reader = start_reader(1, 1);
    (void)state;
    struct answer got = asker_hear(&reader);
    expect_meeting(&two, &got);
    asker_end(&reader, false);
    asker_tell(&second);
    (void)asker_hear(&second);
    asker_end(&second, false);
    reader = start_reader(1, 1);
    got = asker_hear(&reader);
    expect_meeting(&one, &got);
    asker_end(&reader, false);
    asker_tell(&first);
    (void)asker_hear(&first);
    asker_end(&first, false);
    expect_cleared();
}

/* A file that was cut off, changed or overwritten is no answer, and is replaced. */
static void test_damaged_file(void **state)
{
    char path[300];
    char bytes[400];
    (void)state;
    struct asker server = start_server(1);
    const struct answer dead = asker_hear(&server);
    (void)await_file(0);
    asker_end(&server, true);
    find_file(path, sizeof(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(fd, bytes, sizeof(bytes));
    close(fd);
    assert_in_range(size, 64, sizeof(bytes) - 1);
    struct asker reader = start_reader(1, 1);
    for (ssize_t cut = 0; cut < size; cut += 7) {
        write_file(path, bytes, (size_t)cut, 0600);
    }
    for (ssize_t at = 0; at < size; at++) {
        bytes[at] = (char)~bytes[at];
        write_file(path, bytes, (size_t)size, 0600);
        bytes[at] = (char)~bytes[at];
    }
    assert_true(asker_is_silent(&reader, 200));
    /* somebody listens there, but can't prove itself */
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage at;
    const socklen_t at_bytes = hoop_address_to_sockaddr(&dead.rendezvous.addresses[0], &at);
    const int one = 1;
    assert_int_equal(setsockopt(stranger, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(stranger, (struct sockaddr *)&at, at_bytes), 0);
    assert_int_equal(listen(stranger, 8), 0);
    write_file(path, bytes, (size_t)size, 0600);
    assert_true(asker_is_silent(&reader, 200));
    close(stranger);
    write_file(path, bytes, (size_t)size - 1, 0600);
    assert_true(asker_is_silent(&reader, 100));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_true(asker_is_silent(&reader, 100));
    server = start_server(1);
    const struct answer served = asker_hear(&server);
    const struct answer got = asker_hear(&reader);
    expect_meeting(&served, &got);
    assert_int_equal(unlink(path), 0);
    write_file(path, "?", 1, 0600); /* while a server serves it */
    struct asker late = start_reader(2, 1);
    const struct answer got_late = asker_hear(&late);
    expect_meeting(&served, &got_late);
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, false);
    asker_end(&reader, false);
    asker_end(&late, false);
    expect_cleared();
}

static void test_file_late(void **state)
{
    const struct question late = {.url = file_url, .n = 2, .rank = 1, .timeout_ms = 50, .calls = 1};
    (void)state;
    struct answer answer = ask(&late);
    expect_answer(&answer, HOOP_TIMEOUT, "rank 0 did not say within 50 ms in ");
    expect_answer(&answer, HOOP_TIMEOUT, file_folder);
    expect_cleared();
    struct asker server = start_server(1);
    (void)asker_hear(&server);
    (void)await_file(0);
    asker_end(&server, true);
    answer = ask(&late);
    expect_answer(&answer, HOOP_TIMEOUT, "the file there says 127.0.0.1:");
    expect_answer(&answer, HOOP_TIMEOUT,
                  ", where nobody of this job answers; does rank 0 still run?");
    char path[300];
    find_file(path, sizeof(path));
    write_file(path, "", 0, 0600);
    answer = ask(&late);
    expect_answer(&answer, HOOP_TIMEOUT, "the file there is damaged");
    assert_int_equal(unlink(path), 0);
    answer = ask(&late);
    expect_cleared();
}

/* Files that others could change or read are refused, by readers and by servers. */
static void expect_refused(const char *sentence)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct answer answer =
            ask(&(struct question){.url = file_url, .n = 2, .rank = rank, .timeout_ms = 500});
        expect_answer(&answer, HOOP_INVALID_USAGE, sentence);
    }
}

static void test_file_place(void **state)
{
    char path[300];
    (void)state;
    assert_int_equal(chmod(folder, 0777), 0);
    expect_refused("mode 0777: everybody may replace what is in it");
    assert_int_equal(chmod(folder, 0703), 0);
    expect_refused("mode 0703: everybody may replace what is in it");
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(mkdir(file_folder, 0755), 0);
    assert_int_equal(chmod(file_folder, 0750), 0);
    expect_refused("has mode 0750: nobody but its owner may have access (chmod 700)");
    if (geteuid() == 0) {
        assert_int_equal(chmod(file_folder, 0700), 0);
        assert_int_equal(chown(file_folder, 1, (gid_t)-1), 0);
        expect_refused("belongs to user 1: expected user 0");
    }
    assert_int_equal(rmdir(file_folder), 0);
    assert_int_equal(symlink(folder, file_folder), 0);
    expect_refused("cannot open the directory");
    assert_int_equal(unlink(file_folder), 0);
    write_file(file_folder, "", 0, 0600);
    expect_refused("cannot open the directory");
    assert_int_equal(unlink(file_folder), 0);
    for (size_t i = 0; i < 4; i++) {
        static const char *const ends[] = {"", "/.", "/..", "/no/such/place"};
        (void)snprintf(path, sizeof(path), "file://%s/%s", folder, ends[i]);
        const struct answer answer = ask(&(struct question){.url = path, .n = 2, .rank = 1});
        expect_answer(&answer, HOOP_INVALID_USAGE,
                      i < 3 ? "is not the absolute path of a file" : "ENOENT");
    }
    /* as in /tmp, all may write, but may remove only their own files */
    assert_int_equal(chmod(folder, 01777), 0);
    struct asker server = start_server(1);
    const struct answer served = asker_hear(&server);
    expect_answer(&served, HOOP_OK, "");
    struct stat about;
    (void)await_file(0);
    find_file(path, sizeof(path));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(file_folder, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, false);
    assert_int_equal(chmod(folder, 0700), 0);
    expect_cleared();
}

/* ---- A file system that hangs --------------------------------------------------------------- */

static int hang_s; /* how many seconds mkdir() takes for the folder in which ranks meet */

int mkdir(const char *path, mode_t mode)
{
    if (hang_s > 0 && strstr(path, ".hoop") != NULL) {
        sleep((unsigned)hang_s);
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static void test_hanging(void **state)
{
    (void)state;
    hang_s = LONG_MS / 1000;
    for (uint32_t rank = 0; rank < 2; rank++) {
        const uint64_t start = hoop_now_ns();
        const struct answer answer =
            ask(&(struct question){.url = file_url, .n = 2, .rank = rank, .timeout_ms = 300});
        expect_answer(&answer, HOOP_TIMEOUT, "did not answer within 300 ms");
        assert_true(hoop_now_ns() - start < 5000 * HOOP_NS_PER_MS);
    }
    hang_s = 0;
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/hoop-test-rendezvous-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(file_url, sizeof(file_url), "file://%s/meet", folder);
    (void)snprintf(file_folder, sizeof(file_folder), "%s/meet.hoop", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secret_file), cmocka_unit_test(test_secret_of_root),
        cmocka_unit_test(test_file),        cmocka_unit_test(test_stale_file),
        cmocka_unit_test(test_two_servers), cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_file_late),   cmocka_unit_test(test_file_place),
        cmocka_unit_test(test_hanging),
    };
    return cmocka_run_group_tests_name("file_store", tests, make_folder, remove_folder);
}
