// SPDX-License-Identifier: Apache-2.0
// Captures of ditorch's op_tools:
// OP/PID/ID/TIME/{input,output,grad_inputs,grad_outputs}.pth below
// op_tools_results/op_capture_results, each a dict with name, args and kwargs; ID counts
// the calls of a process. Facts: github.com/DeepLink-org/ditorch, op_tools.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "foreign/importing.h"

enum { MOST_CALLS = 1 << 26, DEEPEST = 9, ASKED_FOR_DEVICE = 64 };

/* The folder of one call. */
typedef struct usc_captured {
    int64_t id;
    char *folder;
} captured;

/* ---- finding them ---- */

/* Part `back` of a path from its end, 0 the last; its length in *n. */
static const char *part_of(const char *path, int back, size_t *n)
{
    const char *end = path + strlen(path);
    for (;; back--) {
        const char *begin = end;
        while (begin > path && begin[-1] != '/')
            begin--;
        *n = (size_t)(end - begin);
        if (back == 0) return begin;
        if (begin == path) break;
        end = begin - 1;
    }
    *n = 0;
    return path;
}

static int64_t id_of(const char *folder)
{
    size_t n;
    const char *id = part_of(folder, 1, &n);
    const bool is_number = n > 0 && n < 18 && strspn(id, "0123456789") >= n;
    return is_number ? strtoll(id, NULL, 10) : -1;
}

static bool is_process(const char *folder, const char *wanted)
{
    size_t n;
    const char *process = part_of(folder, 2, &n);
    return wanted == NULL || (n == strlen(wanted) && memcmp(process, wanted, n) == 0);
}

static usc_status add_call(usc_captures *c, const char *folder, usc_error *err)
{
    const int64_t id = id_of(folder);
    if (id < 0) { /* what a failed comparison left, device and CPU apart */
        c->others++;
        return USC_OK;
    }
    if (c->n == c->room) {
        const size_t room = c->room > 0 ? 2 * c->room : 64;
        captured *more = room < MOST_CALLS ? realloc(c->at, room * sizeof *more) : NULL;
        if (more == NULL)
            return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", folder);
        c->at = more;
        c->room = room;
    }
    c->at[c->n] = (captured){id, strdup(folder)};
    return c->at[c->n++].folder != NULL
               ? USC_OK
               : usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", folder);
}

/* Whether a folder may lead to calls, by its name: OP has a dot, PID, ID and TIME begin
 * with a digit. So a folder that is no capture is not searched, however large. */
static bool leads_on(const char *name)
{
    static const char *const known[] = {"op_tools_results", "op_capture_results",
                                        "autocompare", "device", "cpu"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i]) == 0) return true;
    return (name[0] >= '0' && name[0] <= '9') || strchr(name, '.') != NULL;
}

/* Links are not followed: a capture has none. */
static usc_status walk(usc_captures *c, const char *folder, const char *wanted, int depth,
                       usc_error *err)
{
    char path[USC_PATH_SIZE];
    struct stat info;
    usc_status st = USC_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e;
         st == USC_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || !leads_on(e->d_name)) continue;
        st = usc_path_join(path, folder, e->d_name, err);
        if (st != USC_OK || lstat(path, &info) != 0) continue;
        if (S_ISDIR(info.st_mode) && depth < DEEPEST)
            st = walk(c, path, wanted, depth + 1, err);
        else if (S_ISREG(info.st_mode) && strcmp(e->d_name, "input.pth") == 0 &&
                 is_process(folder, wanted))
            st = add_call(c, folder, err);
    }
    if (dir != NULL) (void)closedir(dir);
    return st;
}

static int by_id(const void *a, const void *b)
{
    const captured *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return strcmp(x->folder, y->folder);
}

/* A process counts its own calls. */
static usc_status check_processes(const usc_captures *c, const char *dump, usc_error *err)
{
    size_t n = 0, n_first = 0;
    const char *first = c->n > 0 ? part_of(c->at[0].folder, 2, &n_first) : "";
    for (size_t i = 1; i < c->n; i++) {
        const char *other = part_of(c->at[i].folder, 2, &n);
        if (n == n_first && memcmp(other, first, n) == 0) continue;
        return usc_error_set(err, USC_E_ARG, -1,
                             "%s holds several processes (%.*s, %.*s, ...), and a trace "
                             "is of one: name it, --rank %.*s",
                             dump, (int)n_first, first, (int)n, other, (int)n_first,
                             first);
    }
    return USC_OK;
}

