// SPDX-License-Identifier: Apache-2.0
// Dumps of msprobe: DUMP/step0/rank0/{dump,stack,construct}.json and the tensors' files
// in dump_tensor_data.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/number.h"
#include "foreign/importing.h"

enum { MOST_FOLDERS = 1 << 20 };

/* One folder with a dump.json: what one process did in one step. */
typedef struct part_dump {
    int64_t step;
    char rank[64]; /* "rank0", "proc123"; "" where the folder is not below a step's */
    char folder[USC_PATH_SIZE];
} part_dump;

typedef struct dumps {
    part_dump *at;
    size_t n, room;
} dumps;

/* ---- finding them ---- */

static bool is_file(const char *folder, const char *name)
{
    char path[USC_PATH_SIZE];
    struct stat info;
    return usc_path_join(path, folder, name, NULL) == USC_OK && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode);
}

/* The number behind a word: step12; -1: it is no such name. */
static int64_t number_behind(const char *name, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(name, word, n) != 0 || name[n] == '\0' || strlen(name + n) > 9 ||
        strspn(name + n, "0123456789") != strlen(name + n))
        return -1;
    return strtol(name + n, NULL, 10);
}

static usc_status add_dump(dumps *d, int64_t step, const char *rank, const char *folder,
                           usc_error *err)
{
    if (d->n == d->room) {
        const size_t room = d->room > 0 ? 2 * d->room : 16;
        part_dump *more =
            room < MOST_FOLDERS ? realloc(d->at, room * sizeof *more) : NULL;
        if (more == NULL)
            return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", folder);
        d->at = more;
        d->room = room;
    }
    part_dump *to = &d->at[d->n++];
    to->step = step;
    (void)strncpy(to->rank, rank, sizeof to->rank - 1);
    to->rank[sizeof to->rank - 1] = '\0';
    memcpy(to->folder, folder, strlen(folder) + 1);
    return USC_OK;
}

/* The folders of ranks of one step, or of steps. */
static usc_status find_below(dumps *d, const char *folder, int64_t step, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_status st = USC_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e;
         st == USC_OK && dir != NULL && (e = readdir(dir)) != NULL;) {
        const bool rank = number_behind(e->d_name, "rank") >= 0 ||
                          number_behind(e->d_name, "proc") >= 0 ||
                          strcmp(e->d_name, "rank") == 0;
        const int64_t inner = number_behind(e->d_name, "step");
        if (!rank && (inner < 0 || step >= 0)) continue;
        st = usc_path_join(path, folder, e->d_name, err);
        if (st != USC_OK) break;
        if (rank && is_file(path, "dump.json"))
            st = add_dump(d, step < 0 ? 0 : step, e->d_name, path, err);
        else if (!rank)
            st = find_below(d, path, inner, err);
    }
    if (dir != NULL) (void)closedir(dir);
    return st;
}

static int by_step(const void *a, const void *b)
{
    const part_dump *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return strcmp(x->rank, y->rank);
}

/* Leaves the one process that is to be imported. */
static usc_status choose_rank(dumps *d, const char *dump, const char *wanted,
                              usc_error *err)
{
    size_t n = 0;
    const char *first = d->n > 0 ? d->at[0].rank : "";
    for (size_t i = 0; i < d->n; i++) {
        const char *rank = d->at[i].rank, *digits = rank + strcspn(rank, "0123456789");
        if (wanted == NULL && strcmp(rank, first) != 0 && d->at[i].step == d->at[0].step)
            return usc_error_set(
                err, USC_E_ARG, -1,
                "%s holds several processes (%s, %s, ...), and a trace is of "
                "one: name it, --rank %s",
                dump, first, rank, first + strcspn(first, "0123456789"));
        if (wanted == NULL || strcmp(rank, wanted) == 0 || strcmp(digits, wanted) == 0) {
            if (n != i) d->at[n] = d->at[i];
            n++;
        }
    }
    if (n == 0)
        return usc_error_set(err, USC_E_NOT_FOUND, -1, "%s holds no process %s", dump,
                             wanted);
    d->n = n;
    return USC_OK;
}

static usc_status find_dumps(usc_importing *im, const char *dump, dumps *d,
                             usc_error *err)
{
    char folder[USC_PATH_SIZE];
    const char *slash = strrchr(dump, '/');
    struct stat info;
    if (strlen(dump) >= sizeof folder)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", dump);
    if (stat(dump, &info) != 0)
        return usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: no such folder or file",
                             dump);
    strcpy(folder, dump);
    if (S_ISREG(info.st_mode)) {
        if (slash == NULL)
            strcpy(folder, ".");
        else
            folder[slash - dump] = '\0';
    }
    usc_status st = is_file(folder, "dump.json") ? add_dump(d, 0, "", folder, err)
                                                 : find_below(d, folder, -1, err);
    if (st == USC_OK && d->n == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "%s: no dump in it: dump.json is looked for, in it and "
                           "in step*/rank*, forward_info_*.json, and "
                           "op_tools_results",
                           dump);
    if (st != USC_OK) return st;
    qsort(d->at, d->n, sizeof *d->at, by_step);
    return choose_rank(d, dump, im->options->rank, err);
}

