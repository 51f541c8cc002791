// SPDX-License-Identifier: Apache-2.0
// Where a tree of sources defines names of C++: files that hold a name are cut into tokens,
// and statements outside of bodies are looked at, with the namespaces and classes around
// them. No preprocessor: all branches are looked at, and a macro is what it is called.
#include <ulpscope/x/port.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/port_tree.h"

enum { MOST_PARTS = 24, MOST_SCOPES = 48, MOST_NAMES = 1 << 16 };

typedef struct part {
    const char *text;
    size_t n;
} part;

/* A name, cut at its ::, and what was found for it. */
typedef struct wanted {
    part part[MOST_PARTS];
    size_t n;
    bool destructor; /* the last part behind a ~ */
    usc_port_place *place;
} wanted;

typedef struct scope {
    size_t n_parts; /* names that it adds; more than one for namespace a::b */
    bool transparent;
} scope;

typedef struct reader {
    const char *text, *path;
    const usc_port_token *token; /* that mean something */
    size_t n, at;
    part around[MOST_PARTS];
    size_t n_around;
    scope scope[MOST_SCOPES];
    size_t n_scopes;
    wanted *wanted;
    size_t n_wanted;
} reader;

/* ---- names */

static bool is_device(part p)
{
    static const char *const words[] = {"cuda", "musa", "sim", "npu", "xpu", "hip"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == p.n && memcmp(words[i], p.text, p.n) == 0) return true;
    return false;
}

/* The same, or what a port has the one for the other. */
static bool alike(part a, part b)
{
    return (a.n == b.n && memcmp(a.text, b.text, a.n) == 0) ||
           (is_device(a) && is_device(b));
}

static void cut_name(const char *name, wanted *w)
{
    while (*name != '\0' && w->n < MOST_PARTS) {
        const char *end = strstr(name, "::");
        const size_t n = end != NULL ? (size_t)(end - name) : strlen(name);
        if (n > 0 && name[0] != '(') /* an (anonymous namespace) is left out */
            w->part[w->n++] = (part){name, n};
        name += n + (end != NULL ? 2 : 0);
    }
    part *last = w->n > 0 ? &w->part[w->n - 1] : NULL;
    w->destructor = last != NULL && last->text[0] == '~';
    if (w->destructor) *last = (part){last->text + 1, last->n - 1};
}

static part part_of(const reader *r, size_t i)
{
    const usc_port_token *t = &r->token[i];
    return (part){r->text + t->start, t->end - t->start};
}

static bool is(const reader *r, size_t i, const char *word)
{
    return i < r->n && usc_port_is(r->text, &r->token[i], word);
}

static bool is_name(const reader *r, size_t i)
{
    return i < r->n && r->token[i].kind == USC_PORT_NAME;
}

/* ---- what is found */

static int64_t line_of(const reader *r, size_t i)
{
    int64_t line = 1;
    for (size_t k = 0; k < r->token[i].start; k++)
        line += r->text[k] == '\n';
    return line;
}

static bool is_header(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL &&
           (dot[1] == 'h' || strstr(dot, "uh") != NULL || dot[1] == 'i' || dot[1] == 't');
}

static void note(const reader *r, usc_port_place *p, usc_port_found found, size_t i)
{
    const bool header = is_header(r->path);
    if (found < p->found || (found == p->found && (header || !p->header))) return;
    p->found = found;
    p->header = header;
    p->line = line_of(r, i);
    (void)snprintf(p->path, sizeof p->path, "%s", r->path);
}

/* The names before the one at i, with ::, and those around it: whether they are the wanted
 * ones, from the last on, as far as both go. */
static bool is_wanted(const reader *r, size_t i, const wanted *w)
{
    size_t left = w->n, at = i - w->destructor;
    if (left == 0 || !alike(part_of(r, i), w->part[--left])) return false;
    if (is(r, i - 1, "~") != w->destructor) return false;
    while (left > 0 && at >= 2 && is(r, at - 1, "::") && is_name(r, at - 2)) {
        at -= 2;
        if (!alike(part_of(r, at), w->part[--left])) return false;
    }
    for (size_t k = r->n_around; k > 0 && left > 0; k--)
        if (!alike(r->around[k - 1], w->part[--left])) return false;
    return true;
}

