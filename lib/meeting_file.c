/*
 * Meetings at a file; see meeting_file.h.
 *
 * What a file says may be long over: a job that was killed leaves its own behind, and nothing in it
 * tells that nobody lives there any more. So nobody believes a file that does not answer:
 *
 *      rank r                               rank 0
 *      makes KEY.TOKEN, a fresh random name
 *                                           reads the directory: KEY.TOKEN
 *                                           writes KEY: {name, secret, address, TOKEN, ...}
 *      reads KEY; TOKEN is in it: this was
 *      written after I asked. Removes
 *      KEY.TOKEN, joins
 *                                           all are in: removes KEY and the directory
 *
 * That needs no clock, no lock and no order of arrival, and holds on any file system that shows a
 * directory's changes to other machines sooner or later. NFS does that late, from caches, unless
 * the directory is changed from here: whoever looks in vain makes and removes a file now and then.
 * The alternatives: a sign that changes all the time is believed wrongly where a cache shows two
 * old ones; locks are not what they seem on network file systems.
 *
 * KEY is written to another name and renamed, so that nobody reads half of it. It is not synced to
 * disk: it is of use only while its writer lives.
 *
 * Everything lies in a directory of mode 0700 that is this user's: others can at most be in the
 * way. Rank 0 works with files on the service thread, in small portions, while ranks are missing.
 */
#include "meeting_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "private.h"
#include "wait.h"
#include "watch.h"
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAGIC "hoop-at"
#define FILE_VERSION 1u
#define FILE_PATH_BYTES 2048
#define FILE_TOKENS_MAX 65536u
#define FILE_TOKEN_BYTES 16u
#define FILE_KEY_DIGITS (HOOP_MEETING_KEY_BYTES - 1u)
/* KEY, a dot, and a token's digits or another word. */
#define FILE_NAME_BYTES (HOOP_MEETING_KEY_BYTES + 1u + 2u * FILE_TOKEN_BYTES)
#define FILE_LOOK_FIRST_MS 2u
#define FILE_LOOK_LAST_MS 50u
#define FILE_STIR_FIRST_MS 250u
#define FILE_STIR_LAST_MS 2000u
#define POST_LOOKS_A_STIR 8u

struct file_head {
    char magic[8];
    uint32_t version;
    uint32_t count; /* tokens that follow */
    char name[HOOP_MEETING_NAME_BYTES];
    uint8_t secret[HOOP_SECRET_BYTES];
    struct hoop_address address;
    uint8_t check[HOOP_MAC_BYTES]; /* of all the rest, by the secret */
};
_Static_assert(sizeof(struct file_head) == 8 + 8 + 64 + 32 + 24 + 32, "file layout");

struct file_token {
    uint8_t bytes[FILE_TOKEN_BYTES];
};

/* A meeting that is published here. */
struct file_post {
    struct file_post *next;
    char *file;
    struct hoop_timer *timer;
    uint64_t look_ms; /* until the next look */
    uint32_t looks;
    struct file_token me; /* for names that nobody else makes */
    struct file_head head;
    struct file_token *tokens; /* [count], room for more */
    size_t count, room;
    uint64_t sum[2]; /* of the tokens that the file answers */
    bool complained;
};

static struct file_post *file_posts; /* service thread */

void hoop_meeting_pause(uint64_t ms)
{
    struct hoop_job never;
    assert(ms > 0);
    hoop_job_init(&never);
    (void)hoop_job_wait(&never, hoop_deadline_ns(ms), NULL);
    hoop_job_finish(&never);
}

/* ---- The directory ------------------------------------------------------------------------ */

static const char *file_key(const char *file)
{
    return strrchr(file, '/') + 1;
}

static void file_directory(const char *file, char ret[FILE_PATH_BYTES])
{
    (void)snprintf(ret, FILE_PATH_BYTES, "%.*s", (int)(file_key(file) - 1 - file), file);
}

static hoop_result_t file_enter(const char *file, int *ret_fd)
{
    char directory[FILE_PATH_BYTES];
    file_directory(file, directory);
    return hoop_private_enter(directory, ret_fd);
}

