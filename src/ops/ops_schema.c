// SPDX-License-Identifier: Apache-2.0
// Schemas read. Neighbour: ops_cxx.c, their types in C++.
#include "ops/ops_schema.h"

#include <string.h>

enum { MOST_ARGUMENTS = 64 };

static const char *cut(usc_arena *a, const char *from, size_t n)
{
    while (n > 0 && *from == ' ') {
        from++;
        n--;
    }
    while (n > 0 && from[n - 1] == ' ')
        n--;
    char *made = usc_arena_take(a, n + 1);
    if (made == NULL) return NULL;
    memcpy(made, from, n);
    made[n] = '\0';
    return made;
}

/* Length up to a comma or the end, not looking into brackets and quotes. */
static size_t part_length(const char *text, size_t n)
{
    int depth = 0;
    char quote = '\0';
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (quote != '\0') {
            if (c == quote) quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '(' || c == '[') {
            depth++;
        } else if (c == ')' || c == ']') {
            depth--;
        } else if (c == ',' && depth == 0) {
            return i;
        }
    }
    return n;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.';
}

/* "Tensor(a!)?[2]?" without spaces before; false: no type. */
static bool read_type(const char *at, size_t n, usc_ops_type *t, usc_arena *arena,
                      size_t *used)
{
    size_t i = 0;
    *t = (usc_ops_type){.length = ""};
    while (i < n && in_word(at[i]))
        i++;
    if (i == 0) return false;
    t->base = cut(arena, at, i);
    if (i < n && at[i] == '(') {
        const char *end = memchr(at + i, ')', n - i);
        if (end == NULL) return false;
        t->alias = cut(arena, at + i + 1, (size_t)(end - at) - i - 1);
        i = (size_t)(end - at) + 1;
    }
    for (; i < n && (at[i] == '?' || at[i] == '['); i++) {
        if (at[i] == '?') {
            if (t->list)
                t->list_optional = true;
            else
                t->optional = true;
            continue;
        }
        const char *end = memchr(at + i, ']', n - i);
        if (end == NULL || t->list) return false;
        t->list = true;
        t->length = cut(arena, at + i + 1, (size_t)(end - at) - i - 1);
        i = (size_t)(end - at);
    }
    *used = i;
    return t->base != NULL && t->length != NULL;
}

static bool read_argument(const char *at, size_t n, usc_ops_argument *a, usc_arena *arena)
{
    size_t used = 0;
    while (n > 0 && *at == ' ') {
        at++;
        n--;
    }
    if (!read_type(at, n, &a->type, arena, &used)) return false;
    at += used;
    n -= used;
    const char *equals = memchr(at, '=', n);
    const size_t name_length = equals != NULL ? (size_t)(equals - at) : n;
    a->name = cut(arena, at, name_length);
    if (equals != NULL) a->otherwise = cut(arena, equals + 1, n - name_length - 1);
    return a->name != NULL && strchr(a->name, ' ') == NULL;
}

typedef struct argument_list {
    usc_ops_argument at[MOST_ARGUMENTS];
    size_t n;
} argument_list;

/* The parts of what stands in parentheses. */
static bool read_arguments(const char *at, size_t n, bool named, argument_list *l,
                           usc_arena *arena, const char **why)
{
    bool by_name = false;
    for (size_t i = 0; i < n;) {
        const size_t length = part_length(at + i, n - i);
        const char *part = cut(arena, at + i, length);
        if (part == NULL) return false;
        i += length + 1;
        if (strcmp(part, "*") == 0) {
            by_name = true;
            continue;
        }
        if (l->n == MOST_ARGUMENTS) {
            *why = "more than 64 arguments";
            return false;
        }
        usc_ops_argument *a = &l->at[l->n++];
        *a = (usc_ops_argument){.by_name = by_name};
        if (!read_argument(part, strlen(part), a, arena) ||
            (named && a->name[0] == '\0')) {
            *why = "an argument is a type and a name: 'Tensor self', 'int dim=0'";
            return false;
        }
    }
    return true;
}

static usc_ops_argument *keep(const usc_ops_argument *from, size_t n, usc_arena *arena)
{
    usc_ops_argument *kept = usc_arena_take(arena, (n + 1) * sizeof *kept);
    if (kept != NULL && n > 0) memcpy(kept, from, n * sizeof *kept);
    return kept;
}

bool usc_ops_is_written(const usc_ops_type *t)
{
    return t->alias != NULL && strchr(t->alias, '!') != NULL;
}

bool usc_ops_is_tensor(const usc_ops_type *t)
{
    return strcmp(t->base, "Tensor") == 0;
}