/* ---- statements */

/* Behind what closes the bracket at i. */
static size_t behind(const reader *r, size_t i, const char *open, const char *close)
{
    size_t depth = 0;
    for (; i < r->n; i++) {
        depth += is(r, i, open);
        if (is(r, i, close) && --depth == 0) return i + 1;
    }
    return r->n;
}

/* Behind the > of the < at i; i where there is none nearby. */
static size_t behind_angles(const reader *r, size_t i)
{
    size_t depth = 0;
    for (size_t k = i; k < r->n && k - i < 256; k++) {
        if (is(r, k, "(")) k = behind(r, k, "(", ")") - 1;
        if (is(r, k, ";") || is(r, k, "{")) return i;
        depth += is(r, k, "<");
        if (is(r, k, ">") && --depth == 0) return k + 1;
    }
    return i;
}

/* The name before the bracket at `open`, behind arguments of a template; n: there is none. */
static size_t called_before(const reader *r, size_t first, size_t open)
{
    size_t at = open;
    if (at > first && is(r, at - 1, ">"))
        for (size_t depth = 0; at > first;) {
            at--;
            depth += is(r, at, ">");
            if (is(r, at, "<") && --depth == 0) break;
        }
    return at > first && is_name(r, at - 1) ? at - 1 : r->n;
}

/* A function in a statement from `first` on, whose first bracket is `open`: it ends at
 * `end`, with a body or without. */
static void look_at_function(const reader *r, size_t first, size_t open, bool body)
{
    const size_t name = called_before(r, first, open);
    const bool instance = is(r, first, "template") && !is(r, first + 1, "<");
    for (size_t k = 0; name < r->n && k < r->n_wanted; k++) {
        wanted *w = &r->wanted[k];
        const bool member = name >= first + 2 && is(r, name - 1, "::") &&
                            is_wanted(r, name - 2, w) && w->place->of_class;
        if ((w->place->of_class ? member : is_wanted(r, name, w)))
            note(r, w->place,
                 body || instance ? USC_PORT_FOUND_DEFINED : USC_PORT_FOUND_DECLARED,
                 name);
    }
}

static void look_at_variable(const reader *r, size_t first, size_t end)
{
    size_t name = first;
    while (name < end && !is(r, name, "=") && !is(r, name, "[") && !is(r, name, "{"))
        name++;
    static const char *const words[] = {"using",  "friend", "typedef", "class",
                                        "struct", "union",  "enum"};
    bool declared = is(r, first, "extern") && !is(r, name, "=");
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        declared |= is(r, first, words[k]);
    if (name == first || !is_name(r, name - 1)) return;
    for (size_t k = 0; k < r->n_wanted; k++)
        if (!r->wanted[k].place->of_class && is_wanted(r, name - 1, &r->wanted[k]))
            note(r, r->wanted[k].place,
                 declared ? USC_PORT_FOUND_DECLARED : USC_PORT_FOUND_DEFINED, name - 1);
}

static void push(reader *r, size_t from, size_t to, bool transparent)
{
    scope s = {.transparent = transparent};
    for (size_t i = from; i < to && !transparent; i++)
        if (is_name(r, i) && r->n_around < MOST_PARTS && !is(r, i, "inline")) {
            r->around[r->n_around++] = part_of(r, i);
            s.n_parts++;
        }
    if (r->n_scopes < MOST_SCOPES) r->scope[r->n_scopes++] = s;
}

static void pop(reader *r)
{
    if (r->n_scopes > 0) r->n_around -= r->scope[--r->n_scopes].n_parts;
}

