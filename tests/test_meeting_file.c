/* Files in which ranks meet, and files that hold secrets: what is believed, refused, left behind.
 */
#include "base/clock.h"
#include "meeting_asker.h"
#include "meeting_file.h"
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        const char *sentence; /* NULL: good */
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
         "character 1 of the secret is no hexadecimal digit"},
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
    expect_answer(&answer, HOOP_INVALID_USAGE, "a byte of zero");
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

/* ---- Meetings ----------------------------------------------------------------------------- */

static struct asker start_server(const char *address, int calls)
{
    return asker_start(
        &(struct question){.url = file_url, .n = READERS + 1, .calls = calls, .publish = address});
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

static void await_files(int least)
{
    const uint64_t deadline = hoop_deadline_ns(LONG_MS);
    const struct timespec moment = {.tv_nsec = 1000000};
    while (count_files() < least && hoop_now_ns() < deadline) {
        (void)nanosleep(&moment, NULL);
    }
    assert_true(count_files() >= least);
}

/* The reader got what the server published. */
static void expect_meeting(const struct answer *served, const struct answer *got,
                           const char *address)
{
    char text[HOOP_ADDRESS_TEXT_BYTES];
    expect_answer(got, HOOP_OK, "");
    assert_true(answers_meet(served, got));
    assert_true(got->meeting.has_secret);
    assert_int_equal(got->meeting.address_count, 1);
    hoop_address_format(&got->meeting.addresses[0], text, sizeof(text));
    assert_string_equal(text, address);
    assert_null(got->meeting.file);
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

/* All at once, some before and some after; several calls at one path; twice. */
static void test_file(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        struct asker readers[READERS];
        struct asker server = {.pid = -1};
        char last[HOOP_MEETING_NAME_BYTES] = "";
        for (uint32_t i = 0; i <= READERS; i++) {
            if (i == round) {
                server = start_server("192.0.2.1:7", 3);
            }
            if (i < READERS) {
                readers[i] = start_reader(i + 1, 3);
            }
        }
        for (int call = 0; call < 3; call++) {
            const struct answer served = asker_hear(&server);
            expect_answer(&served, HOOP_OK, "");
            assert_non_null(served.meeting.file);
            assert_int_equal(served.meeting.address_count, 1);
            assert_string_not_equal(served.meeting.name, last);
            memcpy(last, served.meeting.name, sizeof(last));
            for (uint32_t i = 0; i < READERS; i++) {
                const struct answer got = asker_hear(&readers[i]);
                expect_meeting(&served, &got, "192.0.2.1:7");
            }
            asker_tell(&server);
            (void)asker_hear(&server);
        }
        for (uint32_t i = 0; i < READERS; i++) {
            asker_end(&readers[i], 0);
        }
        asker_end(&server, 0);
        expect_cleared();
    }
}

/* A killed job's file and its ranks' traces do not deceive the next job. */
static void test_stale_file(void **state)
{
    struct asker server = start_server("192.0.2.1:7", 1);
    const struct answer dead = asker_hear(&server);
    struct asker lost = start_reader(1, 1);
    (void)state;
    struct answer got = asker_hear(&lost);
    expect_meeting(&dead, &got, "192.0.2.1:7");
    asker_end(&lost, 0);
    asker_end(&server, SIGKILL);
    lost = start_reader(1, 1);
    await_files(2); /* the file and the token */
    asker_end(&lost, SIGKILL);
    struct asker reader = start_reader(2, 1);
    await_files(3);
    assert_true(asker_is_silent(&reader, 300));
    server = start_server("192.0.2.2:8", 1);
    const struct answer served = asker_hear(&server);
    got = asker_hear(&reader);
    assert_false(answers_meet(&dead, &served));
    expect_meeting(&served, &got, "192.0.2.2:8");
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, 0);
    asker_end(&reader, 0);
    expect_cleared();
}

/* Of two servers the later one counts; when it has gone, the other is found again. */
static void test_two_servers(void **state)
{
    struct asker first = start_server("192.0.2.1:1", 1);
    const struct answer one = asker_hear(&first);
    struct asker second = start_server("192.0.2.1:2", 1);
    const struct answer two = asker_hear(&second);
    struct asker reader = start_reader(1, 1);
    (void)state;
    struct answer got = asker_hear(&reader);
    expect_meeting(&two, &got, "192.0.2.1:2");
    asker_end(&reader, 0);
    asker_tell(&second);
    (void)asker_hear(&second);
    asker_end(&second, 0);
    reader = start_reader(1, 1);
    got = asker_hear(&reader);
    expect_meeting(&one, &got, "192.0.2.1:1");
    asker_end(&reader, 0);
    asker_tell(&first);
    (void)asker_hear(&first);
    asker_end(&first, 0);
    expect_cleared();
}