/* What stands before the parenthesis: space::base.overload. */
static bool read_name(usc_ops_schema *s, const char *text, size_t n, usc_arena *arena)
{
    s->name = cut(arena, text, n);
    if (s->name == NULL) return false;
    const char *colons = strstr(s->name, "::");
    s->space = colons != NULL ? cut(arena, s->name, (size_t)(colons - s->name)) : "aten";
    if (colons != NULL) s->name = colons + 2;
    const char *dot = strchr(s->name, '.');
    s->overload = dot != NULL ? dot + 1 : "";
    s->base = dot != NULL ? cut(arena, s->name, (size_t)(dot - s->name)) : s->name;
    for (const char *c = s->name; *c != '\0'; c++)
        if (!in_word(*c)) return false;
    return s->space != NULL && s->base != NULL && s->base[0] != '\0';
}

static void sort_arguments(usc_ops_schema *s, const argument_list *l)
{
    while (s->n_in < l->n) {
        const usc_ops_argument *a = &l->at[s->n_in];
        if (a->by_name && usc_ops_is_written(&a->type)) break;
        s->n_in++;
    }
    s->n_out = l->n - s->n_in;
    s->out = s->in + s->n_in;
    const size_t n = strlen(s->base);
    if (s->n_out > 0)
        s->variant = USC_OPS_OUT;
    else if (n > 1 && s->base[n - 1] == '_' && s->base[n - 2] != '_' && s->n_in > 0 &&
             usc_ops_is_written(&s->in[0].type))
        s->variant = USC_OPS_INPLACE;
}

static bool read_returned(usc_ops_schema *s, const char *at, usc_arena *arena,
                          const char **why)
{
    argument_list l = {.n = 0};
    size_t n = strlen(at);
    while (n > 0 && *at == ' ') {
        at++;
        n--;
    }
    if (n > 1 && at[0] == '(') {
        at++;
        n -= 2;
    }
    if (!read_arguments(at, n, false, &l, arena, why)) return false;
    s->returned = keep(l.at, l.n, arena);
    s->n_returned = l.n;
    return s->returned != NULL;
}

/* The parenthesis that closes the one at `open`; NULL: none does. */
static const char *closing(const char *open)
{
    int depth = 0;
    for (const char *c = open; *c != '\0'; c++) {
        if (*c == '(') depth++;
        if (*c == ')' && --depth == 0) return c;
    }
    return NULL;
}

usc_ops_schema *usc_ops_schema_read(const char *text, usc_arena *arena, const char **why)
{
    *why = "a schema is 'name.overload(Tensor self, int dim=0) -> Tensor'";
    usc_ops_schema *s = usc_arena_take(arena, sizeof *s);
    const char *open = strchr(text, '('), *end = open != NULL ? closing(open) : NULL;
    const char *arrow = end != NULL ? strstr(end, "->") : NULL;
    if (s == NULL || arrow == NULL) return NULL;
    *s = (usc_ops_schema){0};
    argument_list l = {.n = 0};
    if (!read_name(s, text, (size_t)(open - text), arena) ||
        !read_arguments(open + 1, (size_t)(end - open) - 1, true, &l, arena, why))
        return NULL;
    s->in = keep(l.at, l.n, arena);
    if (s->in == NULL) return NULL;
    sort_arguments(s, &l);
    return read_returned(s, arrow + 2, arena, why) ? s : NULL;
}

/* ---- back as text */

static void put_type(usc_line *l, const usc_ops_type *t)
{
    usc_line_text(l, t->base);
    if (t->alias != NULL) usc_line_add(l, "(%s)", t->alias);
    if (t->optional) usc_line_text(l, "?");
    if (t->list) usc_line_add(l, "[%s]", t->length);
    if (t->list_optional) usc_line_text(l, "?");
}

static void put_argument(usc_line *l, const usc_ops_argument *a)
{
    put_type(l, &a->type);
    if (a->name[0] != '\0') usc_line_add(l, " %s", a->name);
    if (a->otherwise != NULL) usc_line_add(l, "=%s", a->otherwise);
}

void usc_ops_put_signature(usc_line *l, const usc_ops_schema *s)
{
    usc_line_text(l, "(");
    for (size_t i = 0; i < s->n_in + s->n_out; i++) {
        const usc_ops_argument *a = &s->in[i];
        if (i > 0) usc_line_text(l, ", ");
        if (a->by_name && (i == 0 || !s->in[i - 1].by_name)) usc_line_text(l, "*, ");
        put_argument(l, a);
    }
    usc_line_text(l, ") -> ");
    if (s->n_returned != 1) usc_line_text(l, "(");
    for (size_t i = 0; i < s->n_returned; i++) {
        if (i > 0) usc_line_text(l, ", ");
        put_argument(l, &s->returned[i]);
    }
    if (s->n_returned != 1) usc_line_text(l, ")");
}