hoop_result_t hoop_meeting_file_create(const char *path, const char key[HOOP_MEETING_KEY_BYTES],
                                       char **ret_file)
{
    char file[FILE_PATH_BYTES];
    const char *base = strrchr(path, '/');
    int fd = -1;
    if (path[0] != '/' || base[1] == 0 || strcmp(base, "/.") == 0 || strcmp(base, "/..") == 0 ||
        strlen(path) + FILE_NAME_BYTES + sizeof(".hoop/") > sizeof(file)) {
        return hoop_error(HOOP_INVALID_USAGE,
                          "\"%.200s\" is not the absolute path of a file, shorter than %zu", path,
                          sizeof(file) - FILE_NAME_BYTES - sizeof(".hoop/"));
    }
    (void)snprintf(file, sizeof(file), "%s.hoop/%s", path, key);
    hoop_result_t result = hoop_private_check_place(path);
    if (result == HOOP_OK) {
        result = file_enter(file, &fd);
    }
    if (result != HOOP_OK && result != HOOP_AGAIN) {
        return result;
    }
    if (fd >= 0) {
        close(fd);
    }
    *ret_file = strdup(file);
    return *ret_file != NULL ? HOOP_OK : hoop_error(HOOP_OUT_OF_MEMORY, "no memory for a path");
}

/* ---- Tokens ------------------------------------------------------------------------------- */

static void file_stir(int directory, const char *key, const struct file_token *me)
{
    char name[FILE_NAME_BYTES];
    uint32_t number = 0;
    memcpy(&number, me, sizeof(number));
    (void)snprintf(name, sizeof(name), "%s.stir%08x", key, number);
    hoop_private_stir(directory, name);
}

static void file_token_name(const char *key, const struct file_token *token,
                            char ret_name[FILE_NAME_BYTES])
{
    size_t at = (size_t)snprintf(ret_name, FILE_NAME_BYTES, "%s.", key);
    for (size_t i = 0; i < FILE_TOKEN_BYTES; i++) {
        at += (size_t)snprintf(ret_name + at, FILE_NAME_BYTES - at, "%02x", token->bytes[i]);
    }
}

static bool file_token_parse(const char *key, const char *name, struct file_token *ret_token)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(name) != FILE_NAME_BYTES - 1 || memcmp(name, key, FILE_KEY_DIGITS) != 0 ||
        name[FILE_KEY_DIGITS] != '.') {
        return false;
    }
    name += FILE_KEY_DIGITS + 1;
    for (size_t i = 0; i < FILE_TOKEN_BYTES; i++) {
        const char *high = strchr(digits, name[2 * i]);
        const char *low = strchr(digits, name[2 * i + 1]);
        if (high == NULL || low == NULL) {
            return false;
        }
        ret_token->bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return true;
}

static hoop_result_t file_mac(const struct file_head *head, const struct file_token *tokens,
                              uint8_t ret_mac[HOOP_MAC_BYTES])
{
    struct file_head plain = *head;
    struct hoop_secret secret;
    memcpy(secret.bytes, head->secret, sizeof(secret.bytes));
    memset(plain.check, 0, sizeof(plain.check));
    const hoop_result_t result = hoop_hmac(&secret, "hoop meeting file", &plain, sizeof(plain),
                                           tokens, head->count * sizeof(*tokens), ret_mac);
    hoop_secret_wipe(&secret, sizeof(secret));
    hoop_secret_wipe(&plain, sizeof(plain));
    return result;
}

/* ---- Reading ------------------------------------------------------------------------------ */

static bool file_head_ok(const struct file_head *head, uint64_t bytes)
{
    return memcmp(head->magic, FILE_MAGIC, sizeof(head->magic)) == 0 &&
           head->version == FILE_VERSION && head->count <= FILE_TOKENS_MAX &&
           bytes == sizeof(*head) + head->count * sizeof(struct file_token) && head->name[0] != 0 &&
           memchr(head->name, 0, sizeof(head->name)) != NULL &&
           hoop_address_is_valid(&head->address) && head->address.family != 0 &&
           head->address.port != 0;
}

enum file_found { FILE_NOTHING, FILE_BROKEN, FILE_OF_OTHERS, FILE_ANSWER };