/* The name in the folder of this length: the meeting's file, or somebody's token. */
static void find_file(size_t length, char *ret_path, size_t bytes)
{
    DIR *dir = opendir(file_folder);
    assert_non_null(dir);
    ret_path[0] = 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strlen(entry->d_name) == length) {
            (void)snprintf(ret_path, bytes, "%s/%.200s", file_folder, entry->d_name);
        }
    }
    (void)closedir(dir);
    assert_true(ret_path[0] != 0);
}

static void find_meeting_file(char *ret_path, size_t bytes)
{
    find_file(HOOP_MEETING_KEY_BYTES - 1, ret_path, bytes);
}

/* A file that names the token of whoever is looking, but was not made by who made the rest. */
static void forge_answer(const char *path, const char *bytes, size_t count)
{
    char token[300];
    char forged[400];
    find_file(HOOP_MEETING_KEY_BYTES + 32, token, sizeof(token));
    assert_in_range(count, 100, sizeof(forged) - 16);
    memcpy(forged, bytes, count);
    memset(forged + 12, 0, 4);
    forged[12] = 1; /* token */
    const char *digits = token + strlen(token) - 32;
    for (size_t i = 0; i < 16; i++) {
        const char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
        forged[count + i] = (char)strtoul(pair, NULL, 16);
    }
    write_file(path, forged, count + 16, 0600);
}

/* A file that was cut, changed or filled with anything is no answer, and is replaced. */
static void test_damaged_file(void **state)
{
    char path[300];
    char bytes[400];
    (void)state;
    struct asker server = start_server("192.0.2.1:7", 1);
    (void)asker_hear(&server);
    asker_end(&server, SIGKILL);
    find_meeting_file(path, sizeof(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(fd, bytes, sizeof(bytes));
    close(fd);
    assert_in_range(size, 100, sizeof(bytes) - 1);
    struct asker reader = start_reader(1, 1);
    for (ssize_t cut = 0; cut < size; cut += 7) {
        write_file(path, bytes, (size_t)cut, 0600);
    }
    for (ssize_t at = 0; at < size; at++) {
        bytes[at] = (char)~bytes[at];
        write_file(path, bytes, (size_t)size, 0600);
        bytes[at] = (char)~bytes[at];
    }
    await_files(2);
    forge_answer(path, bytes, (size_t)size);
    assert_true(asker_is_silent(&reader, 200));
    memset(bytes + 12, 0xff, 4); /* 2^32 - 1 tokens */
    write_file(path, bytes, (size_t)size, 0600);
    assert_true(asker_is_silent(&reader, 100));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_true(asker_is_silent(&reader, 100));
    server = start_server("192.0.2.1:8", 1);
    const struct answer served = asker_hear(&server);
    const struct answer got = asker_hear(&reader);
    expect_meeting(&served, &got, "192.0.2.1:8");
    assert_int_equal(unlink(path), 0);
    write_file(path, "?", 1, 0600); /* under a server that lives */
    struct asker late = start_reader(2, 1);
    const struct answer got_late = asker_hear(&late);
    expect_meeting(&served, &got_late, "192.0.2.1:8");
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, 0);
    asker_end(&reader, 0);
    asker_end(&late, 0);
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
    struct asker server = start_server("192.0.2.1:7", 1);
    (void)asker_hear(&server);
    asker_end(&server, SIGKILL);
    answer = ask(&late);
    expect_answer(&answer, HOOP_TIMEOUT, "the file there is not from now; does rank 0 still run?");
    char path[300];
    find_meeting_file(path, sizeof(path));
    write_file(path, "", 0, 0600);
    answer = ask(&late);
    expect_answer(&answer, HOOP_TIMEOUT, "the file there is damaged");
    assert_int_equal(unlink(path), 0);
    answer = ask(&late);
    expect_cleared();
}

/* What could be changed or read by others is refused, at both ends. */
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
    char path[128];
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
    /* everybody may write, but only remove what is theirs: /tmp */
    assert_int_equal(chmod(folder, 01777), 0);
    struct asker server = start_server("192.0.2.1:7", 1);
    const struct answer served = asker_hear(&server);
    expect_answer(&served, HOOP_OK, "");
    struct stat about;
    find_meeting_file(path, sizeof(path));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(file_folder, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    asker_tell(&server);
    (void)asker_hear(&server);
    asker_end(&server, 0);
    assert_int_equal(chmod(folder, 0700), 0);
    expect_cleared();
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/hoop-test-meeting-XXXXXX");
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
        cmocka_unit_test(test_secret_file),  cmocka_unit_test(test_file),
        cmocka_unit_test(test_stale_file),   cmocka_unit_test(test_two_servers),
        cmocka_unit_test(test_damaged_file), cmocka_unit_test(test_file_late),
        cmocka_unit_test(test_file_place),
    };
    return cmocka_run_group_tests_name("meeting_file", tests, make_folder, remove_folder);
}
