// SPDX-License-Identifier: Apache-2.0
// Dumps of the tool before msprobe: forward_info_PID.json has a call for each member,
// without results; backward_info_PID.json the gradients of their results, which makes a
// second call of each. Real data lie in forward_real_data and backward_real_data.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "foreign/importing.h"

/* The PID of forward_info_PID.json, for 32 bytes. */
static bool pid_of(const char *name, char *pid)
{
    static const char head[] = "forward_info_", tail[] = ".json";
    const size_t n = strlen(name), ends = sizeof head + sizeof tail - 2;
    if (n <= ends || n - ends >= 32 || strncmp(name, head, sizeof head - 1) != 0 ||
        strcmp(name + n - (sizeof tail - 1), tail) != 0)
        return false;
    memcpy(pid, name + sizeof head - 1, n - ends);
    pid[n - ends] = '\0';
    return true;
}

static usc_status find_in(const usc_importing *im, const char *folder,
                          char name[USC_IMPORT_NAME], usc_error *err)
{
    char pid[32], other[32];
    const char *wanted = im->options->rank;
    usc_status st = USC_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e;
         st == USC_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        if (!pid_of(e->d_name, pid) || (wanted != NULL && strcmp(pid, wanted) != 0))
            continue;
        if (pid_of(name, other))
            st = usc_error_set(
                err, USC_E_ARG, -1,
                "%s holds several processes (%s, %s, ...), and a trace is of "
                "one: name it, --rank %s",
                folder, other, pid, other);
        (void)usc_format(name, USC_IMPORT_NAME, "%s", e->d_name);
    }
    if (dir != NULL) (void)closedir(dir);
    return st;
}

/* In the one folder stepN below it that has any; a trace is of one. */
static usc_status find_below(const usc_importing *im, char *folder,
                             char name[USC_IMPORT_NAME], usc_error *err)
{
    char path[USC_PATH_SIZE], found[USC_IMPORT_NAME], step[64] = "";
    usc_status st = USC_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e;
         st == USC_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        found[0] = '\0';
        if (strncmp(e->d_name, "step", 4) != 0 || strlen(e->d_name) >= sizeof step)
            continue;
        st = usc_path_join(path, folder, e->d_name, err);
        if (st == USC_OK) st = find_in(im, path, found, err);
        if (st != USC_OK || found[0] == '\0') continue;
        if (step[0] != '\0')
            st = usc_error_set(err, USC_E_ARG, -1,
                               "%s holds several steps (%s, %s, ...): name one of them",
                               folder, step, e->d_name);
        strcpy(step, e->d_name);
        (void)usc_format(name, USC_IMPORT_NAME, "%s", found);
    }
    if (dir != NULL) (void)closedir(dir);
    if (st == USC_OK && step[0] != '\0') st = usc_path_join(path, folder, step, err);
    if (st == USC_OK && step[0] != '\0') strcpy(folder, path);
    return st;
}

/* Whether a file of another name begins as forward_info_PID.json does. */
static bool begins_with_a_call(const char *path)
{
    usc_json_stream s = {0};
    usc_api_name name;
    const char *key = NULL;
    const bool found =
        usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, NULL) == USC_OK &&
        usc_json_stream_next(&s, &key, NULL) == USC_OK && key != NULL &&
        usc_api_name_read(key, &name) && name.kind == USC_DUMPED_FORWARD;
    usc_json_stream_close(&s);
    return found;
}

usc_status usc_import_find_ascend_v1(const usc_importing *im, const char *dump,
                                     char *folder, char name[USC_IMPORT_NAME],
                                     usc_error *err)
{
    struct stat info;
    char pid[32];
    const char *slash = strrchr(dump, '/');
    const char *base = slash != NULL ? slash + 1 : dump;
    name[0] = '\0';
    if (stat(dump, &info) != 0 || strlen(dump) >= USC_PATH_SIZE) return USC_OK;
    strcpy(folder, dump);
    if (S_ISDIR(info.st_mode)) {
        const usc_status st = find_in(im, folder, name, err);
        return st != USC_OK || name[0] != '\0' ? st : find_below(im, folder, name, err);
    }
    if (strlen(base) >= USC_IMPORT_NAME ||
        (!pid_of(base, pid) && !begins_with_a_call(dump)))
        return USC_OK;
    strcpy(name, base);
    strcpy(folder, ".");
    if (slash != NULL)
        (void)usc_format(folder, USC_PATH_SIZE, "%.*s", (int)(slash - dump), dump);
    return USC_OK;
}

