// SPDX-License-Identifier: Apache-2.0
// Files of operators as entries: torch's own, and those of a device in the same words.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/pattern.h>

#include "base/number.h"
#include "ops/ops_book.h"

enum { NEAR_PERCENT = 65 };

static const char *const fields[] = {
    "func",        "dispatch",     "structured",   "structured_delegate",
    "precomputed", "device_guard", "device_check", "structured_inherits",
    "tags",        "autogen",      "backward",     "variants",
    "kernel",      "outputs",
};

static const char *const device_keys[] = {
    "PrivateUse1",          "QuantizedPrivateUse1",    "SparsePrivateUse1",
    "SparseCsrPrivateUse1", "NestedTensorPrivateUse1",
};

#define N_OF(list) (sizeof(list) / sizeof *(list))

/* ---- problems */

static void add_problem(usc_ops_book *b, usc_ops_problem **list, size_t *n, size_t *size,
                        usc_ops_problem p)
{
    if (*n == *size) {
        usc_ops_problem *grown =
            usc_arena_grow(&b->arena, *list, *n, size, sizeof **list);
        if (grown == NULL) return;
        *list = grown;
    }
    if (p.text != NULL) (*list)[(*n)++] = p;
}

void usc_ops_say(usc_ops_book *b, const usc_yaml *at, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    add_problem(b, &b->problem, &b->n_problems, &b->problems_size,
                (usc_ops_problem){at != NULL ? at->line : 1, at != NULL ? at->column : 1,
                                  usc_arena_text(&b->arena, text)});
}

static void leave_out(usc_ops_book *b, const usc_yaml *at, const char *name)
{
    add_problem(b, &b->left_out, &b->n_left_out, &b->left_out_size,
                (usc_ops_problem){at->line, at->column, usc_arena_text(&b->arena, name)});
}

/* ---- by name */

static const char *full_name(usc_arena *arena, const char *space, const char *name)
{
    usc_line l = {0};
    usc_line_add(&l, "%s::%s", space, name);
    const char *kept = l.text != NULL ? usc_arena_text(arena, l.text) : NULL;
    usc_line_free(&l);
    return kept;
}

const usc_ops_entry *usc_ops_find(const usc_ops_book *b, const char *name)
{
    usc_line l = {0};
    if (strstr(name, "::") == NULL) usc_line_text(&l, "aten::");
    usc_line_text(&l, name);
    const int64_t *at =
        l.text != NULL ? usc_keys_find(&b->by_name, usc_key_of(l.text)) : NULL;
    usc_line_free(&l);
    return at != NULL ? &b->entry[*at] : NULL;
}

const char *usc_ops_nearest(const usc_ops_book *b, const char *name)
{
    const char *best = NULL;
    double most = NEAR_PERCENT / 100.0;
    if (strncmp(name, "aten::", 6) == 0) name += 6;
    for (size_t i = 0; i < b->n; i++) {
        const double like = usc_likeness(name, b->entry[i].name);
        if (like <= most) continue;
        most = like;
        best = b->entry[i].name;
    }
    return best;
}

static const char *nearest_of(const char *given, const char *const *names, size_t n)
{
    const char *best = names[0];
    for (size_t i = 1; i < n; i++)
        if (usc_likeness(given, names[i]) > usc_likeness(given, best)) best = names[i];
    return best;
}

const char *usc_ops_kernel_of(const usc_ops_entry *e, const char *key)
{
    for (size_t i = 0; i < e->n_dispatch; i++)
        if (strcmp(e->dispatch[i].key, key) == 0) return e->dispatch[i].kernel;
    return NULL;
}

/* ---- entries */

static const char *text_of(const usc_yaml *map, const char *key)
{
    const usc_yaml *value = usc_yaml_get(map, key);
    return value != NULL && value->kind == USC_YAML_TEXT ? value->text : NULL;
}

static bool is_true(const char *text)
{
    return text != NULL && (strcmp(text, "True") == 0 || strcmp(text, "true") == 0);
}

/* "CPU, CUDA: kernel" is two. */
static void read_dispatch(usc_ops_book *b, usc_ops_entry *e)
{
    const usc_yaml *map = usc_yaml_get(e->node, "dispatch");
    if (map == NULL) return;
    if (map->kind != USC_YAML_MAP) {
        usc_ops_say(b, map, "dispatch is a map of keys and kernels: 'PrivateUse1: Tril'");
        return;
    }
    for (size_t i = 0; i + 1 < map->n; i += 2) {
        const char *keys = map->item[i]->text;
        for (size_t at = 0; keys[at] != '\0';) {
            at += strspn(keys + at, ", ");
            const size_t n = strcspn(keys + at, ", ");
            char *key = usc_arena_take(&b->arena, n + 1);
            if (key == NULL || n == 0 || e->n_dispatch == USC_OPS_MOST_KEYS) break;
            memcpy(key, keys + at, n);
            key[n] = '\0';
            e->dispatch[e->n_dispatch++] =
                (usc_ops_dispatch){key, map->item[i + 1]->text, map->item[i + 1]};
            at += n;
        }
    }
}

