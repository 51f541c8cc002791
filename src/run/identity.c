// SPDX-License-Identifier: Apache-2.0
// Facts are {text: text}; one of a file is "file PATH" with a hash of its content.
#include "run/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/line.h"

#define MOST_BYTES ((int64_t)64 << 20) /* that are hashed */

enum { MOST_TOLD = 3 };

/* ---- one file ---- */

static usc_status refused(const char *path, usc_error *err)
{
    return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1, "%s: %s",
                         path, strerror(errno));
}

static usc_status hash_file(int fd, const char *path, size_t size, char *out,
                            usc_error *err)
{
    void *bytes = size > 0 ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (bytes == MAP_FAILED) return refused(path, err);
    const usc_hash128 hash = usc_hash_bytes(bytes, size);
    if (bytes != NULL) (void)munmap(bytes, size);
    (void)snprintf(out, USC_DIGEST_SIZE, "%016llx%016llx", (unsigned long long)hash.high,
                   (unsigned long long)hash.low);
    return USC_OK;
}

usc_status usc_file_digest(const char *path, char *out, usc_error *err)
{
    struct stat info;
    usc_status st = USC_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return refused(path, err);
    if (fstat(fd, &info) != 0)
        st = refused(path, err);
    else if (info.st_size > MOST_BYTES)
        (void)snprintf(out, USC_DIGEST_SIZE, "%lld bytes of %lld.%09ld",
                       (long long)info.st_size, (long long)info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec);
    else
        st = hash_file(fd, path, (size_t)info.st_size, out, err);
    (void)close(fd);
    return st;
}

/* ---- two sets of facts ---- */

static const char *text_of(const usc_json *facts, const char *key)
{
    return usc_json_as_text(usc_json_get(facts, key));
}

static void tell_change(const char *key, const char *before, const char *now,
                        usc_line *to)
{
    if (strncmp(key, "file ", 5) == 0) {
        const char *slash = strrchr(key, '/');
        usc_line_add(to, "%s %s", slash != NULL ? slash + 1 : key + 5,
                     before == NULL ? "was not loaded"
                     : now == NULL  ? "is not loaded"
                                    : "has changed");
    } else if (before == NULL || now == NULL) {
        usc_line_add(to, "%s %s not known", key, before == NULL ? "was" : "is");
    } else {
        usc_line_add(to, "%s was '%.60s' and is '%.60s'", key, before, now);
    }
}

/* The first key behind `last` whose facts differ, in the order of the keys. */
static const char *next_change(const usc_json *const facts[2], const char *last)
{
    const char *found = NULL, *key;
    const usc_json *value;
    for (int side = 0; side < 2; side++)
        for (void *at = NULL; usc_json_next(facts[side], &at, &key, &value);) {
            const char *other = text_of(facts[1 - side], key),
                       *text = usc_json_as_text(value);
            const bool same = other != NULL && text != NULL && strcmp(other, text) == 0;
            if (!same && strcmp(key, last) > 0 &&
                (found == NULL || strcmp(key, found) < 0))
                found = key;
        }
    return found;
}

bool usc_identity_difference(const usc_json *before, const usc_json *now, char *out,
                             size_t size)
{
    const usc_json *const facts[2] = {before, now};
    usc_line text = {0};
    int n = 0;
    for (const char *key = ""; (key = next_change(facts, key)) != NULL; n++) {
        if (n >= MOST_TOLD) continue;
        if (n > 0) usc_line_text(&text, ", ");
        tell_change(key, text_of(before, key), text_of(now, key), &text);
    }
    if (n > MOST_TOLD) usc_line_add(&text, ", and %d more", n - MOST_TOLD);
    const bool told = !text.failed;
    if (size > 0) (void)snprintf(out, size, "%s", text.text != NULL ? text.text : "");
    usc_line_free(&text);
    return told;
}

/* ---- whether a run is done ---- */

static bool same_files(const char *inputs)
{
    usc_json *facts = NULL;
    const char *key;
    const usc_json *value;
    bool same =
        usc_json_parse(inputs, strlen(inputs), "inputs", "", &facts, NULL) == USC_OK;
    for (void *at = NULL; same && usc_json_next(facts, &at, &key, &value);) {
        char digest[USC_DIGEST_SIZE];
        const char *text = usc_json_as_text(value);
        if (strncmp(key, "file ", 5) != 0) continue;
        same = text != NULL && usc_file_digest(key + 5, digest, NULL) == USC_OK &&
               strcmp(digest, text) == 0;
    }
    usc_json_free(facts);
    return same;
}

usc_check_state usc_check_state_of(const char *out, char **inputs)
{
    usc_result *result = NULL;
    *inputs = NULL;
    if (usc_result_open(out, &result, NULL) != USC_OK) return USC_CHECK_NONE;
    const char *state = usc_result_get(result, "state");
    const bool done = state != NULL && strcmp(state, "done") == 0;
    const char *facts = usc_result_get(result, "inputs");
    *inputs = strdup(facts != NULL ? facts : "{}");
    usc_result_close(result);
    if (!done || *inputs == NULL) return USC_CHECK_CUT;
    return same_files(*inputs) ? USC_CHECK_DONE : USC_CHECK_CHANGED;
}
