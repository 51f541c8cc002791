// SPDX-License-Identifier: Apache-2.0
// The autograd of new operators, from the expressions of their `backward`.
#include <string.h>

#include "ops/ops_write.h"

static bool is_one_tensor(const usc_ops_type *t)
{
    return usc_ops_is_tensor(t) && !t->list && !t->optional;
}

static void put_parameters(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_ops_put_parameters(w->source, e->schema,
                           usc_ops_spelling_of(e->dispatch[0].kernel), false, w->arena);
}

static void put_names(usc_ops_writer *w, const usc_ops_schema *s)
{
    for (size_t i = 0; i < s->n_in; i++)
        usc_line_add(w->source, "%s%s", i > 0 ? ", " : "", s->in[i].name);
}

/* How a saved value is read: a method of c10::IValue. */
static const char *read_back(const usc_ops_type *t)
{
    static const struct {
        const char *base, *one, *optional, *list;
    } ways[] = {
        {"int", "toInt()", "toOptional<int64_t>()", "toIntVector()"},
        {"SymInt", "toInt()", "toOptional<int64_t>()", "toIntVector()"},
        {"float", "toDouble()", "toOptional<double>()", "toDoubleVector()"},
        {"bool", "toBool()", "toOptional<bool>()", "toBoolList()"},
        {"Scalar", "toScalar()", "toOptional<at::Scalar>()", "toListRef()"},
        {"str", "toStringRef()", "toOptional<std::string>()", "toListRef()"},
        {"Tensor", "toTensor()", "toOptional<at::Tensor>()", "toTensorVector()"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(ways[i].base, t->base) == 0)
            return t->list ? ways[i].list : t->optional ? ways[i].optional : ways[i].one;
    return "toInt()"; /* dtypes, layouts: numbers, as torch keeps them */
}

/* Tensors are saved as such, all else among the saved data. */
static void put_forward(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    usc_line_text(l, "    static at::Tensor forward(torch::autograd::AutogradContext "
                     "*ctx, ");
    put_parameters(w, e);
    usc_line_text(l, ")\n    {\n        at::AutoDispatchBelowADInplaceOrView below;\n");
    usc_line_add(l, "        at::Tensor result = own_%s::%s(", e->space,
                 usc_ops_cxx_name(e->name, w->arena));
    put_names(w, s);
    usc_line_text(l, ");\n        ctx->save_for_backward({");
    for (size_t i = 0; i < s->n_in; i++)
        if (is_one_tensor(&s->in[i].type)) usc_line_add(l, "%s, ", s->in[i].name);
    usc_line_text(l, "result});\n");
    for (size_t i = 0; i < s->n_in; i++)
        if (!is_one_tensor(&s->in[i].type))
            usc_line_add(l, "        ctx->saved_data[\"%s\"] = usc_ops::kept(%s);\n",
                         s->in[i].name, s->in[i].name);
    usc_line_text(l, "        return result;\n    }\n\n");
}

static const char *expression_of(const usc_ops_entry *e, const char *name)
{
    const usc_yaml *value = usc_yaml_get(e->backward, name);
    return value != NULL ? value->text : "at::Tensor()";
}

static void put_backward(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    usc_line_text(l, "    static torch::autograd::variable_list\n    "
                     "backward(torch::autograd::AutogradContext *ctx, "
                     "torch::autograd::variable_list grads)\n    {\n"
                     "        using namespace at;\n");
    usc_line_add(l, "        using namespace %s;\n", w->space);
    for (size_t i = 0; i < w->book->n; i++) {
        const usc_ops_entry *other = &w->book->entry[i];
        if (other->kind == USC_OPS_NEW && strcmp(other->space, e->space) == 0)
            usc_line_add(l, "        using own_%s::%s;\n", e->space,
                         usc_ops_cxx_name(other->name, w->arena));
    }
    usc_line_text(l, "        const auto saved = ctx->get_saved_variables();\n"
                     "        [[maybe_unused]] const at::Tensor &grad = grads[0];\n");
    size_t i_saved = 0;
    for (size_t i = 0; i < s->n_in; i++) {
        const char *name = s->in[i].name;
        if (is_one_tensor(&s->in[i].type))
            usc_line_add(l,
                         "        [[maybe_unused]] const at::Tensor &%s = "
                         "saved[%zu];\n",
                         name, i_saved++);
        else
            usc_line_add(l,
                         "        [[maybe_unused]] const auto %s = "
                         "ctx->saved_data[\"%s\"].%s;\n",
                         name, name, read_back(&s->in[i].type));
    }
    usc_line_add(l,
                 "        [[maybe_unused]] const at::Tensor &result = saved[%zu];\n"
                 "        return {",
                 i_saved);
    for (size_t i = 0; i < s->n_in; i++)
        usc_line_add(l, "%s%s", i > 0 ? ",\n                " : "",
                     expression_of(e, s->in[i].name));
    usc_line_text(l, "};\n    }\n");
}

static void put_class(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const char *name = usc_ops_cxx_name(e->name, w->arena);
    usc_line_add(l,
                 "struct autograd_%s : public torch::autograd::Function<autograd_%s> {\n",
                 name, name);
    put_forward(w, e);
    put_backward(w, e);
    usc_line_text(l, "};\n\nat::Tensor apply_");
    usc_line_add(l, "%s(", name);
    put_parameters(w, e);
    usc_line_add(l, ")\n{\n    return autograd_%s::apply(", name);
    put_names(w, e->schema);
    usc_line_text(l, ");\n}\n\n");
}

/* A function that calls an operator as any program does: recorded, judged. */
static void put_caller(usc_ops_writer *w, const usc_ops_entry *e)
{
    usc_line *l = w->source;
    const usc_ops_schema *s = e->schema;
    const char *returned = usc_ops_cxx_returned(s, w->arena);
    usc_line_add(l, "[[maybe_unused]] %s %s(", returned != NULL ? returned : "?",
                 usc_ops_cxx_name(e->name, w->arena));
    put_parameters(w, e);
    usc_line_add(l,
                 ")\n{\n    static const auto op =\n        "
                 "c10::Dispatcher::singleton()\n            "
                 ".findSchemaOrThrow(\"%s::%s\", \"%s\")\n            .typed<decltype(",
                 e->space, s->base, s->overload);
    usc_ops_put_wrapper_name(w, l, e, "PrivateUse1");
    usc_line_text(l, ")>();\n    return op.call(");
    for (size_t i = 0; i < s->n_in + s->n_out; i++)
        usc_line_add(l, "%s%s", i > 0 ? ", " : "", s->in[i].name);
    usc_line_text(l, ");\n}\n\n");
}

void usc_ops_put_autograd(usc_ops_writer *w, const char *space)
{
    const usc_ops_book *b = w->book;
    usc_line *l = w->source;
    usc_line_add(l, "namespace\n{\n\nnamespace own_%s\n{\n\n", space);
    for (size_t i = 0; i < b->n; i++)
        if (b->entry[i].kind == USC_OPS_NEW && strcmp(b->entry[i].space, space) == 0)
            put_caller(w, &b->entry[i]);
    usc_line_add(l, "} // namespace own_%s\n\n", space);
    for (size_t i = 0; i < b->n; i++)
        if (b->entry[i].kind == USC_OPS_NEW && b->entry[i].backward != NULL &&
            strcmp(b->entry[i].space, space) == 0)
            put_class(w, &b->entry[i]);
    usc_line_add(l,
                 "} // namespace\n\nTORCH_LIBRARY_IMPL(%s, AutogradPrivateUse1, m)\n{\n",
                 space);
    for (size_t i = 0; i < b->n; i++) {
        const usc_ops_entry *e = &b->entry[i];
        if (e->kind != USC_OPS_NEW || strcmp(e->space, space) != 0) continue;
        if (e->backward != NULL)
            usc_line_add(l, "    m.impl(\"%s\", TORCH_FN(apply_%s));\n", e->name,
                         usc_ops_cxx_name(e->name, w->arena));
        else
            usc_line_add(l,
                         "    m.impl(\"%s\", "
                         "torch::autograd::autogradNotImplementedFallback());\n",
                         e->name);
    }
    usc_line_text(l, "}\n\n");
}
