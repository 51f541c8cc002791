// SPDX-License-Identifier: Apache-2.0
// What kind each operator of a device is, and what is wrong with its entry.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/ops_book.h"

const char *usc_ops_kind_text(usc_ops_kind kind)
{
    static const char *const texts[] = {
#define TEXT(id, name, writes) name,
        USC_OPS_KIND_LIST(TEXT)
#undef TEXT
    };
    return (unsigned)kind < USC_N_OPS_KINDS ? texts[kind] : texts[USC_OPS_NONE];
}

/* ---- torch's entries */

static bool is_no(const char *text)
{
    return text != NULL && (strcmp(text, "False") == 0 || strcmp(text, "false") == 0 ||
                            strcmp(text, "none") == 0 || strcmp(text, "None") == 0);
}

static bool is_yes(const char *text)
{
    return text != NULL && (strcmp(text, "True") == 0 || strcmp(text, "true") == 0);
}

static void put_member(usc_ops_group *g, const usc_ops_entry *e)
{
    const usc_ops_variant v = e->schema->variant;
    if (v == USC_OPS_FUNCTIONAL) g->functional = e;
    if (v == USC_OPS_INPLACE) g->inplace = e;
}

usc_ops_group usc_ops_group_of(const usc_ops_book *native, const usc_ops_entry *e)
{
    usc_ops_group g = {0};
    g.out = is_yes(e->structured) ? e
            : e->delegate != NULL ? usc_ops_find(native, e->delegate)
                                  : NULL;
    for (size_t i = 0; g.out != NULL && i < native->n; i++) {
        const usc_ops_entry *m = &native->entry[i];
        if (m->delegate != NULL && strcmp(m->delegate, g.out->name) == 0)
            put_member(&g, m);
    }
    return g;
}

bool usc_ops_is_composite(const usc_ops_entry *e)
{
    return (e->n_dispatch == 0 && !is_yes(e->structured) && e->delegate == NULL) ||
           usc_ops_kernel_of(e, "CompositeImplicitAutograd") != NULL;
}

const char *usc_ops_common_kernel(const usc_ops_entry *e)
{
    static const char *const every[] = {"CompositeExplicitAutograd",
                                        "CompositeExplicitAutogradNonFunctional"};
    const char *cpu = usc_ops_kernel_of(e, "CPU"), *cuda = usc_ops_kernel_of(e, "CUDA");
    if (cpu != NULL && cuda != NULL && strcmp(cpu, cuda) == 0) return cpu;
    for (int i = 0; i < 2; i++) {
        const char *kernel = usc_ops_kernel_of(e, every[i]);
        if (kernel != NULL) return kernel;
    }
    return NULL;
}

static bool has_kernel(const usc_ops_entry *e, const char *kernel)
{
    for (size_t i = 0; i < e->n_dispatch; i++)
        if (strcmp(e->dispatch[i].kernel, kernel) == 0) return true;
    return false;
}

/* ---- precomputed values */

static bool has_argument(const usc_ops_schema *s, const char *name)
{
    for (size_t i = 0; i < s->n_in; i++)
        if (strcmp(s->in[i].name, name) == 0) return true;
    return false;
}

/* "dim -> int dim, int valid", or what comes behind all: "int batch, int T". */
static bool read_computed(usc_ops_book *b, usc_ops_precomputed *p, const char *text)
{
    usc_line l = {0};
    const char *why, *arrow = strstr(text, "->");
    *p = (usc_ops_precomputed){0};
    if (arrow != NULL) {
        const size_t n = strcspn(text, " -");
        char *name = usc_arena_take(&b->arena, n + 1);
        if (name == NULL) return true;
        memcpy(name, text, n);
        name[n] = '\0';
        p->replaces = name;
    }
    usc_line_add(&l, "x(%s) -> ()", arrow != NULL ? arrow + 2 : text);
    const usc_ops_schema *s =
        l.text != NULL ? usc_ops_schema_read(l.text, &b->arena, &why) : NULL;
    usc_line_free(&l);
    if (s == NULL || s->n_in + s->n_out > 16) return false;
    for (size_t i = 0; i < s->n_in; i++)
        p->with[p->n++] = s->in[i];
    return p->n > 0;
}

