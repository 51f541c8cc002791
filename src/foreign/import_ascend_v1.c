// SPDX-License-Identifier: Apache-2.0
// Dumps of the tool before msprobe: forward_info_PID.json has a call for each member,
// without results; real data lie in forward_real_data.
#include <dirent.h>
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

static usc_status find_in(const usc_importing *im, const char *folder, char pid[32],
                          usc_error *err)
{
    char found[32];
    const char *wanted = im->options->rank;
    usc_status st = USC_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e;
         st == USC_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        if (!pid_of(e->d_name, found) || (wanted != NULL && strcmp(found, wanted) != 0))
            continue;
        if (pid[0] != '\0')
            st = usc_error_set(
                err, USC_E_ARG, -1,
                "%s holds several processes (%s, %s, ...), and a trace is of "
                "one: name it, --rank %s",
                folder, pid, found, pid);
        memcpy(pid, found, sizeof found);
    }
    if (dir != NULL) (void)closedir(dir);
    return st;
}

usc_status usc_import_find_ascend_v1(const usc_importing *im, const char *dump,
                                     char *folder, char pid[32], usc_error *err)
{
    struct stat info;
    const char *slash = strrchr(dump, '/');
    pid[0] = '\0';
    if (stat(dump, &info) != 0 || strlen(dump) >= USC_PATH_SIZE) return USC_OK;
    strcpy(folder, dump);
    if (S_ISDIR(info.st_mode)) return find_in(im, folder, pid, err);
    if (!pid_of(slash != NULL ? slash + 1 : dump, pid)) return USC_OK;
    strcpy(folder, ".");
    if (slash != NULL)
        (void)usc_format(folder, USC_PATH_SIZE, "%.*s", (int)(slash - dump), dump);
    return USC_OK;
}

static usc_status take_call(usc_importing *im, const usc_json *value, usc_error *err)
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
    const usc_status st = usc_import_arguments(im, args, kwargs, err);
    const int64_t *stack = usc_keys_find(&im->stacks, usc_key_of(name.call));
    const usc_import_facts facts = {
        .op = name.op, .phase = USC_PHASE_FORWARD, .stack = stack != NULL ? *stack : 0};
    return st == USC_OK ? usc_importing_put(im, &facts, err) : st;
}

/* `work` false: only counts the members, which also shows whether the file is whole. */
static usc_status read_file(usc_importing *im, const char *path, bool work, bool *stopped,
                            usc_error *err)
{
    usc_json_stream s = {0};
    const char *key;
    usc_status st = usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, err);
    while (st == USC_OK && (st = usc_json_stream_next(&s, &key, err)) == USC_OK &&
           key != NULL) {
        usc_json *value;
        im->total += !work;
        if (!work) continue;
        *stopped = usc_importing_stopped(im);
        if (*stopped) break;
        usc_importing_begin(im, path, key);
        st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK) st = take_call(im, usc_json_item(value, 0), err);
        usc_json_free(value);
        im->done++;
    }
    usc_json_stream_close(&s);
    return st;
}

static usc_status name_file(char *out, const char *folder, const char *kind,
                            const char *pid, usc_error *err)
{
    char name[64];
    (void)usc_format(name, sizeof name, "%s_info_%s.json", kind, pid);
    return usc_path_join(out, folder, name, err);
}

/* Its backward passes are told to be left out. */
static usc_status count_backward(usc_importing *im, const char *folder, const char *pid,
                                 bool *stopped, usc_error *err)
{
    char path[USC_PATH_SIZE];
    const int64_t before = im->total;
    usc_status st = name_file(path, folder, "backward", pid, err);
    if (st == USC_OK && access(path, F_OK) == 0)
        st = read_file(im, path, false, stopped, err);
    im->counts->others += im->total - before;
    im->total = before;
    return st;
}

usc_status usc_import_ascend_v1(usc_importing *im, const char *folder, const char *pid,
                                bool *stopped, usc_error *err)
{
    char path[USC_PATH_SIZE], stacks[USC_PATH_SIZE];
    im->counts->format = "ascend-v1";
    usc_importing_begin_step(im, 0);
    usc_status st = usc_path_join(im->folder, folder, "forward_real_data", err);
    if (st == USC_OK) st = name_file(stacks, folder, "stack", pid, err);
    if (st == USC_OK) st = name_file(path, folder, "forward", pid, err);
    if (st == USC_OK) st = read_file(im, path, false, stopped, err);
    if (st == USC_OK) st = count_backward(im, folder, pid, stopped, err);
    if (st == USC_OK) st = usc_importing_stacks(im, stacks, err);
    if (st == USC_OK) st = read_file(im, path, true, stopped, err);
    return st == USC_OK ? usc_importing_end_step(im, err) : st;
}