usc_status usc_import_find_ditorch(const usc_importing *im, const char *dump,
                                   usc_captures *out, usc_error *err)
{
    char folder[USC_PATH_SIZE];
    struct stat info;
    size_t n = strlen(dump);
    *out = (usc_captures){0};
    if (n == 0 || n >= sizeof folder || stat(dump, &info) != 0 || !S_ISDIR(info.st_mode))
        return USC_OK;
    memcpy(folder, dump, n + 1);
    while (n > 1 && folder[n - 1] == '/')
        folder[--n] = '\0';
    usc_status st = walk(out, folder, im->options->rank, 0, err);
    if (st == USC_OK && out->n > 1) {
        qsort(out->at, out->n, sizeof *out->at, by_id);
        st = check_processes(out, dump, err);
    }
    return st;
}

void usc_captures_free(usc_captures *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].folder);
    free(c->at);
    *c = (usc_captures){0};
}

/* ---- on which device ---- */

/* The first device but the CPU that a description of arguments names. */
static void look_for_device(usc_importing *im, const usc_json *value, int depth)
{
    const char *key, *device = usc_json_as_text(usc_json_get(value, "device"));
    const usc_json *item;
    const bool known = im->said_device[0] != '\0' && strcmp(im->said_device, "cpu") != 0;
    if (known || depth > DEEPEST) return;
    if (device != NULL && strlen(device) < sizeof im->said_device)
        strcpy(im->said_device, device);
    if (usc_json_is_list(value))
        for (size_t i = 0; i < usc_json_size(value); i++)
            look_for_device(im, usc_json_item(value, i), depth + 1);
    else if (usc_json_is_object(value))
        for (void *at = NULL; usc_json_next(value, &at, &key, &item);)
            look_for_device(im, item, depth + 1);
}

/* Files of torch are read as of the CPU; the JSON beside them names the device. */
static void find_device(usc_importing *im, const usc_captures *c)
{
    char path[USC_PATH_SIZE];
    usc_error ignored;
    im->said_device[0] = '\0';
    for (size_t i = 0; i < c->n && i < ASKED_FOR_DEVICE; i++) {
        usc_json *said = NULL;
        if (usc_path_join(path, c->at[i].folder, "input.pth.json", &ignored) != USC_OK)
            continue;
        FILE *file = fopen(path, "rbe");
        if (file == NULL) continue;
        if (usc_json_read(file, path, "no JSON", &said, &ignored) == USC_OK)
            look_for_device(im, said, 0);
        usc_json_free(said);
        (void)fclose(file);
    }
    if (im->options->device == NULL)
        im->device = im->said_device[0] != '\0' ? im->said_device : "cuda:0";
}

/* ---- calls ---- */

typedef struct ditorch_call {
    const char *folder;
    char op[USC_API_NAME];
    usc_import_parts inputs;
    bool asks; /* some input wants a gradient */
} ditorch_call;

static bool has(const ditorch_call *c, const char *name, char *path)
{
    return usc_path_join(path, c->folder, name, NULL) == USC_OK &&
           access(path, F_OK) == 0;
}

static usc_status take_inputs(usc_importing *im, ditorch_call *c, usc_error *err)
{
    char path[USC_PATH_SIZE];
    const usc_json *value = NULL;
    usc_status st = usc_path_join(path, c->folder, "input.pth", err);
    if (st == USC_OK) st = usc_import_open(im, path, &value, &c->inputs, err);
    if (st != USC_OK) return st;
    const char *name = usc_json_as_text(usc_json_get(value, "name"));
    (void)usc_format(c->op, sizeof c->op, "%s", name != NULL ? name : "");
    usc_api_canonical(c->op, sizeof c->op);
    st = usc_import_file_arguments(im, value, &c->inputs, err);
    if (st == USC_OK && (name == NULL || *name == '\0' || strlen(name) >= sizeof c->op))
        st = usc_error_set(err, USC_E_CORRUPT, -1, "%s: 'name' is no name of a function",
                           path);
    for (int64_t i = 0; i < c->inputs.n; i++)
        c->asks = c->asks || c->inputs.at[i].seen.requires_grad;
    return st;
}

static const usc_import_part *input_at(const ditorch_call *c, const char *path)
{
    for (int64_t i = 0; i < c->inputs.n; i++)
        if (c->inputs.at[i].path != NULL && strcmp(c->inputs.at[i].path, path) == 0)
            return &c->inputs.at[i];
    return NULL;
}

/* `args` of a file as results: of output.pth the only item is what the function gave, of
 * gradients (`of_node` not NULL) each is one. */