/* What opens at the brace: a namespace, a class, a block of extern "C"; false: a body. */
static bool opens_scope(reader *r, size_t first, size_t brace, size_t keyword)
{
    if (is(r, first, "extern") && brace == first + 2) {
        push(r, first, first, true);
        return true;
    }
    if (keyword == r->n) return false;
    if (is(r, keyword, "namespace")) {
        push(r, keyword + 1, brace, false);
        return true;
    }
    size_t end = keyword + 1; /* the name is the last word before its bases */
    while (end < brace && !is(r, end, ":") && !is(r, end, "<") && !is(r, end, "final"))
        end++;
    push(r, end - 1, end, end == keyword + 1);
    return true;
}

/* A statement outside of all bodies, up to what ends it or opens in it. */
typedef struct head {
    size_t first, end;
    size_t open[8]; /* brackets of what may be a function */
    size_t n_open;
    size_t keyword; /* namespace, class; n: there is none */
} head;

static head read_head(const reader *r)
{
    head h = {.first = r->at, .end = r->at, .keyword = r->n};
    bool members = false; /* behind a colon: what a constructor begins with */
    size_t i = h.first;
    for (; i < r->n && !is(r, i, ";") && !is(r, i, "{") && !is(r, i, "}"); i++) {
        if (is(r, i, "template") && is(r, i + 1, "<")) {
            const size_t end = behind_angles(r, i + 1);
            i = end > i + 1 ? end - 1 : end;
        } else if (is(r, i, "(")) {
            if (!members && h.n_open < 8) h.open[h.n_open++] = i;
            i = behind(r, i, "(", ")") - 1;
        } else if (is(r, i, "=") && h.n_open == 0)
            break; /* a variable */
        else if (is(r, i, ":"))
            members = h.n_open > 0;
        else if (h.n_open == 0 && (is(r, i, "namespace") || is(r, i, "class") ||
                                   is(r, i, "struct") || is(r, i, "union")))
            h.keyword = i;
    }
    h.end = i;
    return h;
}

static void statement(reader *r)
{
    const head h = read_head(r);
    const bool brace = is(r, h.end, "{");
    for (size_t k = 0; k < h.n_open; k++)
        look_at_function(r, h.first, h.open[k], brace || is(r, h.end - 1, "default"));
    if (h.n_open == 0 && brace && opens_scope(r, h.first, h.end, h.keyword)) {
        r->at = h.end + 1;
        return;
    }
    if (h.n_open == 0 && h.end > h.first) look_at_variable(r, h.first, h.end);
    size_t i = h.end;
    while (i < r->n && !is(r, i, ";") && !is(r, i, "}")) { /* a body, a value */
        const bool body = is(r, i, "{");
        i = body ? behind(r, i, "{", "}") : i + 1;
        if (body && (h.n_open > 0 || h.end == h.first)) {
            r->at = i;
            return;
        }
    }
    if (is(r, i, "}") && i == h.first) pop(r);
    r->at = is(r, i, "}") && i > h.first ? i : i + 1;
}

/* ---- files */

/* Words that are the last part of a name: what files are looked through for. */
typedef struct words {
    const wanted **slot;
    size_t mask;
} words;

static size_t hash_of(part p)
{
    size_t h = 5381;
    for (size_t i = 0; i < p.n; i++)
        h = h * 33 + (unsigned char)p.text[i];
    return h;
}

static bool has_word(const words *w, part p)
{
    for (size_t i = hash_of(p) & w->mask; w->slot[i] != NULL; i = (i + 1) & w->mask)
        if (alike(w->slot[i]->part[w->slot[i]->n - 1], p)) return true;
    return false;
}

static bool has_any(const words *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t start = i;
        while (i < n && usc_port_in_name(text[i]))
            i++;
        if (i > start && has_word(w, (part){text + start, i - start})) return true;
    }
    return false;
}

static void look_through(reader *r, const words *all)
{
    while (r->at < r->n)
        statement(r);
    for (size_t i = 0; i < r->n; i++) { /* what no statement was recognised of */
        if (!is_name(r, i) || !has_word(all, part_of(r, i))) continue;
        for (size_t k = 0; k < r->n_wanted; k++)
            if (r->wanted[k].place->found == USC_PORT_FOUND_NOWHERE &&
                alike(r->wanted[k].part[r->wanted[k].n - 1], part_of(r, i)))
                note(r, r->wanted[k].place, USC_PORT_FOUND_NAMED, i);
    }
}