/*
 * A file that is whole, for all that its form can tell (FILE_OF_OTHERS, for want of a closer look),
 * or not. *ret_tokens is to be freed in any case.
 */
static enum file_found file_read(int directory, const char *key, struct file_head *ret_head,
                                 struct file_token **ret_tokens)
{
    uint64_t bytes = 0;
    bool good = false;
    const int fd = hoop_private_open(directory, key, &bytes);
    if (fd < 0) {
        return FILE_NOTHING;
    }
    if (hoop_private_read(fd, ret_head, sizeof(*ret_head)) && file_head_ok(ret_head, bytes)) {
        const size_t left = ret_head->count * sizeof(struct file_token);
        *ret_tokens = malloc(left + 1);
        good = *ret_tokens != NULL && hoop_private_read(fd, *ret_tokens, left);
    }
    close(fd);
    return good ? FILE_OF_OTHERS : FILE_BROKEN;
}

static bool file_answers(const struct file_head *head, const struct file_token *tokens,
                         const struct file_token *me)
{
    uint8_t mac[HOOP_MAC_BYTES];
    uint32_t i = 0;
    while (i < head->count && memcmp(&tokens[i], me, sizeof(*me)) != 0) {
        i++;
    }
    return i < head->count && file_mac(head, tokens, mac) == HOOP_OK &&
           hoop_mac_equal(mac, head->check);
}

/* Does the file answer me? */
static enum file_found file_look(int directory, const char *key, const struct file_token *me,
                                 struct hoop_meeting *ret)
{
    struct file_head head;
    struct file_token *tokens = NULL;
    enum file_found found = file_read(directory, key, &head, &tokens);
    if (found == FILE_OF_OTHERS && file_answers(&head, tokens, me)) {
        found = FILE_ANSWER;
        memcpy(ret->name, head.name, sizeof(ret->name));
        memcpy(ret->secret.bytes, head.secret, sizeof(ret->secret.bytes));
        ret->has_secret = true;
        ret->address_count = 1;
        ret->addresses[0] = head.address;
    }
    hoop_secret_wipe(&head, sizeof(head));
    free(tokens);
    return found;
}

/* ---- Waiting for rank 0 ------------------------------------------------------------------- */

static hoop_result_t file_late(const char *file, uint64_t timeout_ms, enum file_found found)
{
    static const char *const ends[] = {
        [FILE_NOTHING] = "",
        [FILE_BROKEN] = ": the file there is damaged",
        [FILE_OF_OTHERS] = ": the file there is not from now; does rank 0 still run?",
    };
    char directory[FILE_PATH_BYTES];
    file_directory(file, directory);
    return hoop_error(HOOP_TIMEOUT,
                      "rank 0 did not say within %llu ms in %.160s where it is%s (all ranks must "
                      "name the same path, on a file system that they share)",
                      (unsigned long long)timeout_ms, directory, ends[found]);
}

/* Leaves my token, and looks for an answer. */
static hoop_result_t file_ask(const char *file, const struct file_token *me, bool stir,
                              struct hoop_meeting *ret, enum file_found *ret_found)
{
    const char *key = file_key(file);
    char name[FILE_NAME_BYTES];
    int directory = -1;
    hoop_result_t result = file_enter(file, &directory);
    if (result != HOOP_OK) {
        return result;
    }
    if (stir) {
        file_stir(directory, key, me);
    }
    file_token_name(key, me, name);
    result = hoop_private_touch(directory, name);
    if (result == HOOP_OK) {
        *ret_found = file_look(directory, key, me, ret);
    }
    close(directory);
    return result;
}

/* Takes my token back; and the directory, if nothing else is in it. */
static void file_stop_asking(const char *file, const struct file_token *me, bool last)
{
    char path[FILE_PATH_BYTES + FILE_NAME_BYTES];
    file_directory(file, path);
    const size_t length = strlen(path);
    path[length] = '/';
    file_token_name(file_key(file), me, path + length + 1);
    (void)unlink(path);
    path[length] = 0;
    if (last) {
        (void)rmdir(path);
    }
}