static void compute(usc_ops_book *b, usc_ops_entry *e, const usc_yaml *list, bool own)
{
    if (list == NULL || is_no(list->text)) return;
    e->computed = usc_arena_take(&b->arena, USC_OPS_MOST_COMPUTED * sizeof *e->computed);
    if (list->kind != USC_YAML_LIST || list->n > USC_OPS_MOST_COMPUTED) {
        usc_ops_say(b, list, "precomputed is a list of up to %d: '- dim -> int dim'",
                    USC_OPS_MOST_COMPUTED);
        return;
    }
    for (size_t i = 0; e->computed != NULL && i < list->n; i++) {
        usc_ops_precomputed *p = &e->computed[e->n_computed];
        if (!read_computed(b, p, list->item[i]->text)) {
            usc_ops_say(b, list->item[i], "'%.80s': 'dim -> int dim' is needed",
                        list->item[i]->text);
            continue;
        }
        e->n_computed++;
        if (own && p->replaces != NULL && !has_argument(e->schema, p->replaces))
            usc_ops_say(b, list->item[i], "'%s' is no argument of %s", p->replaces,
                        e->name);
    }
}

/* ---- a structured group */

/* The device's entries of a group of torch's. */
static usc_ops_group own_group(const usc_ops_book *b, const usc_ops_group *theirs)
{
    usc_ops_group g = {0};
    if (theirs->functional != NULL)
        g.functional = usc_ops_find(b, theirs->functional->name);
    if (theirs->inplace != NULL) g.inplace = usc_ops_find(b, theirs->inplace->name);
    if (theirs->out != NULL) g.out = usc_ops_find(b, theirs->out->name);
    return g;
}

static void add_name(usc_line *l, const usc_ops_entry *theirs, const usc_ops_entry *ours)
{
    if (theirs != NULL && ours == NULL)
        usc_line_add(l, "%s%s", l->n > 0 ? ", " : "", theirs->name);
}

/* Told once, at the first of its members in the file. */
static void check_whole(usc_ops_book *b, const usc_ops_entry *e)
{
    const usc_ops_group *g = &e->group, *t = &e->torch_group;
    const usc_ops_entry *first = e;
    const usc_ops_entry *const members[] = {g->functional, g->inplace, g->out};
    for (int i = 0; i < 3; i++)
        if (members[i] != NULL && members[i] < first) first = members[i];
    if (first != e) return;
    usc_line missing = {0};
    add_name(&missing, t->functional, g->functional);
    add_name(&missing, t->inplace, g->inplace);
    add_name(&missing, t->out, g->out);
    if (missing.n > 0)
        usc_ops_say(b, e->func,
                    "the group of %s is half defined: %s %s missing (or say 'structured: "
                    "false' at %s and write each one's kernel)",
                    t->out->name, missing.text,
                    strchr(missing.text, ',') != NULL ? "are" : "is", t->out->name);
    usc_line_free(&missing);
}

static void plan_out(usc_ops_book *b, usc_ops_entry *e)
{
    const usc_ops_entry *t = e->torch_has;
    const bool inherits = e->inherits != NULL && !is_no(e->inherits);
    const bool computes = e->precomputed != NULL && !is_no(e->precomputed->text);
    e->kind = e->n_dispatch == 0     ? USC_OPS_LEGACY
              : inherits || computes ? USC_OPS_CUSTOMIZED
                                     : USC_OPS_LEGACY_META;
    if (e->kind == USC_OPS_LEGACY && (inherits || computes))
        usc_ops_say(b, e->func,
                    "%s has shapes of its own and no kernel: 'dispatch: {PrivateUse1: "
                    "KERNEL}' is needed",
                    e->name);
    else if (e->kind == USC_OPS_LEGACY && usc_ops_kernel_of(t, "CUDA") == NULL &&
             usc_ops_kernel_of(t, "CPU") == NULL)
        usc_ops_say(b, e->func,
                    "torch has no kernel of %s behind a dispatch stub; write 'dispatch: "
                    "{PrivateUse1: KERNEL}'",
                    e->name);
    compute(b, e, e->kind == USC_OPS_CUSTOMIZED ? e->precomputed : t->precomputed,
            e->kind == USC_OPS_CUSTOMIZED);
}

