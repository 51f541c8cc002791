// SPDX-License-Identifier: Apache-2.0
// What memory is free, by the kernel's own books: the machine's, and those of the control
// groups around this process, of version 2 and of version 1.
#include "run/rooms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/run.h>

enum { PATH_SIZE = 4096 };

#define UNKNOWN INT64_MAX

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t free_of_machine(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    if (file == NULL) return UNKNOWN;
    char line[256];
    long long size = -1;
    while (size < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %lld", &size) != 1) size = -1;
    (void)fclose(file);
    return size >= 0 ? (int64_t)size * 1024 : UNKNOWN;
}

/* The number that a file holds; UNKNOWN for "max", and where there is none. */
static int64_t number_in(const char *folder, const char *name)
{
    char path[PATH_SIZE], text[64] = "";
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return UNKNOWN;
    FILE *file = fopen(path, "r");
    if (file == NULL) return UNKNOWN;
    char *end = text;
    long long value = -1;
    if (fgets(text, sizeof text, file) != NULL) value = strtoll(text, &end, 10);
    (void)fclose(file);
    return end != text && value >= 0 && value < 1LL << 60 ? (int64_t)value : UNKNOWN;
}

static int64_t left_in(const char *folder, const char *limit, const char *usage)
{
    const int64_t most = number_in(folder, limit), used = number_in(folder, usage);
    if (most == UNKNOWN || used == UNKNOWN) return UNKNOWN;
    return most > used ? most - used : 0;
}

/* Of a group and those around it. A process in a container may see its own group as the
 * root. */
static int64_t left_around(const char *root, const char *group, const char *limit,
                           const char *usage)
{
    char folder[PATH_SIZE];
    if (snprintf(folder, sizeof folder, "%s%s", root, group) >= (int)sizeof folder)
        return UNKNOWN;
    int64_t least = UNKNOWN;
    for (size_t n = strlen(folder); n >= strlen(root); n = strlen(folder)) {
        least = smaller(least, left_in(folder, limit, usage));
        char *slash = strrchr(folder, '/');
        if (n == strlen(root) || slash == NULL) break;
        *slash = '\0';
    }
    return least;
}

/* Whether "memory" is among "cpu,memory". */
static bool names_memory(const char *kinds, const char *end)
{
    static const char memory[] = "memory";
    while (kinds < end) {
        const size_t n = strcspn(kinds, ",:");
        if (n == sizeof memory - 1 && strncmp(kinds, memory, n) == 0) return true;
        kinds += n + 1;
    }
    return false;
}

int64_t usc_memory_of_groups(const char *root, const char *groups)
{
    FILE *file = fopen(groups, "r");
    if (file == NULL) return UNKNOWN;
    int64_t least = UNKNOWN;
    char line[PATH_SIZE], memory[PATH_SIZE];
    if (snprintf(memory, sizeof memory, "%s/memory", root) >= (int)sizeof memory)
        memory[0] = '\0';
    while (fgets(line, sizeof line, file) != NULL) { /* "4:cpu,memory:/a/b" */
        char *kinds = strchr(line, ':');
        char *path = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
        if (path == NULL) continue;
        path[strcspn(path, "\n")] = '\0';
        while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
            path[strlen(path) - 1] = '\0';
        const char *group = path[1] == '\0' ? "" : path + 1;
        if (kinds + 1 == path)
            least =
                smaller(least, left_around(root, group, "memory.max", "memory.current"));
        else if (names_memory(kinds + 1, path))
            least = smaller(least, left_around(memory, group, "memory.limit_in_bytes",
                                               "memory.usage_in_bytes"));
    }
    (void)fclose(file);
    return least;
}

int64_t usc_memory_free(void)
{
    const int64_t least = smaller(
        free_of_machine(), usc_memory_of_groups("/sys/fs/cgroup", "/proc/self/cgroup"));
    return least != UNKNOWN ? least : 0;
}
