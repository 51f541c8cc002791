// SPDX-License-Identifier: Apache-2.0
// Imports of Python: what they bind is remembered under all its names, and what moves at
// the target is imported from there.
#include <stdlib.h>
#include <string.h>

#include "port/port_job.h"

enum { MOST_NAMES = 64 };

static void bind(usc_port_job *job, const char *name, const char *stands_for,
                 const char *shown)
{
    if (strncmp(stands_for, "torch", 5) == 0 &&
        (stands_for[5] == '\0' || stands_for[5] == '.'))
        job->loads_torch = true;
    if (job->n_aliases == job->aliases_size) {
        const size_t size = job->aliases_size > 0 ? job->aliases_size * 2 : 16;
        usc_port_alias *grown = realloc(job->alias, size * sizeof *grown);
        if (grown == NULL) {
            job->failed = true;
            return;
        }
        job->alias = grown;
        job->aliases_size = size;
    }
    const usc_hash128 key = usc_hash_bytes(name, strlen(name));
    int64_t *last = usc_keys_find(&job->bound, key);
    if (last != NULL)
        *last = (int64_t)job->n_aliases;
    else
        (void)usc_keys_put(&job->bound, key, (int64_t)job->n_aliases);
    job->failed |= job->bound.failed;
    job->alias[job->n_aliases++] = (usc_port_alias){name, stands_for, shown};
}

/* A dotted name from place *i on, which goes behind it. */
static const char *take_dotted(usc_port_job *job, size_t *i)
{
    const char *name = "";
    while (usc_port_kind_at(job, *i, USC_PORT_NAME)) {
        const char *word = usc_port_word(job, *i);
        name = name[0] == '\0' ? word : usc_port_dot(job, name, word);
        ++*i;
        if (!usc_port_at(job, *i, ".")) break;
        ++*i;
    }
    return name;
}

/* "as NAME" at *i; NULL where there is none. */
static const char *take_as(usc_port_job *job, size_t *i)
{
    if (!usc_port_at(job, *i, "as") || !usc_port_kind_at(job, *i + 1, USC_PORT_NAME))
        return NULL;
    *i += 2;
    return usc_port_word(job, *i - 1);
}

static void put_range(usc_port_job *job, size_t first, size_t last, const char *text)
{
    usc_port_edit_put(job, usc_port_sig(job, first)->start, usc_port_sig(job, last)->end,
                      text);
}

/* import a.b, c as d */
static size_t take_import(usc_port_job *job, size_t i)
{
    do {
        const size_t first = ++i;
        const char *name = take_dotted(job, &i);
        if (name[0] == '\0') return i;
        const size_t last = i - 1;
        const char *as = take_as(job, &i);
        if (as != NULL)
            bind(job, as, name, as);
        else if (strncmp(name, "torch.", 6) == 0 || strcmp(name, "torch") == 0)
            job->loads_torch = true;
        size_t matched;
        bool left;
        const char *to = usc_port_dotted(job, USC_PORT_PY_IMPORT, name, &matched, &left);
        if (left)
            usc_port_leave(job, first, last, usc_port_format(job, "'%s'", name),
                           "this target has no such module");
        if (to == NULL || strcmp(to, name) == 0) continue;
        job->wants_device = true;
        if (as == NULL) /* binds torch, and what follows it is a name of torch's */
            put_range(job, first, last, "torch");
        else
            put_range(job, first, last, to);
    } while (usc_port_at(job, i, ","));
    return i;
}

/* The names of `from M import ...`. */
typedef struct listed {
    const char *module;
    size_t module_first, module_last, first,
        last; /* places of the names, brackets apart */
    const char *name[MOST_NAMES], *as[MOST_NAMES], *to[MOST_NAMES], *parent[MOST_NAMES];
    size_t place[MOST_NAMES], end[MOST_NAMES];
    size_t n;
    bool bracketed;
} listed;

static void split(usc_port_job *job, const char *full, const char **parent,
                  const char **word)
{
    const char *dot = strrchr(full, '.');
    *parent = dot != NULL ? usc_port_copy(job, full, (size_t)(dot - full)) : "";
    *word = dot != NULL ? dot + 1 : full;
}

/* What each name becomes: "import torch.cuda" has rows of its own, and what lies in a
 * module goes with it. False where one is left. */
static bool settle(usc_port_job *job, listed *l)
{
    bool all = true;
    for (size_t k = 0; k < l->n; k++) {
        const char *full = usc_port_dot(job, l->module, l->name[k]);
        size_t by_name, by_module;
        bool left, no_module;
        const char *to = usc_port_dotted(job, USC_PORT_PY_NAME, full, &by_name, &left);
        const char *at =
            usc_port_dotted(job, USC_PORT_PY_IMPORT, full, &by_module, &no_module);
        l->to[k] = l->name[k];
        l->parent[k] = l->module;
        if (left || (no_module && by_module >= by_name)) {
            usc_port_leave(job, l->place[k], l->place[k],
                           usc_port_format(job, "'%s'", full),
                           "this target has no name for it: write this place anew");
            all = false;
            continue;
        }
        if (to == NULL && (at == NULL || by_module < usc_port_words_of(full))) continue;
        const char *parent, *word;
        if (to != NULL && strchr(to, '(') != NULL)
            to = usc_port_format(job, "%.*s", (int)strcspn(to, "("), to);
        if (to != NULL) {
            split(job, to, &parent, &word);
            l->to[k] = word;
            l->parent[k] = parent;
        }
        /* torch.musa.amp is imported as torch_musa.amp: of the module's own row */
        if (at != NULL && strcmp(l->module, "torch") != 0) {
            split(job, at, &parent, &word);
            if (to == NULL) l->to[k] = word;
            l->parent[k] = parent;
        }
        job->wants_device = true;
    }
    return all;
}

