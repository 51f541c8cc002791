// SPDX-License-Identifier: Apache-2.0
// Kernels in C (`kernel: c`): what their author writes, a function over views that gives a
// status, and the functions of C++ that call it, over glue/grid/grid_ops_c.h.
#include <string.h>

#include "base/number.h"
#include "ops/ops_write.h"

/* ---- an argument in C */

/* base; one, may be missing, a list: how C has it. A list goes with the number of its
 * elements behind it. */
static const struct {
    const char *base, *one, *optional, *list;
} values[] = {
    {"Tensor", "const usc_tensor *", "const usc_tensor *", "const usc_tensor *"},
    {"int", "int64_t ", "const int64_t *", "const int64_t *"},
    {"SymInt", "int64_t ", "const int64_t *", "const int64_t *"},
    {"DimVector", "const int64_t *", NULL,
     NULL}, /* a list: of precomputed values alone */
    {"float", "double ", "const double *", "const double *"},
    {"Scalar", "double ", "const double *", NULL},
    {"bool", "bool ", "const bool *", "const bool *"},
    {"str", "const char *", "const char *", NULL},
    {"ScalarType", "usc_dtype ", "const usc_dtype *", NULL},
};

static bool is_list(const usc_ops_type *t)
{
    return t->list || strcmp(t->base, "DimVector") == 0;
}

static const char *c_type(const usc_ops_type *t)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(values[i].base, t->base) != 0) continue;
        if (t->list && t->list_optional && strcmp(t->base, "int") != 0) return NULL;
        if (t->list && t->optional) return NULL;
        return t->list       ? values[i].list
               : t->optional ? values[i].optional
                             : values[i].one;
    }
    return NULL;
}

static void put_c_parameter(usc_line *l, const usc_ops_argument *a)
{
    const char *type = c_type(&a->type);
    usc_line_add(l, "%s%s, ", type != NULL ? type : "?", a->name);
    if (is_list(&a->type)) usc_line_add(l, "size_t n_%s, ", a->name);
}

/* What a structured kernel gets, in its order; the number of it. */
static size_t arguments_of(const usc_ops_entry *e, const usc_ops_argument **list,
                           size_t n)
{
    const usc_ops_schema *s = e->schema;
    size_t made = 0;
    for (size_t i = 0; i <= s->n_in; i++) {
        const usc_ops_precomputed *p =
            usc_ops_computed_of(e, i < s->n_in ? s->in[i].name : NULL);
        for (size_t k = 0; p != NULL && k < p->n && made < n; k++)
            list[made++] = &p->with[k];
        if (p == NULL && i < s->n_in && made < n) list[made++] = &s->in[i];
    }
    for (size_t i = 0; i < s->n_out && made < n; i++)
        list[made++] = &s->out[i];
    return made;
}

enum { MOST_ARGUMENTS = 64 };

/* The name of what a functional variant returns. */
static const char *result_name(const usc_ops_schema *s, size_t i, char *room, size_t size)
{
    if (s->returned[i].name[0] != '\0') return s->returned[i].name;
    if (s->n_returned == 1) return "result";
    (void)usc_format(room, size, "result%zu", i);
    return room;
}

static bool makes_results(const usc_ops_entry *e)
{
    return !usc_ops_is_structured(e) && e->schema->variant == USC_OPS_FUNCTIONAL;
}

void usc_ops_put_c_signature(usc_line *l, const usc_ops_entry *e, const char *kernel)
{
    const usc_ops_argument *list[MOST_ARGUMENTS];
    const size_t n = arguments_of(e, list, MOST_ARGUMENTS);
    char room[32];
    usc_line_add(l, "usc_status %s(", kernel);
    for (size_t i = 0; i < n; i++)
        put_c_parameter(l, list[i]);
    for (size_t i = 0; makes_results(e) && i < e->schema->n_returned; i++)
        usc_line_add(l, "const usc_tensor *%s, ",
                     result_name(e->schema, i, room, sizeof room));
    usc_line_text(l, "usc_error *err)");
}

/* ---- what is wrong with an entry */