static void read_common(usc_ops_book *b, usc_ops_entry *e)
{
    e->structured = text_of(e->node, "structured");
    e->delegate = text_of(e->node, "structured_delegate");
    e->inherits = text_of(e->node, "structured_inherits");
    e->precomputed = usc_yaml_get(e->node, "precomputed");
    e->autogen = usc_yaml_get(e->node, "autogen");
    e->backward = usc_yaml_get(e->node, "backward");
    e->in_c = usc_yaml_get(e->node, "kernel");
    e->outputs = usc_yaml_get(e->node, "outputs");
    read_dispatch(b, e);
}

static bool name_entry(usc_ops_book *b, usc_ops_entry *e, int64_t i)
{
    const char *name = full_name(&b->arena, e->space, e->name);
    if (name == NULL) return true;
    return usc_keys_put(&b->by_name, usc_key_of(name), i) == i;
}

static void note_generated(usc_ops_book *b, const usc_ops_entry *e)
{
    const char *at = e->autogen != NULL ? e->autogen->text : "";
    while (*at != '\0') {
        char name[256];
        at += strspn(at, ", ");
        const size_t n = strcspn(at, ", ");
        if (n > 0 && n < sizeof name) {
            memcpy(name, at, n);
            name[n] = '\0';
            (void)usc_keys_put(&b->generated, usc_key_of(name), (int64_t)(e - b->entry));
        }
        at += n;
    }
}

static usc_status begin(usc_ops_book *b, const char *path, usc_yaml **root,
                        usc_error *err)
{
    *b = (usc_ops_book){
        .arena = {.alloc = usc_libc_alloc}, .path = path, .cxx_space = "at::sim"};
    return usc_yaml_read(path, &b->arena, root, err);
}

static usc_status take_entries(usc_ops_book *b, size_t n, usc_error *err)
{
    b->entry = usc_arena_take(&b->arena, (n + 1) * sizeof *b->entry);
    if (b->entry == NULL) return usc_no_memory(b->path, err);
    memset(b->entry, 0, (n + 1) * sizeof *b->entry);
    return USC_OK;
}

static bool has_memory(const usc_ops_book *b)
{
    return !b->arena.failed && !b->by_name.failed && !b->generated.failed;
}

usc_status usc_ops_read_native(usc_ops_book *b, const char *path, usc_error *err)
{
    usc_yaml *root;
    usc_status st = begin(b, path, &root, err);
    if (st == USC_OK && (root == NULL || root->kind != USC_YAML_LIST || root->n == 0))
        st = usc_error_set(err, USC_E_CORRUPT, -1,
                           "%s: no list of operators; torch's is called "
                           "native_functions.yaml",
                           path);
    if (st == USC_OK) st = take_entries(b, root->n, err);
    for (size_t i = 0; st == USC_OK && i < root->n; i++) {
        usc_ops_entry *e = &b->entry[b->n];
        const char *why;
        *e = (usc_ops_entry){.node = root->item[i],
                             .func = usc_yaml_get(root->item[i], "func")};
        if (e->func == NULL) continue;
        e->schema = usc_ops_schema_read(e->func->text, &b->arena, &why);
        if (e->schema == NULL) continue; /* of another time: what is asked for is told */
        e->space = e->schema->space;
        e->name = e->schema->name;
        read_common(b, e);
        (void)name_entry(b, e, (int64_t)b->n++);
        note_generated(b, e);
    }
    if (st == USC_OK && !has_memory(b)) st = usc_no_memory(path, err);
    return st;
}

/* ---- a device's file */

static void check_fields(usc_ops_book *b, const usc_yaml *map)
{
    for (size_t i = 0; i + 1 < map->n; i += 2) {
        size_t k = 0;
        while (k < N_OF(fields) && strcmp(fields[k], map->item[i]->text) != 0)
            k++;
        if (k == N_OF(fields))
            usc_ops_say(b, map->item[i], "there is no field '%.60s'; did you mean '%s'?",
                        map->item[i]->text,
                        nearest_of(map->item[i]->text, fields, N_OF(fields)));
    }
}