static void read_file(const char *path, const char *text, size_t size, const words *all,
                      wanted *w, size_t n_wanted)
{
    usc_port_tokens tokens = {0};
    if (!has_any(all, text, size)) return;
    usc_port_cut_cxx(text, size, &tokens);
    reader *r = calloc(1, sizeof *r);
    usc_port_token *means = malloc((tokens.n + 1) * sizeof *means);
    if (!tokens.failed && r != NULL && means != NULL) {
        *r = (reader){.text = text, .path = path, .token = means, .wanted = w};
        r->n_wanted = n_wanted;
        for (size_t i = 0; i < tokens.n; i++)
            if (tokens.token[i].kind > USC_PORT_COMMENT && !tokens.token[i].directive)
                means[r->n++] = tokens.token[i];
        look_through(r, all);
    }
    free(means);
    free(r);
    usc_port_tokens_free(&tokens);
}

static bool is_source(const usc_port_entry *e)
{
    const char *dot = strrchr(e->path, '.');
    return e->what == USC_PORT_FILE && dot != NULL &&
           (e->language == USC_PORT_CXX || strcmp(dot, ".mu") == 0 ||
            strcmp(dot, ".muh") == 0);
}

static usc_status read_tree(usc_port_run_state *s, const words *all, wanted *w,
                            size_t n_wanted, usc_error *err)
{
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < s->n_entries; i++) {
        char full[USC_PATH_SIZE];
        char *bytes;
        size_t size;
        struct stat about;
        if (!is_source(&s->entry[i])) continue;
        st = usc_path_join(full, s->root, s->entry[i].path, err);
        usc_arena_reset(&s->scratch);
        if (st == USC_OK &&
            usc_port_read(full, &s->scratch, &bytes, &size, &about, NULL) == USC_OK)
            read_file(s->entry[i].path, bytes, size, all, w, n_wanted);
    }
    return st;
}

usc_status usc_port_where(const char *source, const char *const *name,
                          usc_port_place *place, size_t n, usc_error *err)
{
    static const usc_port_options options = {.target = USC_PORT_MUSA};
    usc_port_run_state *s = calloc(1, sizeof *s);
    wanted *w = calloc(n + 1, sizeof *w);
    words all = {.mask = 63};
    usc_status st = USC_OK;
    while (all.mask < 4 * n && all.mask < MOST_NAMES)
        all.mask = all.mask * 2 + 1;
    all.slot = calloc(all.mask + 1, sizeof(const wanted *));
    if (s == NULL || w == NULL || all.slot == NULL) st = usc_no_memory(source, err);
    for (size_t k = 0; st == USC_OK && k < n && k <= all.mask / 2; k++) {
        cut_name(name[k], &w[k]);
        place[k].found = USC_PORT_FOUND_NOWHERE;
        w[k].place = &place[k];
        if (w[k].n == 0) continue;
        size_t i = hash_of(w[k].part[w[k].n - 1]) & all.mask;
        while (all.slot[i] != NULL)
            i = (i + 1) & all.mask;
        all.slot[i] = &w[k];
    }
    if (st == USC_OK) {
        s->kept.alloc = s->scratch.alloc = s->terms.arena.alloc = usc_libc_alloc;
        s->options = &options;
        st = usc_port_walk(s, source, err);
        if (st == USC_OK) st = read_tree(s, &all, w, n, err);
        usc_keys_free(&s->renames.ends);
        usc_keys_free(&s->renames.globs);
        usc_keys_free(&s->terms.at);
        usc_arena_free(&s->terms.arena);
        usc_arena_free(&s->scratch);
        usc_arena_free(&s->kept);
    }
    free(all.slot);
    free(w);
    free(s);
    return st;
}