void usc_ops_check_c(usc_ops_book *b, const usc_ops_entry *e)
{
    const usc_ops_schema *s = e->schema;
    if (e->in_c == NULL) {
        if (e->outputs != NULL)
            usc_ops_say(b, e->outputs, "outputs are those of a kernel in C: 'kernel: c'");
        return;
    }
    if (e->in_c->text == NULL || strcmp(e->in_c->text, "c") != 0) {
        usc_ops_say(b, e->in_c, "a kernel is in C, 'kernel: c', or says nothing");
        return;
    }
    const bool structured = usc_ops_is_structured(e);
    if (e->n_dispatch == 0 || e->kind == USC_OPS_FUNCTION_LEGACY ||
        (structured && e != e->group.out))
        usc_ops_say(b, e->in_c,
                    "'kernel: c' stands where the kernel is named, 'dispatch: "
                    "{PrivateUse1: NAME}'%s%s",
                    structured ? ": at " : "",
                    structured ? e->torch_group.out->name : "");
    for (size_t k = 0; k < e->n_dispatch; k++)
        if (strchr(e->dispatch[k].kernel, ':') != NULL ||
            strcmp(e->dispatch[k].key, "PrivateUse1") != 0)
            usc_ops_say(b, e->dispatch[k].at,
                        "a kernel in C has a plain name, and takes strided tensors: "
                        "'PrivateUse1: NAME'");
    for (size_t i = 0; i < s->n_in + s->n_out; i++)
        if (c_type(&s->in[i].type) == NULL)
            usc_ops_say(b, e->func,
                        "a kernel in C gets no '%.60s', which argument '%s' of %s is",
                        s->in[i].type.base, s->in[i].name, e->name);
    for (size_t i = 0; i < s->n_returned; i++)
        if (!usc_ops_is_tensor(&s->returned[i].type) || s->returned[i].type.list ||
            (s->returned[i].type.alias != NULL &&
             !usc_ops_is_written(&s->returned[i].type)))
            usc_ops_say(b, e->func,
                        "a kernel in C fills tensors of its own; %s gives "
                        "something else",
                        e->name);
    if (s->n_returned == 0 && s->n_out == 0)
        usc_ops_say(b, e->func, "%s returns nothing that a kernel in C could fill",
                    e->name);
    const size_t n = e->outputs == NULL                  ? 0
                     : e->outputs->kind == USC_YAML_LIST ? e->outputs->n
                                                         : 1;
    if (e->outputs != NULL && (structured || s->variant == USC_OPS_INPLACE))
        usc_ops_say(b, e->outputs, "the outputs of %s are known: leave them out",
                    e->name);
    else if (n > 0 && n != s->n_returned)
        usc_ops_say(b, e->outputs, "%s returns %zu, and outputs has %zu", e->name,
                    s->n_returned, n);
}

/* ---- the header in C */

void usc_ops_put_c_header(usc_ops_writer *w, usc_line *l)
{
    const usc_ops_book *b = w->book;
    usc_line_text(l,
                  "// Written by `ulpscope ops gen`: the kernels in C that the operators "
                  "need.\n#pragma once\n\n#include <grid_kernel.h>\n\n"
                  "USC_BEGIN_DECLS\n\n");
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (e->in_c == NULL || e->n_dispatch == 0) continue;
        usc_ops_put_c_signature(l, e, e->dispatch[0].kernel);
        usc_line_text(l, ";\n");
    }
    usc_line_text(l, "\nUSC_END_DECLS\n");
}

/* ---- functions of C++ that call it */

/* What C gets of an argument: a view, or a value that `call` keeps. */
static void put_given(usc_line *l, const usc_ops_argument *a)
{
    usc_line_add(l, "c_%s%s, ", a->name, is_list(&a->type) ? ".first" : "");
    if (is_list(&a->type)) usc_line_add(l, "c_%s.size, ", a->name);
}

static void put_taken(usc_line *l, const usc_ops_argument *a)
{
    usc_line_add(l, "    const auto c_%s = call.%s(\"%s\", %s);\n", a->name,
                 usc_ops_is_written(&a->type)  ? "out"
                 : usc_ops_is_tensor(&a->type) ? "in"
                                               : "value",
                 a->name, a->name);
}

