// SPDX-License-Identifier: Apache-2.0
// Operators of a device as C++ that reads as if written by hand: a header with what the
// kernels have to be, and a source with wrappers and registrations. What both stand on is
// glue/grid/grid_ops.h. Neighbour: ops_autograd.c.
#include <string.h>

#include "ops/ops_write.h"

const char *usc_ops_cxx_name(const char *name, usc_arena *arena)
{
    const size_t n = strlen(name);
    char *made = usc_arena_take(arena, n + 1);
    if (made == NULL) return NULL;
    for (size_t i = 0; i <= n; i++)
        made[i] = name[i];
    for (char *c = made; *c != '\0'; c++)
        if (*c == '.') *c = '_';
    return made;
}

/* ---- names */

/* ATen/ops/NAME_native.h */
static void put_root(usc_line *l, const usc_ops_schema *s)
{
    const size_t n = strlen(s->base);
    usc_line_put(l, s->base, s->variant == USC_OPS_INPLACE ? n - 1 : n);
}

/* The kernel's name from everywhere. */
static void put_qualified(usc_ops_writer *w, usc_line *l, const char *kernel)
{
    const bool own = strstr(kernel, "::") == NULL || w->book->external;
    usc_line_add(l, "%s%s%s", own ? w->space : "", own ? "::" : "", kernel);
}

static bool is_symbolic(const char *kernel)
{
    const size_t n = strlen(kernel);
    return n > 7 && strcmp(kernel + n - 7, "_symint") == 0;
}

usc_ops_spelling usc_ops_spelling_of(const char *kernel)
{
    return is_symbolic(kernel) ? USC_OPS_SYMBOLIC : USC_OPS_WRAPPER;
}

static bool is_structured(const usc_ops_entry *e)
{
    return e->kind == USC_OPS_LEGACY || e->kind == USC_OPS_LEGACY_META ||
           e->kind == USC_OPS_CUSTOMIZED;
}

/* Whether torch has it in a structured group: lists of tensors have another type then. */
static bool in_group(const usc_ops_entry *e)
{
    return e->torch_group.out != NULL;
}

/* at::meta::structured_lerp_Tensor: by the functional variant, or the out= one alone. */
static const char *meta_name(usc_ops_writer *w, const usc_ops_entry *out)
{
    const usc_ops_group *g = &out->torch_group;
    return usc_ops_cxx_name(g->functional != NULL ? g->functional->name : out->name,
                            w->arena);
}

static const char *legacy_kernel(const usc_ops_entry *out)
{
    const char *cuda = usc_ops_kernel_of(out->torch_has, "CUDA");
    return cuda != NULL ? cuda : usc_ops_kernel_of(out->torch_has, "CPU");
}

/* The class whose meta() and impl() are called. */
static void put_class(usc_ops_writer *w, usc_line *l, const usc_ops_entry *out)
{
    if (out->kind == USC_OPS_LEGACY)
        usc_line_add(l, "at::native::structured_%s", legacy_kernel(out));
    else
        usc_line_add(l, "%s::structured_%s", w->space,
                     usc_ops_kernel_of(out, "PrivateUse1"));
}

/* ---- the header */

static const usc_ops_precomputed *computed_of(const usc_ops_entry *out, const char *name)
{
    for (size_t i = 0; i < out->n_computed; i++) {
        const char *replaces = out->computed[i].replaces;
        if (name == NULL ? replaces == NULL
                         : replaces != NULL && strcmp(replaces, name) == 0)
            return &out->computed[i];
    }
    return NULL;
}

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

static void put_impl_parameters(usc_ops_writer *w, usc_line *l, const usc_ops_entry *out)
{
    const usc_ops_schema *s = out->schema;
    bool any = false;
    for (size_t i = 0; i <= s->n_in; i++) {
        const usc_ops_precomputed *p =
            computed_of(out, i < s->n_in ? s->in[i].name : NULL);
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
                     made.text, all[i]->name, type, all[i]->name, all[i]->name, made.text);
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
    if (inherits && strcmp(base, "TensorIteratorBase") == 0) base = "at::TensorIteratorBase";
    usc_line_add(l, "struct structured_%s : public %s {\n", meta_name(w, out), base);
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
    usc_line_add(l, "struct structured_%s : public %sstructured_%s {\n    void impl(",
                 usc_ops_kernel_of(out, "PrivateUse1"),
                 out->kind == USC_OPS_CUSTOMIZED ? "" : "at::meta::", meta_name(w, out));
    put_impl_parameters(w, l, out);
    usc_line_text(l, ");\n};\n\n");
}