/* ---- one dump.json ---- */

/* Under autocast a dump has the arguments from before and the result from after: float32
 * in and a narrower float out of a call that autocast narrows. */
static usc_dtype narrowed_to(const char *op, const usc_json *out)
{
    const char *name = usc_json_as_text(usc_json_get(usc_json_item(out, 0), "dtype"));
    const usc_dtype dtype = name != NULL ? usc_dtype_by_name(name) : USC_DTYPE_NONE;
    const bool half = dtype == USC_F16 || dtype == USC_BF16;
    return half && usc_api_is_narrowed(op) ? dtype : USC_DTYPE_NONE;
}

static const usc_import_arg *written_by(const usc_importing *im, const char *op,
                                        const usc_json *kwargs)
{
    if (usc_json_is_true(usc_json_get(usc_json_get(kwargs, "inplace"), "value")) ||
        usc_api_writes_first(op))
        return usc_import_input(im, "args[0]");
    return usc_import_input(im, "kwargs.out");
}

static int64_t known_of(const usc_keys *keys, const char *call)
{
    const int64_t *row = usc_keys_find(keys, usc_key_of(call));
    return row != NULL ? *row : 0;
}

static usc_status take_forward(usc_importing *im, const usc_api_name *name,
                               const usc_json *value, usc_error *err)
{
    const usc_json *args = usc_json_get(value, "input_args");
    const usc_json *kwargs = usc_json_get(value, "input_kwargs");
    const usc_json *out = usc_json_get(value, "output");
    if (!usc_json_is_list(args) || !usc_json_is_object(kwargs))
        return usc_importing_wrong(
            im, USC_E_CORRUPT, NULL, err,
            "'input_args' is no list or 'input_kwargs' no object: was it "
            "dumped with data_mode all, or forward and input?");
    const int64_t sequence = im->call.sequence;
    if (usc_keys_put(&im->calls, usc_key_of(name->call), sequence) != sequence)
        return usc_importing_wrong(im, USC_E_CORRUPT, NULL, err, "stands twice");
    if (usc_api_casts(name->op))
        im->call.cast_to = usc_json_as_text(usc_json_get(usc_json_item(out, 0), "dtype"));
    im->call.narrow_to = narrowed_to(name->op, out);
    usc_status st = usc_import_arguments(im, args, kwargs, err);
    if (st == USC_OK)
        st = usc_import_results(im, out, written_by(im, name->op, kwargs), err);
    if (st != USC_OK) return st;
    const int64_t place = known_of(&im->places, name->call);
    const usc_import_facts facts = {
        .op = name->op,
        .phase = place < 0 ? USC_PHASE_OPTIMIZER : USC_PHASE_FORWARD,
        .module = place > 0 ? place : 0,
        .stack = known_of(&im->stacks, name->call),
        .state = usc_importing_state(im, name->call, 0, false)};

    static const char said[] =
        "it ran under autocast: its float32 inputs are kept as autocast rounded them";
    int64_t *known = usc_keys_find(&im->calls, usc_key_of(name->call));
    if (known != NULL && !usc_importing_asks(im)) *known = -sequence;
    st = usc_importing_put(im, &facts, err);
    return st == USC_OK && im->call.narrowed
               ? usc_trace_put_note(im->trace, sequence, "autocast", said, err)
               : st;
}

/* The gradients that came into the last node of a function in autograd, and those that
 * this node gave, in the order of its own inputs: what a hook on it sees. */
static usc_status take_backward(usc_importing *im, const usc_api_name *name,
                                const usc_json *value, usc_error *err)
{
    const usc_json *given = usc_json_get(value, "input");
    const usc_json *found = usc_json_get(value, "output");
    const char *of = usc_json_as_text(usc_json_get(value, USC_GRADIENTS_OF));
    const int64_t forward = known_of(&im->calls, name->call), own = im->call.sequence;
    if (forward <= 0 || !usc_json_is_list(given)) {
        im->counts->others++;
        return USC_OK;
    }
    if (usc_keys_put(&im->calls, usc_key_of(im->member), own) != own)
        return usc_importing_wrong(im, USC_E_CORRUPT, NULL, err, "stands twice");
    const bool of_node = of == NULL || strcmp(of, "arguments") != 0;
    const int64_t place = known_of(&im->places, name->call);
    usc_status st = usc_import_arguments(im, given, NULL, err);
    if (st == USC_OK) st = usc_import_results(im, found, NULL, err);
    if (st != USC_OK) return st;
    const usc_import_facts facts = {
        .op = name->op,
        .phase = USC_PHASE_BACKWARD,
        .module = place > 0 ? place : 0,
        .stack = known_of(&im->stacks, name->call),
        .state = usc_importing_state(im, name->call, forward, of_node)};
    return usc_importing_put(im, &facts, err);
}