/* ---- gradients ---- */

/* Those of all calls: backward_info is read before the calls, in another order. */
typedef struct gradients {
    usc_keys places; /* name -> index */
    usc_json **at;   /* what the file has of a call, the only item of a list */
    int64_t n, room, n_used;
} gradients;

static usc_status keep_gradient(gradients *g, const char *name, usc_json *value,
                                usc_error *err)
{
    if (g->n == g->room) {
        const int64_t room = g->room > 0 ? 2 * g->room : 64;
        usc_json **more = realloc(g->at, (size_t)room * sizeof *more);
        if (more == NULL) {
            usc_json_free(value);
            return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", name);
        }
        g->at = more;
        g->room = room;
    }
    (void)usc_keys_put(&g->places, usc_key_of(name), g->n);
    g->at[g->n++] = value;
    return USC_OK;
}

static void free_gradients(gradients *g)
{
    for (int64_t i = 0; i < g->n; i++)
        usc_json_free(g->at[i]);
    free(g->at);
    usc_keys_free(&g->places);
}

static usc_status read_gradients(const char *path, gradients *g, usc_error *err)
{
    usc_json_stream s = {0};
    const char *key;
    usc_status st = usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, err);
    while (st == USC_OK && (st = usc_json_stream_next(&s, &key, err)) == USC_OK &&
           key != NULL) {
        usc_api_name name;
        usc_json *value = NULL;
        const bool known = usc_api_name_read(key, &name);
        st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK && known)
            st = keep_gradient(g, name.call, value, err);
        else
            usc_json_free(value);
    }
    usc_json_stream_close(&s);
    return st == USC_OK && g->places.failed
               ? usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path)
               : st;
}

/* ---- calls ---- */

static usc_status put_call(usc_importing *im, const usc_api_name *name, int64_t forward,
                           usc_error *err)
{
    const int64_t *stack = usc_keys_find(&im->stacks, usc_key_of(name->call));
    const usc_import_facts facts = {
        .op = name->op,
        .phase = forward > 0 ? USC_PHASE_BACKWARD : USC_PHASE_FORWARD,
        .stack = stack != NULL ? *stack : 0,
        .state = usc_importing_state(im, im->member, forward, false)};
    return usc_importing_put(im, &facts, err);
}

/* The backward pass of the call just put: its arguments are the gradients. */
static usc_status take_backward(usc_importing *im, const usc_api_name *name,
                                const usc_json *given, usc_error *err)
{
    const int64_t forward = im->call.sequence;
    char folder[USC_PATH_SIZE];
    strcpy(folder, im->folder);
    char *data = strstr(im->folder, "forward_real_data");
    usc_importing_begin(im, im->file, im->member);
    if (data != NULL) { /* a letter longer */
        memmove(data + 8, data + 7, strlen(data + 7) + 1);
        memcpy(data, "backward", 8);
    }
    const usc_status st = usc_import_arguments(im, given, NULL, err);
    strcpy(im->folder, folder);
    return st == USC_OK ? put_call(im, name, forward, err) : st;
}