static void plan_structured(usc_ops_book *b, usc_ops_entry *e)
{
    check_whole(b, e);
    if (e == e->group.out) {
        plan_out(b, e);
        return;
    }
    if (e->n_dispatch > 0)
        usc_ops_say(
            b, e->dispatch[0].at,
            "the kernel of a structured group stands at %s; leave it out here, or "
            "say 'structured: false' there",
            e->torch_group.out->name);
    e->kind = USC_OPS_LEGACY; /* its out= variant's, in fact: see below */
}

static bool only_quantized(const usc_ops_entry *e)
{
    return e->n_dispatch > 0 && usc_ops_kernel_of(e, "PrivateUse1") == NULL;
}

static void plan_grouped(usc_ops_book *b, usc_ops_entry *e)
{
    e->group = own_group(b, &e->torch_group);
    const bool is_out = e->schema->variant == USC_OPS_OUT;
    if (is_yes(e->structured) && !is_out)
        usc_ops_say(b, e->func,
                    "'structured' is said at %s, the out= variant of the group",
                    e->torch_group.out->name);
    const bool taken_apart = is_no(e->structured) || is_no(e->delegate) ||
                             (e->group.out != NULL && is_no(e->group.out->structured)) ||
                             only_quantized(e);
    if (!taken_apart) {
        plan_structured(b, e);
        return;
    }
    e->kind = USC_OPS_UNSTRUCTURED;
    if (e->n_dispatch == 0)
        usc_ops_say(b, e->func,
                    "%s is made unstructured and has no kernel: 'dispatch: {PrivateUse1: "
                    "KERNEL}' is needed",
                    e->name);
}

/* ---- the others */

static void plan_function(usc_ops_book *b, usc_ops_entry *e)
{
    const usc_ops_entry *t = e->torch_has;
    if (is_yes(e->structured))
        usc_ops_say(b, e->func, "%s is not structured in torch and cannot be here",
                    e->name);
    if (e->n_dispatch == 0) {
        const char *kernel = usc_ops_common_kernel(t);
        if (usc_ops_is_composite(t))
            usc_ops_say(b, e->func,
                        "torch makes %s of other operators: leave it out, or give it a "
                        "kernel by 'dispatch:'",
                        e->name);
        else if (kernel == NULL)
            usc_ops_say(b, e->func,
                        "torch has no kernel of %s for all devices: 'dispatch: "
                        "{PrivateUse1: KERNEL}' is needed",
                        e->name);
        else
            e->dispatch[e->n_dispatch++] =
                (usc_ops_dispatch){"PrivateUse1", kernel, e->func};
    }
    e->kind = e->n_dispatch > 0 && has_kernel(t, e->dispatch[0].kernel)
                  ? USC_OPS_FUNCTION_LEGACY
                  : USC_OPS_FUNCTION;
}

static void check_backward(usc_ops_book *b, const usc_ops_entry *e)
{
    const usc_yaml *map = e->backward;
    if (map == NULL) return;
    if (e->torch_has != NULL || map->kind != USC_YAML_MAP || e->schema->n_returned != 1 ||
        !usc_ops_is_tensor(&e->schema->returned[0].type) ||
        e->schema->variant != USC_OPS_FUNCTIONAL) {
        usc_ops_say(
            b, map,
            "backward is a map of arguments and expressions, 'x: SwishBackward(grad, "
            "x)', of a new operator that returns one tensor");
        return;
    }
    for (size_t i = 0; i + 1 < map->n; i += 2)
        if (!has_argument(e->schema, map->item[i]->text))
            usc_ops_say(b, map->item[i], "'%.60s' is no argument of %s",
                        map->item[i]->text, e->name);
}