static usc_status take_member(usc_importing *im, const usc_json *value, usc_error *err)
{
    usc_api_name name;
    const bool known = usc_api_name_read(im->member, &name);
    im->counts->modules += known && name.kind == USC_DUMPED_MODULE;
    im->counts->others += !known || name.kind == USC_DUMPED_OTHER;
    if (!known || name.kind == USC_DUMPED_MODULE || name.kind == USC_DUMPED_OTHER)
        return USC_OK;
    if (!usc_json_is_object(value))
        return usc_importing_wrong(im, USC_E_CORRUPT, NULL, err, "is no object");
    return name.kind == USC_DUMPED_FORWARD ? take_forward(im, &name, value, err)
                                           : take_backward(im, &name, value, err);
}

static usc_status read_data(usc_importing *im, usc_json_stream *s, bool *stopped,
                            usc_error *err)
{
    const char *key;
    const int level = s->level;
    usc_status st = USC_OK;
    while (st == USC_OK && (st = usc_json_stream_next(s, &key, err)) == USC_OK) {
        usc_json *value;
        if (s->level < level) break;
        *stopped = usc_importing_stopped(im);
        if (*stopped) break;
        st = usc_json_stream_value(s, &value, err);
        usc_importing_begin(im, s->name, key);
        if (st == USC_OK) st = take_member(im, usc_json_item(value, 0), err);
        usc_json_free(value);
        im->done++;
    }
    return st;
}

/* Members at the top that say what kind of dump it is. */
static usc_status take_fact(usc_importing *im, const char *path, const char *key,
                            const usc_json *value, usc_error *err)
{
    const char *text = usc_json_as_text(value);
    (void)im;
    if (strcmp(key, "framework") != 0 || text == NULL || strcmp(text, "pytorch") == 0)
        return USC_OK;
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "%s: a dump of %.40s; calls of PyTorch are what can be replayed",
                         path, text);
}

/* `work` false: only counts the members, which also shows whether the file is whole. */
static usc_status read_file(usc_importing *im, const char *path, bool work, bool *stopped,
                            usc_error *err)
{
    usc_json_stream s = {0};
    const char *key;
    bool has_data = false;
    usc_status st = usc_json_stream_open(&s, path, USC_IMPORT_LARGEST_CALL, err);
    while (st == USC_OK && !*stopped &&
           (st = usc_json_stream_next(&s, &key, err)) == USC_OK) {
        usc_json *value = NULL;
        if (key == NULL) break;
        if (strcmp(key, "data") == 0) {
            has_data = true;
            st = usc_json_stream_enter(&s, err);
            if (st == USC_OK && work) st = read_data(im, &s, stopped, err);
            while (st == USC_OK && !work &&
                   (st = usc_json_stream_next(&s, &key, err)) == USC_OK && key != NULL)
                im->total++;
            continue;
        }
        st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK) st = take_fact(im, path, key, usc_json_item(value, 0), err);
        usc_json_free(value);
    }
    usc_json_stream_close(&s);
    if (st == USC_OK && !has_data && !*stopped)
        st = usc_error_set(err, USC_E_CORRUPT, -1,
                           "%s: no member 'data': no dump.json of msprobe", path);
    return st;
}

static usc_status read_dump(usc_importing *im, const part_dump *d, bool *stopped,
                            usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_importing_begin_step(im, d->step);
    usc_status st = usc_path_join(im->folder, d->folder, "dump_tensor_data", err);
    if (st == USC_OK) st = usc_path_join(path, d->folder, "stack.json", err);
    if (st == USC_OK) st = usc_importing_stacks(im, path, err);
    if (st == USC_OK) st = usc_path_join(path, d->folder, "construct.json", err);
    if (st == USC_OK) st = usc_importing_construct(im, path, err);
    if (st == USC_OK) st = usc_path_join(path, d->folder, "dump.json", err);
    if (st == USC_OK) st = read_file(im, path, true, stopped, err);
    return st == USC_OK ? usc_importing_end_step(im, err) : st;
}

usc_status usc_import_msprobe(usc_importing *im, const char *dump, bool *stopped,
                              usc_error *err)
{
    dumps d = {0};
    char path[USC_PATH_SIZE];
    im->counts->format = "msprobe";
    usc_status st = find_dumps(im, dump, &d, err);
    for (size_t i = 0; st == USC_OK && i < d.n; i++) {
        st = usc_path_join(path, d.at[i].folder, "dump.json", err);
        if (st == USC_OK) st = read_file(im, path, false, stopped, err);
    }
    for (size_t i = 0; st == USC_OK && !*stopped && i < d.n; i++)
        st = read_dump(im, &d.at[i], stopped, err);
    free(d.at);
    return st;
}