hoop_result_t hoop_meeting_file_await(const char *file, uint64_t timeout_ms,
                                      struct hoop_meeting *ret)
{
    const uint64_t deadline = hoop_deadline_ns(timeout_ms);
    uint64_t look_ms = FILE_LOOK_FIRST_MS;
    uint64_t stir_ms = FILE_STIR_FIRST_MS;
    uint64_t stir_at = hoop_deadline_ns(stir_ms);
    enum file_found found = FILE_NOTHING;
    struct file_token me;
    assert(timeout_ms > 0);
    hoop_result_t result = hoop_random(&me, sizeof(me));
    if (result != HOOP_OK) {
        return result;
    }
    for (;;) {
        const uint64_t now = hoop_now_ns();
        const bool stir = now >= stir_at;
        if (stir) {
            stir_ms = stir_ms * 2 < FILE_STIR_LAST_MS ? stir_ms * 2 : FILE_STIR_LAST_MS;
            stir_at = now + stir_ms * HOOP_NS_PER_MS;
        }
        result = file_ask(file, &me, stir, ret, &found);
        if ((result != HOOP_OK && result != HOOP_AGAIN) || found == FILE_ANSWER) {
            break;
        }
        if (now >= deadline) {
            result = file_late(file, timeout_ms, found);
            break;
        }
        hoop_meeting_pause(look_ms);
        look_ms = look_ms * 2 < FILE_LOOK_LAST_MS ? look_ms * 2 : FILE_LOOK_LAST_MS;
    }
    file_stop_asking(file, &me, found != FILE_ANSWER);
    return result;
}

/* ---- Publishing --------------------------------------------------------------------------- */

static hoop_result_t post_write(struct file_post *post, int directory)
{
    const struct iovec parts[] = {{&post->head, sizeof(post->head)},
                                  {post->tokens, post->count * sizeof(*post->tokens)}};
    const char *key = file_key(post->file);
    char temporary[FILE_NAME_BYTES];
    (void)snprintf(temporary, sizeof(temporary), "%s.new", key);
    post->head.count = (uint32_t)post->count;
    const hoop_result_t result = file_mac(&post->head, post->tokens, post->head.check);
    return result == HOOP_OK ? hoop_private_replace(directory, key, temporary, parts, 2) : result;
}

static bool post_keep(struct file_post *post, const struct file_token *token)
{
    if (post->count == post->room) {
        const size_t room = post->room == 0 ? 64 : 2 * post->room;
        struct file_token *tokens =
            room <= FILE_TOKENS_MAX ? realloc(post->tokens, room * sizeof(*tokens)) : NULL;
        if (tokens == NULL) {
            return false; /* who is not answered, asks again */
        }
        post->tokens = tokens;
        post->room = room;
    }
    post->tokens[post->count++] = *token;
    return true;
}

/* Who is looking now, and the sum of their tokens. directory is closed. */
static bool post_collect(struct file_post *post, int directory, uint64_t ret_sum[2])
{
    struct file_token token;
    DIR *entries = fdopendir(directory);
    if (entries == NULL) {
        close(directory);
        return false;
    }
    ret_sum[0] = ret_sum[1] = 0;
    post->count = 0;
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (file_token_parse(file_key(post->file), entry->d_name, &token) &&
            post_keep(post, &token)) {
            uint64_t words[2];
            memcpy(words, &token, sizeof(words));
            ret_sum[0] += words[0]; /* in any order: random numbers */
            ret_sum[1] += words[1];
        }
    }
    (void)closedir(entries);
    return true;
}

/* Whose file is there? */
static enum file_found post_find(const struct file_post *post, int directory)
{
    struct file_head head;
    struct file_token *tokens = NULL;
    enum file_found found = file_read(directory, file_key(post->file), &head, &tokens);
    if (found == FILE_OF_OTHERS && memcmp(head.name, post->head.name, sizeof(head.name)) == 0) {
        found = FILE_ANSWER;
    }
    hoop_secret_wipe(&head, sizeof(head));
    free(tokens);
    return found;
}