static usc_status take_results(usc_importing *im, const char *path, bool *of_node,
                               const usc_import_part *written, usc_error *err)
{
    const usc_json *value = NULL;
    usc_import_parts parts;
    usc_status st = usc_import_open(im, path, &value, &parts, err);
    if (st != USC_OK) return st;
    const usc_json *args = usc_json_get(value, "args"),
                   *list = usc_json_get(args, "tuple");
    if (list == NULL) list = args;
    const usc_json *first = usc_json_item(list, 0);
    const bool is_several = usc_json_is_list(first) ||
                            usc_json_get(first, "tuple") != NULL ||
                            usc_json_get(first, "members") != NULL;
    const char *of = usc_json_as_text(usc_json_get(value, USC_GRADIENTS_OF));
    if (of_node != NULL) *of_node = of == NULL || strcmp(of, "arguments") != 0;
    return usc_import_file_results(im, of_node == NULL && is_several ? first : list,
                                   &parts, written, err);
}

/* Whether to go on without what one file holds; `sequence`: the call that lacks it, 0: it
 * is left out. */
static usc_status weigh(usc_importing *im, usc_status st, int64_t sequence,
                        const usc_error *why, usc_error *err)
{
    if (st == USC_OK) return st;
    const bool is_damage = usc_import_is_damage(st);
    if (!im->options->skip_damaged || !is_damage)
        return usc_error_set(err, st, -1, "%.440s%s", why->text,
                             is_damage ? "; --skip-damaged imports all that can be read"
                                       : "");
    if (im->counts->damaged++ == 0)
        memcpy(im->counts->first_damage, why->text, sizeof why->text);
    return sequence > 0
               ? usc_trace_put_note(im->trace, sequence, "left-out", why->text, err)
               : USC_OK;
}

static usc_status take_backward(usc_importing *im, const ditorch_call *c, int64_t forward,
                                usc_error *err)
{
    char given[USC_PATH_SIZE], found[USC_PATH_SIZE];
    const usc_json *value = NULL;
    usc_import_parts parts;
    usc_error why = {0};
    bool of_node = true;
    if (!c->asks || !has(c, "grad_outputs.pth", given) ||
        !has(c, "grad_inputs.pth", found))
        return USC_OK;
    usc_importing_begin(im, im->file, im->member);
    usc_status st = usc_import_open(im, given, &value, &parts, &why);
    if (st == USC_OK) st = usc_import_file_arguments(im, value, &parts, &why);
    if (st == USC_OK) st = take_results(im, found, &of_node, NULL, &why);
    if (st != USC_OK) return weigh(im, st, forward, &why, err);
    const usc_import_facts facts = {
        .op = c->op,
        .phase = USC_PHASE_BACKWARD,
        .state = usc_importing_state(im, im->member, forward, of_node)};
    return usc_importing_put(im, &facts, err);
}

static usc_status take_call(usc_importing *im, const char *folder, usc_error *err)
{
    char path[USC_PATH_SIZE];
    ditorch_call c = {.folder = folder};
    usc_error why = {0};
    size_t n;
    usc_importing_begin(im, im->options->dump, part_of(folder, 3, &n));
    const int64_t sequence = im->call.sequence;
    usc_status st = take_inputs(im, &c, &why);
    if (st != USC_OK) return weigh(im, st, 0, &why, err);
    const bool inplace = usc_api_writes_first(c.op) ||
                         (!im->call.args.failed &&
                          strstr(im->call.args.text, "\"inplace\": true") != NULL);
    if (has(&c, "output.pth", path)) {
        st = take_results(im, path, NULL,
                          input_at(&c, inplace ? "args[0]" : "kwargs.out"), &why);
        st = weigh(im, st, sequence, &why, err);
        if (st != USC_OK) return st;
    }
    const usc_import_facts facts = {.op = c.op,
                                    .phase = USC_PHASE_FORWARD,
                                    .state =
                                        usc_importing_state(im, im->member, 0, false)};
    st = usc_importing_put(im, &facts, err);
    return st == USC_OK ? take_backward(im, &c, sequence, err) : st;
}

usc_status usc_import_ditorch(usc_importing *im, const usc_captures *captures,
                              bool *stopped, usc_error *err)
{
    usc_status st = USC_OK;
    im->counts->format = "ditorch";
    im->counts->others = captures->others;
    im->total = (int64_t)captures->n;
    find_device(im, captures);
    usc_importing_begin_step(im, 0);
    for (size_t i = 0; st == USC_OK && i < captures->n; i++) {
        *stopped = usc_importing_stopped(im);
        if (*stopped) break;
        st = take_call(im, captures->at[i].folder, err);
        im->done++;
    }
    return st == USC_OK ? usc_importing_end_step(im, err) : st;
}
