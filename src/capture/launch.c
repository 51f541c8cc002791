// SPDX-License-Identifier: Apache-2.0
// Reports of the processes of a captured command out of their JSON files.
#include <ulpscope/x/launch.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/path.h"
#include "json/json.h"

typedef struct reader {
    usc_arena arena;
    usc_launch_reports list;
    size_t capacity;
} reader;

static void take_steps(usc_json_taker *t, const usc_json *root, usc_arena *a,
                       usc_launch_report *out)
{
    const usc_json *steps = usc_json_list(t, root, "steps");
    const size_t n = usc_json_size(steps);
    int64_t *step = usc_arena_take(a, (n + 1) * sizeof *step);
    for (size_t i = 0; step != NULL && i < n; i++)
        if (usc_json_as_integer(usc_json_item(steps, i), &step[out->n_steps]))
            ++out->n_steps;
    out->step = step;
}

static void take_counts(usc_json_taker *t, const usc_json *root, usc_launch_report *out)
{
    const usc_json *counts = usc_json_object(t, root, "counts");
    out->counted = counts != NULL;
    out->n_calls = usc_json_integer(t, counts, "calls", 0);
    out->bytes_written = usc_json_integer(t, counts, "bytes_written", 0);
    out->n_compiled_regions = usc_json_integer(t, counts, "compiled_regions", 0);
    out->stopped = usc_json_flag(t, counts, "stopped");
}

/* One report; false where it is none. */
static bool take_report(const usc_json *root, usc_arena *a, usc_launch_report *out)
{
    usc_json_taker t = {.name = "report"};
    *out = (usc_launch_report){
        .rank = usc_json_integer(&t, root, "rank", 0),
        .world = usc_json_integer(&t, root, "world", 1),
        .pid = usc_json_integer(&t, root, "pid", 0),
        .finished = usc_json_flag(&t, root, "finished"),
        .whole = usc_json_flag(&t, root, "whole"),
        .loose = usc_json_flag(&t, root, "loose"),
        .taken = usc_json_flag(&t, root, "taken"),
        .first_step_bytes = usc_json_integer(&t, root, "first_step_bytes", 0),
        .room = usc_json_integer(&t, root, "room", 0),
        .n_steps_ended = usc_json_integer(&t, root, "steps_ended", 0),
        .error = usc_arena_text(a, usc_json_text(&t, root, "error", NULL)),
        .said = usc_arena_text(a, usc_json_text(&t, root, "said", NULL)),
        .said_step = usc_json_integer(&t, root, "said_step", -1),
        .said_call = usc_json_integer(&t, root, "said_call", -1),
        .place = usc_arena_text(a, usc_json_text(&t, root, "place", NULL)),
    };
    take_counts(&t, root, out);
    take_steps(&t, root, a, out);
    return t.status == USC_OK && usc_json_is_object(root);
}

static void read_report(reader *r, const char *path)
{
    usc_json *root = NULL;
    usc_launch_report one;
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    const usc_status st = usc_json_read(file, "report", "not a report", &root, NULL);
    (void)fclose(file);
    if (st == USC_OK && take_report(root, &r->arena, &one)) {
        usc_launch_reports *list = &r->list;
        if ((size_t)list->n == r->capacity) {
            usc_launch_report *more =
                usc_arena_grow(&r->arena, list->report, (size_t)list->n, &r->capacity,
                               sizeof *list->report);
            if (more != NULL) list->report = more;
        }
        if ((size_t)list->n < r->capacity) list->report[list->n++] = one;
    }
    r->arena.failed |= st == USC_E_NOMEM;
    usc_json_free(root);
}

static int by_rank(const void *a, const void *b)
{
    const usc_launch_report *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_report(const char *name)
{
    static const char ending[] = ".json";
    const size_t n = strlen(name), n_ending = sizeof ending - 1;
    return n > n_ending && strcmp(name + n - n_ending, ending) == 0;
}

usc_status usc_launch_reports_read(const char *folder, usc_launch_reports *out,
                                   usc_error *err)
{
    *out = (usc_launch_reports){0};
    reader *r = usc_libc_alloc.resize(NULL, NULL, 0, sizeof *r);
    if (r == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "reports: no memory");
    *r = (reader){.arena = {.alloc = usc_libc_alloc}};
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[USC_PATH_SIZE];
        if (is_report(e->d_name) &&
            usc_path_join(path, folder, e->d_name, NULL) == USC_OK)
            read_report(r, path);
    }
    if (dir != NULL) (void)closedir(dir);
    r->list.memory = r;
    if (r->arena.failed) {
        usc_launch_reports_free(&r->list);
        return usc_error_set(err, USC_E_NOMEM, -1, "reports: no memory");
    }
    if (r->list.n > 0)
        qsort(r->list.report, (size_t)r->list.n, sizeof *r->list.report, by_rank);
    *out = r->list;
    return USC_OK;
}

void usc_launch_reports_free(usc_launch_reports *list)
{
    reader *r = list->memory;
    *list = (usc_launch_reports){0};
    if (r == NULL) return;
    usc_arena_free(&r->arena);
    (void)usc_libc_alloc.resize(NULL, r, sizeof *r, 0);
}

bool usc_launch_all_done(const usc_launch_reports *list)
{
    int64_t n_done = 0, world = 0;
    for (int64_t i = 0; i < list->n; i++) {
        const usc_launch_report *one = &list->report[i];
        if (!one->finished || one->whole) continue;
        if (n_done++ == 0) world = one->world;
    }
    return n_done > 0 && n_done >= world;
}

bool usc_launch_is_left(const usc_launch_reports *list, const char *place, int64_t pid)
{
    for (int64_t i = 0; i < list->n; i++) {
        const usc_launch_report *one = &list->report[i];
        if (!one->finished && one->pid != pid && one->place != NULL &&
            strcmp(one->place, place) == 0)
            return true;
    }
    return false;
}
