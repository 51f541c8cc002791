// SPDX-License-Identifier: Apache-2.0
// Operators of a device as C++ that reads as if written by hand: wrappers and
// registrations, over glue/grid/grid_ops.h. Neighbours: ops_header.c, ops_autograd.c,
// ops_names.c.
#include <string.h>

#include "ops/ops_write.h"

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
    usc_ops_put_parameters(l, e->schema, how, usc_ops_in_group(e), w->arena);
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
    usc_line_text(l, s->n_returned == 0 ? "    "
                     : plain            ? "    return "
                                        : "    return call.out(");
    if (e->kind == USC_OPS_FUNCTION_LEGACY)
        usc_line_add(l, "at::native::%s", d->kernel);
    else
        usc_ops_put_qualified(w, l, d->kernel);
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
            usc_ops_computed_of(out, i < s->n_in ? s->in[i].name : NULL);
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
    usc_line_text(l, n == 1 ? "    return "
                     : out  ? "    return std::forward_as_tuple("
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
    usc_ops_put_class(w, l, out);
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
    if (usc_ops_is_structured(e)) {
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
    return usc_ops_is_structured(e) ? strcmp(key, "PrivateUse1") == 0
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
    if (any) usc_ops_put_c_meta(w, space);
    if (any) usc_ops_put_autograd(w, space);
}

static void put_source(usc_ops_writer *w)
{
    static const char *const keys[] = {
        "PrivateUse1",          "QuantizedPrivateUse1",    "SparsePrivateUse1",
        "SparseCsrPrivateUse1", "NestedTensorPrivateUse1", "AutogradPrivateUse1"};
    const usc_ops_book *b = w->book;
    usc_line_text(w->source,
                  "// Written by `ulpscope ops gen`: wrappers of kernels, and their "
                  "registration.\n#include \"sim_ops.h\"\n");
    if (usc_ops_has_c(b))
        usc_line_text(w->source, "#include \"sim_ops_c.h\"\n\n#include <grid_ops_c.h>\n");
    usc_line_text(w->source, "\n");
    usc_ops_put_c_callers(w);
    usc_line_text(w->source, "namespace\n{\n\n");
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
                   usc_line *header, usc_line *c_header, usc_line *source)
{
    usc_arena arena = {.alloc = usc_libc_alloc};
    usc_ops_writer w = {.book = b,
                        .options = options,
                        .header = header,
                        .source = source,
                        .arena = &arena,
                        .space = options->cxx_space != NULL ? options->cxx_space
                                                            : b->cxx_space};
    usc_ops_put_header(&w);
    usc_ops_put_c_header(&w, c_header);
    put_source(&w);
    header->failed = header->failed || arena.failed || w.declared.failed || w.failed;
    usc_keys_free(&w.declared);
    usc_arena_free(&arena);
}
