// SPDX-License-Identifier: Apache-2.0
// The header: what the kernels of operators have to be.
#include <string.h>

#include "ops/ops_write.h"

static void put_typed(usc_ops_writer *w, usc_line *l, const usc_ops_argument *a)
{
    const char *type = usc_ops_cxx_type(&a->type, USC_OPS_STRUCTURED, true, w->arena);
    if (type == NULL) type = "?";
    usc_line_add(l, "%s%s%s", type, type[strlen(type) - 1] == '&' ? "" : " ", a->name);
}

static void put_meta_parameters(usc_ops_writer *w, usc_line *l, const usc_ops_schema *s)
{
    for (size_t i = 0; i < s->n_in; i++) {
        if (i > 0) usc_line_text(l, ", ");
        put_typed(w, l, &s->in[i]);
    }
}

void usc_ops_put_impl_parameters(usc_ops_writer *w, usc_line *l, const usc_ops_entry *out)
{
    const usc_ops_schema *s = out->schema;
    bool any = false;
    for (size_t i = 0; i <= s->n_in; i++) {
        const usc_ops_precomputed *p =
            usc_ops_computed_of(out, i < s->n_in ? s->in[i].name : NULL);
        for (size_t k = 0; p != NULL && k < p->n; k++) {
            usc_line_text(l, any ? ", " : "");
            put_typed(w, l, &p->with[k]);
            any = true;
        }
        if (p != NULL || i == s->n_in) continue;
        usc_line_text(l, any ? ", " : "");
        put_typed(w, l, &s->in[i]);
        any = true;
    }
    for (size_t i = 0; i < s->n_out; i++) {
        usc_line_text(l, any || i > 0 ? ", " : "");
        put_typed(w, l, &s->out[i]);
    }
}

/* What meta() hands to impl(): a struct whose values are set one by one, each once. */
static void put_precompute_struct(usc_ops_writer *w, const usc_ops_entry *out)
{
    usc_line *l = w->header;
    const usc_ops_argument *all[USC_OPS_MOST_COMPUTED * 16];
    size_t n = 0;
    for (size_t i = 0; i < out->n_computed; i++)
        for (size_t k = 0; k < out->computed[i].n; k++)
            all[n++] = &out->computed[i].with[k];
    usc_line_text(l, "    template <");
    for (size_t i = 0; i < n; i++)
        usc_line_add(l, "%sbool has_%s = false", i > 0 ? ", " : "", all[i]->name);
    usc_line_text(l, "> struct precompute_out {\n");
    for (size_t i = 0; i < n; i++) {
        usc_line made = {0};
        for (size_t k = 0; k < n; k++)
            usc_line_add(&made, "%s%s%s", k > 0 ? ", " : "", k == i ? "true" : "has_",
                         k == i ? "" : all[k]->name);
        const char *type =
            usc_ops_cxx_type(&all[i]->type, USC_OPS_STRUCTURED, true, w->arena);
        usc_line_add(l,
                     "        precompute_out<%s> set_%s(%s value)\n        {\n"
                     "            static_assert(!has_%s, \"%s already set\");\n"
                     "            precompute_out<%s> next;\n",
                     made.text, all[i]->name, type, all[i]->name, all[i]->name,
                     made.text);
        for (size_t k = 0; k < n; k++)
            if (k == i)
                usc_line_add(l, "            next.%s = value;\n", all[k]->name);
            else
                usc_line_add(l, "            next.%s = this->%s;\n", all[k]->name,
                             all[k]->name);
        usc_line_text(l, "            return next;\n        }\n");
        usc_line_free(&made);
    }
    for (size_t i = 0; i < n; i++) {
        usc_line_text(l, "        ");
        put_typed(w, l, all[i]);
        usc_line_text(l, "{};\n");
    }
    usc_line_text(l, "    };\n    using meta_return_ty = precompute_out<");
    for (size_t i = 0; i < n; i++)
        usc_line_add(l, "%strue", i > 0 ? ", " : "");
    usc_line_text(l, ">;\n");
}

static void put_meta_class(usc_ops_writer *w, const usc_ops_entry *out)
{
    usc_line *l = w->header;
    const bool inherits = out->inherits != NULL && strcmp(out->inherits, "none") != 0;
    const char *base = inherits ? out->inherits : "at::impl::MetaBase";
    if (inherits && strcmp(base, "TensorIteratorBase") == 0)
        base = "at::TensorIteratorBase";
    usc_line_add(l, "struct structured_%s : public %s {\n", usc_ops_meta_name(w, out),
                 base);
    if (out->n_computed > 0) put_precompute_struct(w, out);
    usc_line_text(l, out->n_computed > 0 ? "    meta_return_ty meta(" : "    void meta(");
    put_meta_parameters(w, l, out->schema);
    usc_line_text(l, ");\n};\n\n");
}