static void check_keys(usc_ops_book *b, const usc_ops_entry *e)
{
    const usc_yaml *map = usc_yaml_get(e->node, "dispatch");
    for (size_t i = 0; i < e->n_dispatch; i++) {
        const char *key = e->dispatch[i].key;
        size_t k = 0;
        while (k < N_OF(device_keys) && strcmp(device_keys[k], key) != 0)
            k++;
        if (k < N_OF(device_keys)) continue;
        usc_ops_say(b, map, "there is no key '%.60s' of a device; did you mean '%s'?",
                    key, nearest_of(key, device_keys, N_OF(device_keys)));
    }
}

static void read_flags(usc_ops_book *b, usc_ops_entry *e)
{
    const char *guard = text_of(e->node, "device_guard");
    const char *check = text_of(e->node, "device_check");
    e->guard = is_true(guard);
    e->same_device = check != NULL && strcmp(check, "ExactSame") == 0;
    if (guard != NULL && !e->guard && strcmp(guard, "False") != 0 &&
        strcmp(guard, "false") != 0)
        usc_ops_say(b, usc_yaml_get(e->node, "device_guard"),
                    "device_guard is True or False, not '%.60s'", guard);
    if (check != NULL && !e->same_device && strcmp(check, "NoCheck") != 0)
        usc_ops_say(b, usc_yaml_get(e->node, "device_check"),
                    "device_check is ExactSame or NoCheck, not '%.60s'", check);
}

static bool same_signature(const usc_ops_schema *a, const usc_ops_schema *b, char *given,
                           char *theirs, size_t size)
{
    usc_line x = {0}, y = {0};
    usc_ops_put_signature(&x, a);
    usc_ops_put_signature(&y, b);
    const bool same = x.text != NULL && y.text != NULL && strcmp(x.text, y.text) == 0;
    (void)usc_format(given, size, "%s", x.text != NULL ? x.text : "");
    (void)usc_format(theirs, size, "%s", y.text != NULL ? y.text : "");
    usc_line_free(&x);
    usc_line_free(&y);
    return same;
}

/* A schema in full: a new operator, or what torch says of one. */
static bool read_full(usc_ops_book *b, const usc_ops_book *native, usc_ops_entry *e)
{
    const char *why;
    char given[400], theirs[400];
    const usc_ops_schema *s = usc_ops_schema_read(e->func->text, &b->arena, &why);
    if (s == NULL) {
        usc_ops_say(b, e->func, "'%.80s': %s", e->func->text, why);
        return false;
    }
    e->space = s->space;
    e->name = s->name;
    e->schema = s;
    const char *name = full_name(&b->arena, s->space, s->name);
    e->torch_has = name != NULL ? usc_ops_find(native, name) : NULL;
    if (e->torch_has != NULL) {
        if (!same_signature(s, e->torch_has->schema, given, theirs, sizeof given))
            usc_ops_say(b, e->func, "%s is %s here, and %s in this torch", e->name, given,
                        theirs);
        e->schema = e->torch_has->schema;
    } else if (strcmp(e->space, "aten") == 0) {
        const char *near = usc_ops_nearest(native, e->name);
        usc_ops_say(
            b, e->func,
            "this torch has no operator %s%s%s%s; one of your own has a name space "
            "of its own, 'mine::%s(...)'",
            e->name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
            near != NULL ? "'?" : "", e->name);
        return false;
    }
    return true;
}

static bool is_generated(const usc_ops_book *native, const char *name)
{
    return usc_keys_find(&native->generated, usc_key_of(name)) != NULL;
}