static void put_run(usc_ops_writer *w, const usc_ops_entry *e,
                    const usc_ops_argument *const *list, size_t n)
{
    usc_line *l = w->source;
    char room[32];
    usc_line_add(l, "    call.run([&](usc_error *err) { return ::%s(",
                 e->dispatch[0].kernel);
    for (size_t i = 0; i < n; i++)
        put_given(l, list[i]);
    for (size_t i = 0; makes_results(e) && i < e->schema->n_returned; i++)
        usc_line_add(l, "c_%s, ", result_name(e->schema, i, room, sizeof room));
    usc_line_text(l, "err); });\n");
}

static void put_names(usc_line *l, const usc_ops_schema *s, const char *before,
                      const char *after)
{
    for (size_t i = 0; i < s->n_in; i++)
        usc_line_add(l, "%s%s%s%s", i > 0 ? ", " : "", before, s->in[i].name, after);
}

/* What an operator gives, as tensors without memory: by the entry, or as the tensors that
 * it is given broadcast. */
static void put_shape(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    usc_line_add(l, "std::vector<at::Tensor> shape_%s(",
                 usc_ops_cxx_name(e->name, w->arena));
    for (size_t i = 0; i < s->n_in; i++) {
        const char *type =
            usc_ops_cxx_type(&s->in[i].type, USC_OPS_WRAPPER, false, w->arena);
        if (type == NULL) type = "?";
        usc_line_add(l, "%s[[maybe_unused]] %s%s%s", i > 0 ? ", " : "", type,
                     type[strlen(type) - 1] == '&' ? "" : " ", s->in[i].name);
    }
    usc_line_text(l, ")\n{\n    using namespace at;\n    return {");
    if (e->outputs == NULL) {
        for (size_t k = 0; k < s->n_returned; k++) {
            usc_line_add(l, "%susc_ops::broadcast({", k > 0 ? ", " : "");
            const char *comma = "";
            for (size_t i = 0; i < s->n_in; i++)
                if (usc_ops_is_tensor(&s->in[i].type) && !s->in[i].type.list &&
                    !s->in[i].type.optional) {
                    usc_line_add(l, "%s%s", comma, s->in[i].name);
                    comma = ", ";
                }
            usc_line_text(l, "})");
        }
    } else if (e->outputs->kind == USC_YAML_LIST) {
        for (size_t i = 0; i < e->outputs->n; i++)
            usc_line_add(l, "%s%s", i > 0 ? ",\n            " : "",
                         e->outputs->item[i]->text);
    } else {
        usc_line_text(l, e->outputs->text);
    }
    usc_line_text(l, "};\n}\n\n");
}

static void put_function(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    const usc_ops_argument *list[MOST_ARGUMENTS];
    const size_t n = arguments_of(e, list, MOST_ARGUMENTS);
    const char *returned = usc_ops_cxx_returned(s, w->arena);
    char room[32];
    if (returned == NULL) returned = "?";
    if (s->variant != USC_OPS_INPLACE) put_shape(w, e);
    usc_line_add(l, "%s%s%s(", returned, returned[strlen(returned) - 1] == '&' ? "" : " ",
                 e->dispatch[0].kernel);
    usc_ops_put_parameters(l, s, USC_OPS_WRAPPER, usc_ops_in_group(e), w->arena);
    usc_line_add(l, ")\n{\n    usc_ops::InC call(\"%s::%s\");\n", e->space, e->name);
    for (size_t i = 0; i < s->n_in; i++)
        if (!usc_ops_is_written(&s->in[i].type)) put_taken(l, &s->in[i]);
    if (s->variant != USC_OPS_INPLACE) {
        usc_line_add(l, "    const auto shapes = shape_%s(",
                     usc_ops_cxx_name(e->name, w->arena));
        put_names(l, s, "usc_ops::meta(", ")");
        usc_line_text(l, ");\n");
    }
    for (size_t i = 0; i < s->n_out; i++)
        usc_line_add(l, "    call.resize(%s, shapes[%zu]);\n", s->out[i].name, i);
    for (size_t i = 0; i < s->n_in + s->n_out; i++)
        if (usc_ops_is_written(&s->in[i].type)) put_taken(l, &s->in[i]);
    for (size_t i = 0; makes_results(e) && i < s->n_returned; i++) {
        const char *name = result_name(s, i, room, sizeof room);
        usc_line_add(l,
                     "    at::Tensor %s = call.make(shapes[%zu]);\n"
                     "    const auto c_%s = call.out(\"%s\", %s);\n",
                     name, i, name, name, name);
    }
    put_run(w, e, list, n);
    usc_line_text(l, "    return ");
    if (s->n_returned > 1)
        usc_line_text(l, makes_results(e) ? "{" : "std::forward_as_tuple(");
    for (size_t i = 0, k = 0; i < s->n_returned; i++) {
        if (i > 0) usc_line_text(l, ", ");
        if (makes_results(e)) {
            usc_line_text(l, result_name(s, i, room, sizeof room));
            continue;
        }
        while (k < s->n_in + s->n_out && !usc_ops_is_written(&s->in[k].type))
            k++;
        usc_line_text(l, s->in[k++].name);
    }
    if (s->n_returned > 1) usc_line_text(l, makes_results(e) ? "}" : ")");
    usc_line_text(l, ";\n}\n\n");
}