/* One statement for the names of a module: those for which `moved` is true. */
static const char *statement(usc_port_job *job, const listed *l, const char *parent)
{
    const char *text = usc_port_format(job, "from %s import ", parent);
    bool any = false;
    for (size_t k = 0; k < l->n; k++) {
        if (strcmp(l->parent[k], parent) != 0) continue;
        text = usc_port_format(job, "%s%s%s", text, any ? ", " : "", l->to[k]);
        if (l->as[k] != NULL) text = usc_port_format(job, "%s as %s", text, l->as[k]);
        any = true;
    }
    return text;
}

static void write_parts(usc_port_job *job, const listed *l, size_t from)
{
    const size_t start = usc_port_sig(job, from)->start;
    const usc_port_token *last = usc_port_sig(job, l->last);
    size_t line = start;
    while (line > 0 && job->text[line - 1] != '\n')
        line--;
    const bool crlf = memchr(job->text, '\r', job->n) != NULL;
    const char *text = "";
    for (size_t k = 0; k < l->n; k++) {
        bool again = false;
        for (size_t i = 0; i < k; i++)
            again |= strcmp(l->parent[i], l->parent[k]) == 0;
        if (again) continue;
        text = text[0] == '\0'
                   ? statement(job, l, l->parent[k])
                   : usc_port_format(job, "%s%s%.*s%s", text, crlf ? "\r\n" : "\n",
                                     (int)strspn(job->text + line, " \t"),
                                     job->text + line, statement(job, l, l->parent[k]));
    }
    usc_port_edit_put(job, start, last->end, text);
}

/* The names of modules stay what the file calls them; others have rows of their own, and
 * their uses are ported with them. */
static void name_all(usc_port_job *job, listed *l, bool settled)
{
    for (size_t k = 0; k < l->n; k++) {
        const char *full = usc_port_dot(job, l->module, l->name[k]);
        bool known = false;
        (void)usc_port_to(job, USC_PORT_PY_IMPORT, full, strlen(full), &known);
        const char *name = l->as[k] != NULL ? l->as[k] : l->name[k];
        if (known && l->as[k] == NULL && strcmp(l->to[k], l->name[k]) != 0)
            l->as[k] = l->name[k];
        bind(job, name, full, settled && l->as[k] == NULL ? l->to[k] : name);
    }
}

static void rewrite(usc_port_job *job, const listed *l, size_t from)
{
    bool one = true;
    for (size_t k = 0; k < l->n; k++)
        one &= strcmp(l->parent[k], l->parent[0]) == 0;
    if (!one) {
        write_parts(job, l, from);
        return;
    }
    if (strcmp(l->parent[0], l->module) != 0)
        put_range(job, l->module_first, l->module_last, l->parent[0]);
    for (size_t k = 0; k < l->n; k++)
        if (strcmp(l->to[k], l->name[k]) != 0)
            usc_port_replace(job, l->place[k],
                             l->as[k] != NULL && strcmp(l->as[k], l->name[k]) == 0
                                 ? usc_port_format(job, "%s as %s", l->to[k], l->as[k])
                                 : l->to[k]);
}

static size_t take_from(usc_port_job *job, size_t from)
{
    listed l = {.module_first = from + 1};
    size_t i = from + 1;
    while (usc_port_at(job, i, "."))
        i++; /* the package's own */
    l.module = take_dotted(job, &i);
    l.module_last = i - 1;
    if (!usc_port_at(job, i, "import")) return i > from + 1 ? i : from + 1;
    l.bracketed = usc_port_at(job, ++i, "(");
    if (l.bracketed) i++;
    while (usc_port_kind_at(job, i, USC_PORT_NAME) && l.n < MOST_NAMES) {
        l.place[l.n] = i;
        l.name[l.n] = usc_port_word(job, i++);
        l.as[l.n++] = take_as(job, &i);
        if (!usc_port_at(job, i, ",")) break;
        i++;
    }
    if (l.bracketed && usc_port_at(job, i, ")")) i++;
    l.last = i - 1;
    if (l.n == 0 || usc_port_at(job, from + 1, ".") || l.n == MOST_NAMES) {
        if (usc_port_at(job, i, "*") && strcmp(l.module, "torch.cuda") == 0)
            usc_port_leave(job, from, i, "import *", "name what is taken from it");
        return i;
    }
    const bool settled = settle(job, &l);
    name_all(job, &l, settled);
    if (settled) rewrite(job, &l, from);
    return i;
}

size_t usc_port_import(usc_port_job *job, size_t i)
{
    return usc_port_at(job, i, "import") ? take_import(job, i) : take_from(job, i);
}