static bool read_short(usc_ops_book *b, const usc_ops_book *native, usc_ops_entry *e)
{
    const char *name = e->func->text;
    e->torch_has = usc_ops_find(native, name);
    if (e->torch_has != NULL) {
        e->space = e->torch_has->space;
        e->name = e->torch_has->name;
        e->schema = e->torch_has->schema;
        return true;
    }
    if (b->lenient) {
        leave_out(b, e->func, name);
        return false;
    }
    const char *near = usc_ops_nearest(native, name);
    if (is_generated(native, name))
        usc_ops_say(b, e->func,
                    "torch generates %.80s from another variant of it; write that one's "
                    "entry, or this one's schema in full",
                    name);
    else
        usc_ops_say(b, e->func, "this torch has no operator '%.80s'%s%s%s", name,
                    near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?" : "");
    return false;
}

/* False: it is left out, or was told. */
static bool read_one(usc_ops_book *b, const usc_ops_book *native, usc_ops_entry *e)
{
    if (e->node->kind != USC_YAML_MAP || e->func == NULL ||
        e->func->kind != USC_YAML_TEXT) {
        usc_ops_say(b, e->node, "an entry begins with '- func: NAME'");
        return false;
    }
    check_fields(b, e->node);
    read_common(b, e);
    read_flags(b, e);
    if (!b->external) check_keys(b, e);
    return strchr(e->func->text, '(') != NULL ? read_full(b, native, e)
                                              : read_short(b, native, e);
}

/* A text among `supported` is an entry whose kernel has torch's own name. */
static bool read_external(usc_ops_book *b, const usc_ops_book *native, usc_ops_entry *e,
                          const char *key)
{
    e->func = e->node;
    if (!read_short(b, native, e)) return false;
    usc_line l = {0};
    usc_line_add(&l, "%s::%s%s", b->class_name, e->schema->base,
                 e->schema->variant == USC_OPS_OUT ? "_out" : "");
    e->structured = "false";
    e->guard = true;
    e->dispatch[e->n_dispatch++] = (usc_ops_dispatch){
        key, l.text != NULL ? usc_arena_text(&b->arena, l.text) : "", e->node};
    usc_line_free(&l);
    return true;
}

static void take_entry(usc_ops_book *b, const usc_ops_book *native, const usc_yaml *node,
                       const char *key)
{
    usc_ops_entry *e = &b->entry[b->n];
    *e = (usc_ops_entry){.node = node, .func = usc_yaml_get(node, "func")};
    const bool good = node->kind == USC_YAML_TEXT && b->external
                          ? read_external(b, native, e, key)
                          : read_one(b, native, e);
    if (!good) return;
    if (name_entry(b, e, (int64_t)b->n))
        b->n++;
    else
        usc_ops_say(b, e->func, "%s stands on line %lld already", e->name,
                    (long long)usc_ops_find(b, full_name(&b->arena, e->space, e->name))
                        ->node->line);
}

/* torchgen's form for backends elsewhere; its words beside the lists of operators. */
static void read_map(usc_ops_book *b, const usc_ops_book *native, const usc_yaml *root)
{
    static const char *const words[] = {
        "backend",      "class_name",         "cpp_namespace", "extra_headers",
        "supported",    "autograd",           "symint",        "full_codegen",
        "device_guard", "use_out_as_primary", "non_native",    "ir_gen",
    };
    b->external = true;
    for (size_t i = 0; i + 1 < root->n; i += 2) {
        size_t k = 0;
        while (k < N_OF(words) && strcmp(words[k], root->item[i]->text) != 0)
            k++;
        if (k == N_OF(words))
            usc_ops_say(b, root->item[i], "there is no word '%.60s'; did you mean '%s'?",
                        root->item[i]->text,
                        nearest_of(root->item[i]->text, words, N_OF(words)));
    }
    const char *space = text_of(root, "cpp_namespace");
    const char *backend = text_of(root, "backend"), *name = text_of(root, "class_name");
    if (space != NULL) b->cxx_space = space;
    if (backend == NULL || strcmp(backend, "PrivateUse1") != 0)
        usc_ops_say(
            b, usc_yaml_get(root, "backend"),
            "backend is PrivateUse1, the device that torch does not know by name");
    b->class_name = name != NULL ? name : "PrivateUse1NativeFunctions";
    static const char *const lists[][2] = {{"supported", "PrivateUse1"},
                                           {"autograd", "AutogradPrivateUse1"}};
    for (int i = 0; i < 2; i++) {
        const usc_yaml *list = usc_yaml_get(root, lists[i][0]);
        for (size_t k = 0; list != NULL && k < list->n; k++)
            take_entry(b, native, list->item[k], lists[i][1]);
    }
}

static size_t n_items(const usc_yaml *root)
{
    size_t n = root != NULL ? root->n : 0;
    static const char *const lists[] = {"supported", "autograd"};
    for (int i = 0; i < 2; i++) {
        const usc_yaml *list = usc_yaml_get(root, lists[i]);
        if (list != NULL) n += list->n;
    }
    return n;
}

usc_status usc_ops_read_device(usc_ops_book *b, const usc_ops_book *native,
                               const char *path, usc_error *err)
{
    usc_yaml *root;
    const bool lenient = b->lenient;
    usc_status st = begin(b, path, &root, err);
    b->lenient = lenient;
    if (st == USC_OK) st = take_entries(b, n_items(root), err);
    if (st != USC_OK) return st;
    if (root != NULL && root->kind == USC_YAML_MAP)
        read_map(b, native, root);
    else if (root == NULL || root->kind != USC_YAML_LIST)
        usc_ops_say(b, root, "a list of operators is needed: '- func: tril', ...");
    else
        for (size_t i = 0; i < root->n; i++)
            take_entry(b, native, root->item[i], NULL);
    return has_memory(b) ? USC_OK : usc_no_memory(path, err);
}

void usc_ops_book_free(usc_ops_book *b)
{
    usc_keys_free(&b->by_name);
    usc_keys_free(&b->generated);
    usc_arena_free(&b->arena);
}
