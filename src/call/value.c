// SPDX-License-Identifier: Apache-2.0
// Arguments of a call out of their JSON. One object of one member stands for what JSON
// lacks: docs/reference/trace-format.md, "Arguments".
#include <ulpscope/value.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "call/value_json.h"

enum { MOST_DEPTH = 100 };

/* Where a value stands, from the inside out: made into a text where one is kept. */
typedef struct place {
    const struct place *around;
    const char *name; /* of a member or an argument; NULL: an item */
    size_t item;
} place;

typedef struct reader {
    usc_arena *arena;
    bool marked; /* objects stand for what JSON lacks; else they are maps */
    int depth;
} reader;

static const struct {
    usc_value_kind kind;
    const char *mark;
} marks[] = {{USC_VALUE_TENSOR, "tensor"},   {USC_VALUE_DTYPE, "dtype"},
             {USC_VALUE_DEVICE, "device"},   {USC_VALUE_LAYOUT, "layout"},
             {USC_VALUE_FLOAT, "float"},     {USC_VALUE_MEMORY_FORMAT, "memory_format"},
             {USC_VALUE_COMPLEX, "complex"}, {USC_VALUE_GENERATOR, "generator"},
             {USC_VALUE_TUPLE, "tuple"},     {USC_VALUE_SLICE, "slice"},
             {USC_VALUE_MAP, "dict"},        {USC_VALUE_ELLIPSIS, "ellipsis"},
             {USC_VALUE_OTHER, "other"}};

enum { N_MARKS = sizeof marks / sizeof marks[0] };

const char *usc_value_mark(usc_value_kind kind)
{
    for (size_t i = 0; i < N_MARKS; i++)
        if (marks[i].kind == kind) return marks[i].mark;
    return NULL;
}

bool usc_value_has_items(const usc_value *value)
{
    return value->kind == USC_VALUE_LIST || value->kind == USC_VALUE_TUPLE ||
           value->kind == USC_VALUE_SLICE;
}

/* ---- places ---- */

static size_t put_place(const place *at, char *out, size_t size)
{
    const size_t n = at->around != NULL ? put_place(at->around, out, size) : 0;
    char *end = n < size ? out + n : NULL;
    const size_t rest = n < size ? size - n : 0;
    if (at->name == NULL) return n + (size_t)snprintf(end, rest, "[%zu]", at->item);
    return n + (size_t)snprintf(end, rest, "%s%s", n > 0 ? "." : "", at->name);
}

static const char *place_text(const reader *r, const place *at)
{
    const size_t n = put_place(at, NULL, 0);
    char *text = usc_arena_take(r->arena, n + 1);
    if (text != NULL) (void)put_place(at, text, n + 1);
    return text;
}

/* ---- values: without memory the arena has failed, and what is made is thrown away ----
 */

static usc_value read_value(reader *r, const usc_json *from, const place *at);

static void read_items(reader *r, const usc_json *from, const place *at, usc_value *out)
{
    const size_t n = usc_json_is_list(from) ? usc_json_size(from) : 0;
    out->item = usc_arena_take(r->arena, (n + 1) * sizeof *out->item);
    for (size_t i = 0; out->item != NULL && i < n; i++) {
        const place inner = {.around = at, .item = i};
        out->item[i] = read_value(r, usc_json_item(from, i), &inner);
        out->n++;
    }
}

static usc_argument *read_members(reader *r, const usc_json *from, const place *at,
                                  int64_t *n)
{
    usc_argument *member =
        usc_arena_take(r->arena, (usc_json_size(from) + 1) * sizeof *member);
    const char *name;
    const usc_json *value;
    *n = 0;
    for (void *next = NULL; member != NULL && usc_json_next(from, &next, &name, &value);
         ++*n) {
        const place inner = {.around = at, .name = name};
        member[*n].name = usc_arena_text(r->arena, name);
        member[*n].value = read_value(r, value, &inner);
    }
    return member;
}

/* A number, or the text of one: "nan". */
static bool read_double(const usc_json *from, double *out)
{
    char *end;
    const char *text = usc_json_as_text(from);
    *out = usc_json_as_number(from);
    if (text == NULL) return !isnan(*out);
    (void)usc_parse_number(text, &end);
    return end != text && *end == '\0';
}

static bool read_complex(const usc_json *from, double *out)
{
    return usc_json_is_list(from) && usc_json_size(from) == 2 &&
           read_double(usc_json_item(from, 0), &out[0]) &&
           read_double(usc_json_item(from, 1), &out[1]);
}

static bool read_tensor(const reader *r, const usc_json *held, const place *at,
                        usc_value *out)
{
    if (usc_json_is_true(held))
        out->place = place_text(r, at);
    else
        out->kind = USC_VALUE_NONE;
    return usc_json_is_flag(held);
}