static void put_declaration(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                            const char *kernel)
{
    const char *returned = usc_ops_cxx_returned(e->schema, w->arena);
    if (returned == NULL) returned = "?";
    const bool close = returned[strlen(returned) - 1] == '&';
    usc_line_add(l, "%s%s%s(", returned, close ? "" : " ", kernel);
    usc_ops_put_parameters(l, e->schema, usc_ops_spelling_of(kernel), in_group(e),
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
    if (one.text != NULL &&
        usc_keys_put(&w->declared, usc_key_of(one.text), at) == at)
        usc_line_add(w->header, "%s%s;\n", colons != NULL ? "    static " : "", one.text);
    usc_line_free(&one);
}

static void include_once(usc_ops_writer *w, const usc_ops_schema *s, const char *kind)
{
    usc_line one = {0};
    usc_line_text(&one, "#include <ATen/ops/");
    put_root(&one, s);
    usc_line_add(&one, "_%s.h>\n", kind);
    const int64_t at = (int64_t)w->declared.n;
    if (one.text != NULL &&
        usc_keys_put(&w->declared, usc_key_of(one.text), at) == at)
        usc_line_text(w->header, one.text);
    usc_line_free(&one);
}

static bool is_function(const usc_ops_entry *e)
{
    return e->kind == USC_OPS_FUNCTION || e->kind == USC_OPS_UNSTRUCTURED ||
           e->kind == USC_OPS_NEW;
}

static void put_header(usc_ops_writer *w)
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
        if (is_structured(&b->entry[i]) && b->entry[i].group.out == &b->entry[i])
            declare_structured(w, &b->entry[i]);
    if (b->external) usc_line_add(l, "struct %s {\n", b->class_name);
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; is_function(&b->entry[i]) && k < b->entry[i].n_dispatch; k++)
            declare_function(w, &b->entry[i], b->entry[i].dispatch[k].kernel);
    if (b->external) usc_line_text(l, "};\n");
    usc_line_add(l, "\n} // namespace %s\n", w->space);
}

/* ---- the source */

void usc_ops_put_wrapper_name(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                              const char *key)
{
    const bool own = strcmp(e->space, "aten") != 0;
    usc_line_add(l, "wrapper_%s%s%s%s%s", own ? e->space : "", own ? "_" : "",
                 usc_ops_cxx_name(e->name, w->arena),
                 strcmp(key, "PrivateUse1") != 0 ? "__" : "",
                 strcmp(key, "PrivateUse1") != 0 ? key : "");
}

/* How an argument goes on to a kernel: planted faults change what is read alone. */
static void put_passed(usc_line *l, const usc_ops_argument *a, bool structured)
{
    const usc_ops_type *t = &a->type;
    if (usc_ops_is_tensor(t) && !t->list && !t->optional && t->alias == NULL)
        usc_line_add(l, "call.in(%s)", a->name);
    else if (structured && usc_ops_is_tensor(t) && t->optional && !t->list)
        usc_line_add(l, "usc_ops::maybe(%s)", a->name);
    else
        usc_line_text(l, a->name);
}

static void begin_wrapper(usc_ops_writer *w, const usc_ops_entry *e, const char *key,
                          usc_ops_spelling how)
{
    usc_line *l = w->source;
    const char *returned = usc_ops_cxx_returned(e->schema, w->arena);
    if (returned == NULL) returned = "?";
    usc_line_add(l, "%s%s", returned, returned[strlen(returned) - 1] == '&' ? "" : " ");
    usc_ops_put_wrapper_name(w, l, e, key);
    usc_line_text(l, "(");
    usc_ops_put_parameters(l, e->schema, how, in_group(e), w->arena);
    usc_line_add(l, ")\n{\n    usc_ops::Call call(\"%s::%s\");\n", e->space, e->name);
    const usc_ops_schema *s = e->schema;
    const char *first = NULL, *device = NULL;
    for (size_t i = 0; i < s->n_in + s->n_out; i++) {
        const usc_ops_argument *a = &s->in[i];
        const bool one = usc_ops_is_tensor(&a->type) && !a->type.optional;
        if (one && first == NULL) first = a->name;
        if (strcmp(a->type.base, "Device") == 0) device = a->name;
        if (e->same_device && one && !a->type.list)
            usc_line_add(l, "    call.same_device(\"%s\", %s);\n", a->name, a->name);
    }
    if (e->guard && first != NULL)
        usc_line_add(l, "    const c10::OptionalDeviceGuard guard(at::device_of(%s));\n",
                     first);
    else if (e->guard && device != NULL)
        usc_line_add(l, "    const c10::OptionalDeviceGuard guard(%s);\n", device);
}

