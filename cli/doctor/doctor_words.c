// SPDX-License-Identifier: Apache-2.0
// What a message of the dynamic loader means, and where a library lies that it did not
// find. See doctor.h.
#include "doctor/doctor.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 5, MOST_ENTRIES = 20000 };

/* The text between the last `open` before `end` and `end`. */
static void cut(const char *begin, const char *end, char *out, size_t size)
{
    while (end > begin && (end[-1] == ' ' || end[-1] == ':'))
        end--;
    const char *from = end;
    while (from > begin && strchr(" :'`", from[-1]) == NULL)
        from--;
    (void)snprintf(out, size, "%.*s", (int)(end - from), from);
}

/* The first word behind `at`. */
static void word_behind(const char *at, char *out, size_t size)
{
    at += strspn(at, " :'`\"");
    (void)snprintf(out, size, "%.*s", (int)strcspn(at, " ,;'`\""), at);
}

doctor_load doctor_load_read(const char *message, char *name, size_t size)
{
    const char *at;
    name[0] = '\0';
    if ((at = strstr(message, "cannot open shared object file")) != NULL) {
        cut(message, at, name, size);
        return DOCTOR_LOAD_LIBRARY;
    }
    if ((at = strstr(message, "undefined symbol")) != NULL) {
        word_behind(at + strlen("undefined symbol"), name, size);
        return DOCTOR_LOAD_SYMBOL;
    }
    if ((at = strstr(message, "' not found")) != NULL ||
        (at = strstr(message, "' not defined")) != NULL) {
        cut(message, at, name, size);
        return DOCTOR_LOAD_VERSION;
    }
    if ((at = strstr(message, "invalid ELF header")) != NULL ||
        (at = strstr(message, "file too short")) != NULL ||
        (at = strstr(message, "wrong ELF class")) != NULL) {
        cut(message, at, name, size);
        return DOCTOR_LOAD_FILE;
    }
    return DOCTOR_LOAD_OTHER;
}

/* ---- where a library lies ---- */

typedef struct search {
    const char *name;
    int n_seen;
    char *out;
    size_t size;
} search;

static bool look_in(search *s, const char *folder, int depth)
{
    char path[PATH_MAX];
    struct dirent *entry;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, s->name) < sizeof path &&
        access(path, R_OK) == 0) {
        (void)snprintf(s->out, s->size, "%s", folder);
        return true;
    }
    if (depth == DEEPEST) return false;
    DIR *list = opendir(folder);
    bool found = false;
    while (list != NULL && !found && (entry = readdir(list)) != NULL) {
        struct stat info;
        if (entry->d_name[0] == '.' || ++s->n_seen > MOST_ENTRIES) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >=
                sizeof path ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
            continue;
        found = look_in(s, path, depth + 1);
    }
    if (list != NULL) (void)closedir(list);
    return found;
}

bool doctor_find_library(const char *name, char *folder, size_t size)
{
    static const char *const places[] = {".", "/usr/local", "/opt", "/usr/lib", NULL};
    if (name[0] == '\0' || strchr(name, '/') != NULL) return false;
    for (size_t i = 0; places[i] != NULL; i++) {
        search s = {.name = name, .out = folder, .size = size};
        char whole[PATH_MAX];
        if (look_in(&s, realpath(places[i], whole) != NULL ? whole : places[i], 0))
            return true;
    }
    return false;
}