static bool read_named(const reader *r, const usc_json *held, const place *at,
                       usc_value *out)
{
    const char *text = usc_json_as_text(held);
    if (out->kind == USC_VALUE_GENERATOR && usc_json_is_true(held)) text = "";
    out->text = usc_arena_text(r->arena, text);
    if (out->kind == USC_VALUE_OTHER) out->place = place_text(r, at);
    return text != NULL;
}

/* What an object of the mark of out->kind holds; false: that is no value of the format.
 */
static bool read_held(reader *r, const usc_json *held, const place *at, usc_value *out)
{
    switch (out->kind) {
    case USC_VALUE_FLOAT:
        return read_double(held, &out->number[0]);
    case USC_VALUE_COMPLEX:
        return read_complex(held, out->number);
    case USC_VALUE_ELLIPSIS:
        return usc_json_is_true(held);
    case USC_VALUE_TENSOR:
        return read_tensor(r, held, at, out);
    case USC_VALUE_TUPLE:
    case USC_VALUE_SLICE:
        read_items(r, held, at, out);
        return usc_json_is_list(held) && (out->kind == USC_VALUE_TUPLE || out->n == 3);
    case USC_VALUE_MAP:
        out->member = read_members(r, held, at, &out->n);
        return usc_json_is_object(held);
    case USC_VALUE_DTYPE:
    case USC_VALUE_DEVICE:
    case USC_VALUE_LAYOUT:
    case USC_VALUE_MEMORY_FORMAT:
    case USC_VALUE_GENERATOR:
    case USC_VALUE_OTHER:
        return read_named(r, held, at, out);
    case USC_VALUE_NONE:
    case USC_VALUE_BOOL:
    case USC_VALUE_INT:
    case USC_VALUE_TEXT:
    case USC_VALUE_LIST:
        break;
    }
    return false;
}

static bool read_mark(reader *r, const usc_json *from, const place *at, usc_value *out)
{
    void *next = NULL;
    const char *mark;
    const usc_json *held;
    if (usc_json_size(from) != 1 || !usc_json_next(from, &next, &mark, &held))
        return false;
    for (size_t i = 0; i < N_MARKS; i++)
        if (strcmp(mark, marks[i].mark) == 0) {
            out->kind = marks[i].kind;
            return read_held(r, held, at, out);
        }
    return false;
}

static usc_value other(const reader *r, const char *text, const place *at)
{
    return (usc_value){.kind = USC_VALUE_OTHER, .text = text, .place = place_text(r, at)};
}

/* A list or an object. */
static usc_value read_nest(reader *r, const usc_json *from, const place *at)
{
    usc_value out = {.kind = USC_VALUE_LIST};
    if (r->depth >= MOST_DEPTH) return other(r, "nested too deep", at);
    r->depth++;
    bool good = true;
    if (usc_json_is_list(from)) {
        read_items(r, from, at, &out);
    } else if (r->marked) {
        good = read_mark(r, from, at, &out);
    } else {
        out.kind = USC_VALUE_MAP;
        out.member = read_members(r, from, at, &out.n);
    }
    r->depth--;
    if (good) return out;
    return other(r, usc_json_print(from, r->arena), at);
}

static usc_value read_value(reader *r, const usc_json *from, const place *at)
{
    usc_value out = {0};
    if (usc_json_is_list(from) || usc_json_is_object(from)) return read_nest(r, from, at);
    const char *text = usc_json_as_text(from);
    if (text != NULL) {
        out.kind = USC_VALUE_TEXT;
        out.text = usc_arena_text(r->arena, text);
    } else if (usc_json_as_integer(from, &out.integer)) {
        out.kind = USC_VALUE_INT;
    } else if (usc_json_is_flag(from)) {
        out.kind = USC_VALUE_BOOL;
        out.truth = usc_json_is_true(from);
    } else if (!usc_json_is_null(from)) {
        out.kind = USC_VALUE_FLOAT;
        out.number[0] = usc_json_as_number(from);
    }
    return out;
}

usc_value usc_value_of_json(const usc_json *from, usc_arena *arena)
{
    static const place at = {.name = ""};
    reader r = {.arena = arena, .marked = true};
    return read_value(&r, from, &at);
}

/* ---- the whole ---- */

static void read_list(reader *r, const usc_json *from, const place *at, usc_argument *out)
{
    for (size_t i = 0; i < usc_json_size(from); i++) {
        const place inner = {.around = at, .item = i};
        out[i] = (usc_argument){.value = read_value(r, usc_json_item(from, i), &inner)};
    }
}