/* A view is the argument's memory: no result of arithmetic. */
static bool is_view(const usc_ops_schema *s)
{
    return s->n_returned > 0 && s->returned[0].type.alias != NULL &&
           !usc_ops_is_written(&s->returned[0].type);
}

static void put_function(usc_ops_writer *w, const usc_ops_entry *e,
                         const usc_ops_dispatch *d)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    const bool plain = is_view(s) || s->n_returned == 0;
    begin_wrapper(w, e, d->key, usc_ops_spelling_of(d->kernel));
    usc_line_text(l, s->n_returned == 0 ? "    " : plain ? "    return "
                                                         : "    return call.out(");
    if (e->kind == USC_OPS_FUNCTION_LEGACY)
        usc_line_add(l, "at::native::%s", d->kernel);
    else
        put_qualified(w, l, d->kernel);
    usc_line_text(l, "(");
    for (size_t i = 0; i < s->n_in + s->n_out; i++) {
        if (i > 0) usc_line_text(l, ", ");
        put_passed(l, &s->in[i], false);
    }
    usc_line_text(l, plain ? ");\n}\n\n" : "));\n}\n\n");
}

static void put_impl_arguments(usc_ops_writer *w, const usc_ops_entry *out,
                               const usc_ops_schema *s)
{
    usc_line *l = w->source;
    const char *comma = "";
    for (size_t i = 0; i <= s->n_in; i++) {
        const usc_ops_precomputed *p =
            computed_of(out, i < s->n_in ? s->in[i].name : NULL);
        for (size_t k = 0; p != NULL && k < p->n; k++, comma = ", ")
            usc_line_add(l, "%scomputed.%s", comma, p->with[k].name);
        if (p != NULL || i == s->n_in) continue;
        usc_line_text(l, comma);
        put_passed(l, &s->in[i], true);
        comma = ", ";
    }
    for (size_t i = 0; i < out->schema->n_out; i++, comma = ", ")
        usc_line_add(l, "%sop.maybe_get_output(%zu)", comma, i);
}

static void put_returned(usc_ops_writer *w, const usc_ops_schema *s)
{
    usc_line *l = w->source;
    const size_t n = s->variant == USC_OPS_OUT ? s->n_out : s->n_returned;
    if (s->variant == USC_OPS_INPLACE) {
        usc_line_text(l, "    op.settle();\n    return call.out(self);\n}\n\n");
        return;
    }
    const bool out = s->variant == USC_OPS_OUT;
    if (out) usc_line_text(l, "    op.settle();\n");
    usc_line_text(l, n == 1 ? "    return " : out ? "    return std::forward_as_tuple("
                                                  : "    return {");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) usc_line_text(l, ", ");
        if (out)
            usc_line_add(l, "call.out(%s)", s->out[i].name);
        else
            usc_line_add(l, "call.out(op.take(%zu))", i);
    }
    usc_line_text(l, n == 1 ? ";\n}\n\n" : out ? ");\n}\n\n" : "};\n}\n\n");
}

static void put_structured(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    const usc_ops_entry *out = e->group.out;
    begin_wrapper(w, e, "PrivateUse1", USC_OPS_WRAPPER);
    static const char *const shapes[] = {"functional", "inplace", "out"};
    usc_line_add(l, "    usc_ops::%s<", shapes[s->variant]);
    put_class(w, l, out);
    if (s->variant == USC_OPS_FUNCTIONAL)
        usc_line_add(l, ", %zu> op;\n", out->schema->n_out);
    else if (s->variant == USC_OPS_INPLACE)
        usc_line_text(l, "> op(self);\n");
    else {
        usc_line_add(l, ", %zu> op({", s->n_out);
        for (size_t i = 0; i < s->n_out; i++)
            usc_line_add(l, "%s&%s", i > 0 ? ", " : "", s->out[i].name);
        usc_line_text(l, "});\n");
    }
    usc_line_text(l, out->n_computed > 0 ? "    const auto computed = op.meta("
                                         : "    op.meta(");
    for (size_t i = 0; i < s->n_in; i++) {
        if (i > 0) usc_line_text(l, ", ");
        put_passed(l, &s->in[i], true);
    }
    usc_line_text(l, ");\n    op.impl(");
    put_impl_arguments(w, out, s);
    usc_line_text(l, ");\n");
    put_returned(w, s);
}