/* Answers who is looking. HOOP_AGAIN: nothing could be done now. */
static hoop_result_t post_answer(struct file_post *post, bool first)
{
    int directory = -1;
    hoop_result_t result = file_enter(post->file, &directory);
    if (result != HOOP_OK) {
        return result;
    }
    const enum file_found found = first ? FILE_NOTHING : post_find(post, directory);
    if (found == FILE_OF_OTHERS) {
        close(directory);
        return hoop_error(HOOP_INVALID_USAGE,
                          "another job meets at %.200s: this one is not found there any more",
                          post->file);
    }
    if (++post->looks % POST_LOOKS_A_STIR == 0) {
        file_stir(directory, file_key(post->file), &post->me);
    }
    uint64_t sum[2] = {post->sum[0], post->sum[1]};
    const int entries = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool read = entries >= 0 && post_collect(post, entries, sum);
    if (found != FILE_ANSWER || (read && memcmp(sum, post->sum, sizeof(sum)) != 0)) {
        result = post_write(post, directory);
        post->look_ms = FILE_LOOK_FIRST_MS;
    }
    if (result == HOOP_OK) {
        memcpy(post->sum, sum, sizeof(sum));
    }
    close(directory);
    return result;
}

static void post_due(void *arg)
{
    struct file_post *post = arg;
    post->look_ms = post->look_ms * 2 < FILE_LOOK_LAST_MS ? post->look_ms * 2 : FILE_LOOK_LAST_MS;
    const hoop_result_t result = post_answer(post, false);
    if (result != HOOP_OK && result != HOOP_AGAIN && !post->complained) {
        hoop_log(HOOP_LOG_WARN, HOOP_LOG_INIT, "%s", hoop_thread_error());
        post->complained = true;
    }
    hoop_timer_start(post->timer, post->look_ms, 0);
}

static void post_destroy(struct file_post *post)
{
    hoop_timer_destroy(post->timer);
    hoop_secret_wipe(&post->head, sizeof(post->head));
    free(post->tokens);
    free(post->file);
    free(post);
}

hoop_result_t hoop_meeting_file_publish(const struct hoop_meeting *meeting,
                                        const struct hoop_address *address,
                                        struct hoop_failure *failure)
{
    assert(meeting->file != NULL && meeting->has_secret);
    struct file_post *post = calloc(1, sizeof(*post));
    if (post == NULL || (post->file = strdup(meeting->file)) == NULL) {
        free(post);
        return hoop_failure_set(failure, HOOP_OUT_OF_MEMORY, -1, "no memory for a meeting's file");
    }
    post->head = (struct file_head){.magic = FILE_MAGIC, .version = FILE_VERSION};
    memcpy(post->head.name, meeting->name, sizeof(post->head.name));
    memcpy(post->head.secret, meeting->secret.bytes, sizeof(post->head.secret));
    post->head.address = *address;
    post->look_ms = FILE_LOOK_FIRST_MS;
    hoop_result_t result = hoop_random(&post->me, sizeof(post->me));
    if (result == HOOP_OK) {
        result = hoop_timer_create(post_due, post, &post->timer);
    }
    if (result == HOOP_OK) {
        result = post_answer(post, true);
    }
    if (result != HOOP_OK && result != HOOP_AGAIN) {
        (void)hoop_failure_set(failure, result, -1, "%s", hoop_thread_error());
        post_destroy(post);
        return result;
    }
    post->next = file_posts;
    file_posts = post;
    hoop_timer_start(post->timer, post->look_ms, 0);
    return HOOP_OK;
}

void hoop_meeting_file_withdraw(const struct hoop_meeting *meeting)
{
    char path[FILE_PATH_BYTES];
    char name[FILE_NAME_BYTES];
    int directory = -1;
    struct file_post **at = &file_posts;
    while (*at != NULL && strcmp((*at)->head.name, meeting->name) != 0) {
        at = &(*at)->next;
    }
    struct file_post *post = *at;
    if (post == NULL) {
        return;
    }
    *at = post->next;
    file_directory(post->file, path);
    if (file_enter(post->file, &directory) == HOOP_OK) {
        if (post_find(post, directory) == FILE_ANSWER) {
            (void)unlinkat(directory, file_key(post->file), 0);
        }
        for (size_t i = 0; i < post->count; i++) { /* of ranks that ended while they looked */
            file_token_name(file_key(post->file), &post->tokens[i], name);
            (void)unlinkat(directory, name, 0);
        }
        close(directory);
        (void)rmdir(path);
    }
    post_destroy(post);
}