static void declare_structured(usc_ops_writer *w, const usc_ops_entry *out)
{
    usc_line *l = w->header;
    if (out->kind == USC_OPS_LEGACY) return;
    if (out->kind == USC_OPS_CUSTOMIZED) put_meta_class(w, out);
    usc_line_add(
        l, "struct structured_%s : public %sstructured_%s {\n    void impl(",
        usc_ops_kernel_of(out, "PrivateUse1"),
        out->kind == USC_OPS_CUSTOMIZED ? "" : "at::meta::", usc_ops_meta_name(w, out));
    usc_ops_put_impl_parameters(w, l, out);
    usc_line_text(l, ");\n};\n\n");
}

static void put_declaration(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                            const char *kernel)
{
    const char *returned = usc_ops_cxx_returned(e->schema, w->arena);
    if (returned == NULL) returned = "?";
    const bool close = returned[strlen(returned) - 1] == '&';
    usc_line_add(l, "%s%s%s(", returned, close ? "" : " ", kernel);
    usc_ops_put_parameters(l, e->schema, usc_ops_spelling_of(kernel), usc_ops_in_group(e),
                           w->arena);
    usc_line_text(l, ")");
}

/* Once, where two entries have it. */
static void declare_function(usc_ops_writer *w, const usc_ops_entry *e,
                             const char *kernel)
{
    usc_line one = {0};
    const char *colons = strstr(kernel, "::");
    if (colons != NULL && !w->book->external) return; /* declared elsewhere */
    put_declaration(w, &one, e, colons != NULL ? colons + 2 : kernel);
    const int64_t at = (int64_t)w->declared.n;
    if (one.text != NULL && usc_keys_put(&w->declared, usc_key_of(one.text), at) == at)
        usc_line_add(w->header, "%s%s;\n", colons != NULL ? "    static " : "", one.text);
    usc_line_free(&one);
}

static void include_once(usc_ops_writer *w, const usc_ops_schema *s, const char *kind)
{
    usc_line one = {0};
    usc_line_text(&one, "#include <ATen/ops/");
    usc_ops_put_root(&one, s);
    usc_line_add(&one, "_%s.h>\n", kind);
    const int64_t at = (int64_t)w->declared.n;
    if (one.text != NULL && usc_keys_put(&w->declared, usc_key_of(one.text), at) == at)
        usc_line_text(w->header, one.text);
    usc_line_free(&one);
}

static bool is_function(const usc_ops_entry *e)
{
    return e->kind == USC_OPS_FUNCTION || e->kind == USC_OPS_UNSTRUCTURED ||
           e->kind == USC_OPS_NEW;
}

void usc_ops_put_header(usc_ops_writer *w)
{
    const usc_ops_book *b = w->book;
    usc_line *l = w->header;
    usc_line_text(l, "// Written by `ulpscope ops gen`: the kernels that the operators "
                     "need.\n#pragma once\n\n#include <grid_ops.h>\n\n");
    for (size_t i = 0; i < w->options->n_include; i++)
        usc_line_add(l, "#include \"%s\"\n", w->options->include[i]);
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (e->kind == USC_OPS_LEGACY_META) include_once(w, e->schema, "meta");
        if (e->kind == USC_OPS_LEGACY || e->kind == USC_OPS_FUNCTION_LEGACY)
            include_once(w, e->schema, "native");
    }
    usc_line_add(l, "\nnamespace %s\n{\n\n", w->space);
    for (size_t i = 0; i < b->n; i++)
        if (usc_ops_is_structured(&b->entry[i]) && b->entry[i].group.out == &b->entry[i])
            declare_structured(w, &b->entry[i]);
    if (b->external) usc_line_add(l, "struct %s {\n", b->class_name);
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; is_function(&b->entry[i]) && k < b->entry[i].n_dispatch; k++)
            declare_function(w, &b->entry[i], b->entry[i].dispatch[k].kernel);
    if (b->external) usc_line_text(l, "};\n");
    usc_line_add(l, "\n} // namespace %s\n", w->space);
}