static void check_types(usc_ops_book *b, const usc_ops_entry *e)
{
    for (size_t i = 0; i < e->schema->n_returned; i++) {
        const usc_ops_type *t = &e->schema->returned[i].type;
        if (usc_ops_cxx_type(t, USC_OPS_WRAPPER, false, &b->arena) == NULL)
            usc_ops_say(b, e->func, "there is no type '%.60s' for what %s returns",
                        t->base, e->name);
    }
    for (size_t i = 0; i < e->schema->n_in + e->schema->n_out; i++) {
        const usc_ops_argument *a = &e->schema->in[i];
        if (usc_ops_cxx_type(&a->type, USC_OPS_WRAPPER, false, &b->arena) == NULL)
            usc_ops_say(b, e->func, "there is no type '%.60s' for argument '%s' of %s",
                        a->type.base, a->name, e->name);
    }
}

/* ---- kernels that no source defines */

static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += n) {
        const char before = at > text ? at[-1] : ' ', after = at[n];
        const bool inside = (before >= 'a' && before <= 'z') || before == '_' ||
                            (before >= 'A' && before <= 'Z') ||
                            (after >= 'a' && after <= 'z') || after == '_' ||
                            (after >= 'A' && after <= 'Z') ||
                            (after >= '0' && after <= '9');
        if (!inside) return true;
    }
    return false;
}

static void read_source(usc_ops_book *b, const char *path, usc_line *text)
{
    FILE *f = fopen(path, "rb");
    char part[4096];
    if (f == NULL) {
        usc_ops_say(b, NULL, "source %s: %s", path, strerror(errno));
        return;
    }
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        usc_line_put(text, part, n);
    (void)fclose(f);
    usc_line_text(text, "\n");
}

static bool needs_definition(const usc_ops_entry *e)
{
    return e->kind == USC_OPS_LEGACY_META || e->kind == USC_OPS_CUSTOMIZED ||
           e->kind == USC_OPS_UNSTRUCTURED || e->kind == USC_OPS_FUNCTION ||
           e->kind == USC_OPS_NEW;
}

static void check_sources(usc_ops_book *b, const usc_ops_options *o)
{
    usc_line text = {0};
    if (o->n_source == 0) return;
    for (size_t i = 0; i < o->n_source; i++)
        read_source(b, o->source[i], &text);
    for (size_t i = 0; text.text != NULL && i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        for (size_t k = 0; needs_definition(e) && k < e->n_dispatch; k++) {
            const char *kernel = e->dispatch[k].kernel, *colons = strrchr(kernel, ':');
            if (!has_word(text.text, colons != NULL ? colons + 1 : kernel))
                usc_ops_say(b, e->dispatch[k].at, "no source defines the kernel %s of %s",
                            kernel, e->name);
        }
    }
    usc_line_free(&text);
}

void usc_ops_plan(usc_ops_book *b, const usc_ops_book *native,
                  const usc_ops_options *options)
{
    for (size_t i = 0; i < b->n; i++) {
        usc_ops_entry *e = &b->entry[i];
        if (e->torch_has == NULL) {
            e->kind = USC_OPS_NEW;
            if (e->n_dispatch == 0)
                usc_ops_say(b, e->func,
                            "%s::%s has no kernel: 'dispatch: {PrivateUse1: KERNEL}' is "
                            "needed",
                            e->space, e->name);
        } else {
            e->torch_group = usc_ops_group_of(native, e->torch_has);
            if (e->torch_group.out != NULL)
                plan_grouped(b, e);
            else
                plan_function(b, e);
        }
        check_types(b, e);
        check_backward(b, e);
    }
    for (size_t i = 0; i < b->n; i++) { /* members are of their group's kind */
        usc_ops_entry *e = &b->entry[i];
        if (e->kind == USC_OPS_LEGACY && e->group.out != NULL)
            e->kind = e->group.out->kind;
    }
    for (size_t i = 0; i < b->n; i++)
        usc_ops_check_c(b, &b->entry[i]);
    check_sources(b, options);
}