static void put_structured(usc_ops_writer *w, const usc_ops_entry *out)
{
    usc_line *l = w->source;
    const usc_ops_argument *list[MOST_ARGUMENTS];
    const size_t n = arguments_of(out, list, MOST_ARGUMENTS);
    usc_line_add(l, "TORCH_IMPL_FUNC(%s)\n(", out->dispatch[0].kernel);
    usc_ops_put_impl_parameters(w, l, out);
    usc_line_add(l, ")\n{\n    usc_ops::InC call(\"%s::%s\");\n", out->space, out->name);
    for (size_t i = 0; i < n; i++)
        put_taken(l, list[i]);
    put_run(w, out, list, n);
    usc_line_text(l, "}\n\n");
}

static bool any_in_c(const usc_ops_book *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->entry[i].in_c != NULL) return true;
    return false;
}

void usc_ops_put_c_callers(usc_ops_writer *w)
{
    const usc_ops_book *b = w->book;
    if (!any_in_c(b)) return;
    usc_line_add(w->source,
                 "// ---- kernels in C, as functions of C++\n\nnamespace %s\n{\n\n",
                 w->space);
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (e->in_c == NULL) continue;
        if (usc_ops_is_structured(e))
            put_structured(w, e);
        else
            put_function(w, e);
    }
    usc_line_add(w->source, "} // namespace %s\n\n", w->space);
}

bool usc_ops_has_c(const usc_ops_book *b)
{
    return any_in_c(b);
}

/* A new operator's shapes, for torch.compile and fake tensors. */
void usc_ops_put_c_meta(usc_ops_writer *w, const char *space)
{
    usc_line *l = w->source;
    const usc_ops_book *b = w->book;
    bool any = false;
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        const usc_ops_schema *s = e->schema;
        if (e->in_c == NULL || e->kind != USC_OPS_NEW || strcmp(e->space, space) != 0)
            continue;
        if (!any) usc_line_add(l, "TORCH_LIBRARY_IMPL(%s, Meta, m)\n{\n", space);
        any = true;
        usc_line_add(l, "    m.impl(\"%s\", [](", e->name);
        usc_ops_put_parameters(l, s, USC_OPS_WRAPPER, false, w->arena);
        const char *returned = usc_ops_cxx_returned(s, w->arena);
        usc_line_add(l, ") -> %s {\n", returned != NULL ? returned : "?");
        if (s->variant == USC_OPS_FUNCTIONAL) {
            usc_line_add(l, "        auto made = %s::shape_%s(", w->space,
                         usc_ops_cxx_name(e->name, w->arena));
            put_names(l, s, "", "");
            usc_line_text(l, ");\n");
        }
        usc_line_text(l, "        return ");
        const bool tuple = s->n_returned > 1, made = s->variant == USC_OPS_FUNCTIONAL;
        if (tuple) usc_line_text(l, made ? "{" : "std::forward_as_tuple(");
        for (size_t k = 0, j = 0; k < s->n_returned; k++) {
            if (k > 0) usc_line_text(l, ", ");
            if (made) {
                usc_line_add(l, "made[%zu]", k);
                continue;
            }
            while (j < s->n_in + s->n_out && !usc_ops_is_written(&s->in[j].type))
                j++;
            usc_line_text(l, s->in[j++].name);
        }
        if (tuple) usc_line_text(l, made ? "}" : ")");
        usc_line_text(l, ";\n    });\n");
    }
    if (any) usc_line_text(l, "}\n\n");
}