/* Those by position, then those by keyword. NULL, or the part that is none. */
static const char *read_arguments(reader *r, const usc_json *root, usc_arguments *out)
{
    static const place at_args = {.name = "args"}, at_kwargs = {.name = "kwargs"};
    const usc_json *args = usc_json_get(root, "args");
    const usc_json *kwargs = usc_json_get(root, "kwargs");
    const size_t n_args = usc_json_size(args), n = n_args + usc_json_size(kwargs);
    int64_t n_named;
    r->marked = true;
    if (!usc_json_is_object(root)) return "they are no object";
    if (args != NULL && !usc_json_is_list(args)) return "args is no list";
    if (kwargs != NULL && !usc_json_is_object(kwargs)) return "kwargs is no object";
    usc_argument *all = usc_arena_take(r->arena, (n + 1) * sizeof *all);
    const usc_argument *named = read_members(r, kwargs, &at_kwargs, &n_named);
    if (all == NULL || named == NULL) return NULL;
    read_list(r, args, &at_args, all);
    memcpy(all + n_args, named, (n - n_args) * sizeof *all);
    *out = (usc_arguments){.n = (int64_t)n, .argument = all};
    return NULL;
}

static const char *read_plain(reader *r, const usc_json *root, usc_arguments *out)
{
    static const place at = {.name = ""};
    usc_argument *all = NULL;
    if (usc_json_is_list(root)) {
        all = usc_arena_take(r->arena, (usc_json_size(root) + 1) * sizeof *all);
        if (all != NULL) read_list(r, root, &at, all);
        out->n = (int64_t)usc_json_size(root);
    } else {
        all = read_members(r, root, &at, &out->n);
    }
    out->argument = all;
    return NULL;
}

static usc_status read_text(const char *json, const char *what,
                            const char *(*read)(reader *, const usc_json *,
                                                usc_arguments *),
                            usc_arguments *out, usc_error *err)
{
    *out = (usc_arguments){0};
    if (json == NULL || *json == '\0') return USC_OK;
    usc_json *root = NULL;
    usc_arena *arena = NULL;
    usc_status st =
        usc_json_parse(json, strlen(json), what, "not as a trace has them", &root, err);
    if (st == USC_OK) arena = usc_libc_alloc.resize(NULL, NULL, 0, sizeof *arena);
    if (arena != NULL) {
        *arena = (usc_arena){.alloc = usc_libc_alloc};
        reader r = {.arena = arena};
        const char *wrong = read(&r, root, out);
        if (wrong != NULL)
            st = usc_error_set(err, USC_E_CORRUPT, -1, "%s: not as a trace has them: %s",
                               what, wrong);
    }
    if (st == USC_OK && (arena == NULL || arena->failed))
        st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", what);
    out->memory = arena;
    if (st != USC_OK) usc_arguments_free(out);
    usc_json_free(root);
    return st;
}

usc_status usc_arguments_read(const char *json, usc_arguments *out, usc_error *err)
{
    return read_text(json, "arguments of a call", read_arguments, out, err);
}

usc_status usc_members_read(const char *json, usc_arguments *out, usc_error *err)
{
    return read_text(json, "facts of a call", read_plain, out, err);
}

void usc_arguments_free(usc_arguments *a)
{
    usc_arena *arena = a->memory;
    if (arena != NULL) {
        usc_arena_free(arena);
        (void)usc_libc_alloc.resize(NULL, arena, sizeof *arena, 0);
    }
    *a = (usc_arguments){0};
}

void usc_value_text(const usc_value *value, char *out, size_t size)
{
    char number[2][USC_NUMBER_SIZE] = {"", ""};
    const char *text = "";
    if (value->kind == USC_VALUE_FLOAT || value->kind == USC_VALUE_COMPLEX)
        for (size_t i = 0; i < 2; i++)
            usc_number_text(value->number[i], number[i]);
    if (value->kind == USC_VALUE_COMPLEX) {
        (void)snprintf(out, size, "%s%s%sj", number[0], value->number[1] < 0 ? "" : "+",
                       number[1]);
        return;
    }
    if (value->kind == USC_VALUE_INT) {
        (void)snprintf(out, size, "%lld", (long long)value->integer);
        return;
    }
    if (value->kind == USC_VALUE_FLOAT)
        text = number[0];
    else if (value->kind == USC_VALUE_BOOL)
        text = value->truth ? "True" : "False";
    else if (value->kind == USC_VALUE_NONE || value->kind == USC_VALUE_TENSOR)
        text = "None"; /* a tensor that is not defined */
    else if (value->kind == USC_VALUE_ELLIPSIS)
        text = "...";
    else if (!usc_value_has_items(value) && value->kind != USC_VALUE_MAP)
        text = value->text;
    (void)snprintf(out, size, "%s", text);
}