static void put_wrappers(usc_ops_writer *w, const usc_ops_entry *e)
{
    if (is_structured(e)) {
        put_structured(w, e);
        return;
    }
    for (size_t k = 0; k < e->n_dispatch; k++)
        put_function(w, e, &e->dispatch[k]);
}

/* ---- registration */

static void put_impl(usc_ops_writer *w, const usc_ops_entry *e, const char *key)
{
    usc_line_add(w->source, "    m.impl(\"%s\", TORCH_FN(", e->name);
    usc_ops_put_wrapper_name(w, w->source, e, key);
    usc_line_text(w->source, "));\n");
}

static bool has_key(const usc_ops_entry *e, const char *key)
{
    return is_structured(e) ? strcmp(key, "PrivateUse1") == 0
                            : usc_ops_kernel_of(e, key) != NULL;
}

static void put_registrations(usc_ops_writer *w, const char *space, const char *key)
{
    const usc_ops_book *b = w->book;
    bool any = false;
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (strcmp(e->space, space) != 0 || !has_key(e, key)) continue;
        if (!any)
            usc_line_add(w->source, "TORCH_LIBRARY_IMPL(%s, %s, m)\n{\n", space, key);
        any = true;
        put_impl(w, e, key);
    }
    if (any) usc_line_text(w->source, "}\n\n");
}

static void put_definitions(usc_ops_writer *w, const char *space)
{
    const usc_ops_book *b = w->book;
    bool any = false;
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (e->kind != USC_OPS_NEW || strcmp(e->space, space) != 0) continue;
        if (!any) usc_line_add(w->source, "TORCH_LIBRARY_FRAGMENT(%s, m)\n{\n", space);
        any = true;
        usc_line_add(w->source, "    m.def(R\"(%s", e->name);
        usc_ops_put_signature(w->source, e->schema);
        usc_line_text(w->source, ")\");\n");
    }
    if (any) usc_line_text(w->source, "}\n\n");
    if (any) usc_ops_put_autograd(w, space);
}

static void put_source(usc_ops_writer *w)
{
    static const char *const keys[] = {"PrivateUse1",          "QuantizedPrivateUse1",
                                       "SparsePrivateUse1",    "SparseCsrPrivateUse1",
                                       "NestedTensorPrivateUse1", "AutogradPrivateUse1"};
    const usc_ops_book *b = w->book;
    usc_line_text(w->source,
                  "// Written by `ulpscope ops gen`: wrappers of kernels, and their "
                  "registration.\n#include \"sim_ops.h\"\n\nnamespace\n{\n\n");
    for (size_t i = 0; i < b->n; i++)
        put_wrappers(w, &b->entry[i]);
    usc_line_text(w->source, "} // namespace\n\n");
    usc_keys seen = {0};
    for (size_t i = 0; i < b->n; i++) {
        const char *space = b->entry[i].space;
        if (usc_keys_put(&seen, usc_key_of(space), (int64_t)i) != (int64_t)i) continue;
        put_definitions(w, space);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            put_registrations(w, space, keys[k]);
    }
    w->failed = w->failed || seen.failed;
    usc_keys_free(&seen);
}

void usc_ops_write(const usc_ops_book *b, const usc_ops_options *options,
                   usc_line *header, usc_line *source)
{
    usc_arena arena = {.alloc = usc_libc_alloc};
    usc_ops_writer w = {.book = b,
                        .options = options,
                        .header = header,
                        .source = source,
                        .arena = &arena,
                        .space = options->cxx_space != NULL ? options->cxx_space
                                                            : b->cxx_space};
    put_header(&w);
    put_source(&w);
    header->failed = header->failed || arena.failed || w.declared.failed || w.failed;
    usc_keys_free(&w.declared);
    usc_arena_free(&arena);
}