static usc_status take_call(usc_importing *im, const usc_json *value, gradients *g,
                            usc_error *err)
{
    usc_api_name name;
    const usc_json *args = usc_json_get(value, "args");
    const usc_json *kwargs = usc_json_get(value, "kwargs");
    if (!usc_api_name_read(im->member, &name) || name.kind != USC_DUMPED_FORWARD) {
        im->counts->others++;
        return USC_OK;
    }
    if (!usc_json_is_list(args) || !usc_json_is_object(kwargs))
        return usc_importing_wrong(im, USC_E_CORRUPT, NULL, err,
                                   "'args' is no list or 'kwargs' no object");
    usc_status st = usc_import_arguments(im, args, kwargs, err);
    if (st == USC_OK) st = put_call(im, &name, 0, err);
    const int64_t *at = usc_keys_find(&g->places, usc_key_of(name.call));
    const usc_json *given = at != NULL ? usc_json_item(g->at[*at], 0) : NULL;
    if (st != USC_OK || !usc_json_is_list(given) || !usc_importing_asks(im)) return st;
    g->n_used++;
    return take_backward(im, &name, given, err);
}

/* `g` NULL: only counts the members, which also shows whether the file is whole. */
static usc_status read_file(usc_importing *im, const char *path, gradients *g,
                            bool *stopped, usc_error *err)
{
    usc_json_stream s = {0};
    const char *key;
    usc_status st = usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, err);
    while (st == USC_OK && (st = usc_json_stream_next(&s, &key, err)) == USC_OK &&
           key != NULL) {
        usc_json *value;
        im->total += g == NULL;
        if (g == NULL) continue;
        *stopped = usc_importing_stopped(im);
        if (*stopped) break;
        char *member = strdup(key); /* a value that is taken ends it */
        if (member == NULL)
            st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
        else
            st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK) {
            usc_importing_begin(im, path, member);
            st = take_call(im, usc_json_item(value, 0), g, err);
            usc_json_free(value);
        }
        free(member);
        im->done++;
    }
    usc_json_stream_close(&s);
    return st;
}

/* The file beside the calls that holds `kind` of them, named as theirs is; whether it is
 * there. */
static bool find_beside(char *out, const char *folder, const char *name, const char *kind)
{
    static const char word[] = "forward";
    char other[2 * USC_IMPORT_NAME];
    const char *at = strstr(name, word);
    if (at == NULL) return false;
    (void)usc_format(other, sizeof other, "%.*s%s%s", (int)(at - name), name, kind,
                     at + sizeof word - 1);
    return usc_path_join(out, folder, other, NULL) == USC_OK && access(out, F_OK) == 0;
}

/* Where the tensors lie: forward_real_data/rankPID, or without it. */
static usc_status data_folder(usc_importing *im, const char *folder, const char *name,
                              usc_error *err)
{
    char path[USC_PATH_SIZE], rank[48], pid[32];
    struct stat info;
    usc_status st = usc_path_join(im->folder, folder, "forward_real_data", err);
    if (st == USC_OK && strlen(im->folder) + 2 >= sizeof im->folder)
        st = usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", folder);
    if (!pid_of(name, pid)) return st;
    (void)usc_format(rank, sizeof rank, "rank%s", pid);
    if (st == USC_OK && usc_path_join(path, im->folder, rank, NULL) == USC_OK &&
        stat(path, &info) == 0)
        strcpy(im->folder, path);
    return st;
}

usc_status usc_import_ascend_v1(usc_importing *im, const char *folder, const char *name,
                                bool *stopped, usc_error *err)
{
    char path[USC_PATH_SIZE], other[USC_PATH_SIZE];
    gradients g = {0};
    const char *backward = im->options->backward;
    im->counts->format = "ascend-v1";
    usc_importing_begin_step(im, 0);
    usc_status st = data_folder(im, folder, name, err);
    if (st == USC_OK) st = usc_path_join(path, folder, name, err);
    if (st == USC_OK) st = read_file(im, path, NULL, stopped, err);
    if (backward == NULL && find_beside(other, folder, name, "backward"))
        backward = other;
    if (st == USC_OK && backward != NULL && backward[0] != '\0')
        st = read_gradients(backward, &g, err);
    if (st == USC_OK && find_beside(other, folder, name, "stack"))
        st = usc_importing_stacks(im, other, err);
    if (st == USC_OK && !*stopped) st = read_file(im, path, &g, stopped, err);
    im->counts->others += g.n - g.n_used;
    free_gradients(&g);
    return st == USC_OK ? usc_importing_end_step(im, err) : st;
}
