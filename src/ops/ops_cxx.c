// SPDX-License-Identifier: Apache-2.0
// Types of schemas in C++: those of the dispatcher, and those of structured kernels.
#include <string.h>

#include "ops/ops_schema.h"

/* base, one, of a list */
static const struct {
    const char *base, *one, *list;
} values[] = {
    {"int", "int64_t", "at::IntArrayRef"},
    {"SymInt", "c10::SymInt", "c10::SymIntArrayRef"},
    {"float", "double", "at::ArrayRef<double>"},
    {"bool", "bool", "at::ArrayRef<bool>"},
    {"str", "::usc_ops::text", "at::ArrayRef<::usc_ops::text>"},
    {"Scalar", "const at::Scalar &", "at::ArrayRef<at::Scalar>"},
    {"ScalarType", "at::ScalarType", "at::ArrayRef<at::ScalarType>"},
    {"Layout", "at::Layout", NULL},
    {"Device", "at::Device", NULL},
    {"MemoryFormat", "at::MemoryFormat", NULL},
    {"Generator", "at::Generator", NULL},
    {"QScheme", "at::QScheme", NULL},
    {"Dimname", "at::Dimname", "at::DimnameList"},
    {"Storage", "at::Storage", NULL},
    {"Stream", "at::Stream", NULL},
    {"DimVector", "at::DimVector", NULL}, /* of precomputed values alone */
};

static const char *text_of(usc_arena *arena, const char *before, const char *inner,
                           const char *after)
{
    usc_line l = {0};
    usc_line_add(&l, "%s%s%s", before, inner, after);
    const char *kept = l.text != NULL ? usc_arena_text(arena, l.text) : NULL;
    usc_line_free(&l);
    return kept;
}

static const char *tensor_type(const usc_ops_type *t, usc_ops_spelling how,
                               bool structured)
{
    const bool impl = how == USC_OPS_STRUCTURED;
    if (t->list && t->optional)
        return impl ? "const at::IOptTensorListRef &"
                    : "const c10::List<::std::optional<at::Tensor>> &";
    if (t->list)
        return structured && !usc_ops_is_written(t) ? "const at::ITensorListRef &"
                                                    : "at::TensorList";
    if (t->optional)
        return impl ? "at::OptionalTensorRef" : "const ::std::optional<at::Tensor> &";
    return usc_ops_is_written(t) && !impl ? "at::Tensor &" : "const at::Tensor &";
}

/* Without a trailing "&" and a leading "const". */
static const char *bare(const char *type, usc_arena *arena)
{
    if (strncmp(type, "const ", 6) != 0) return type;
    char *made = (char *)usc_arena_take(arena, strlen(type));
    if (made == NULL) return NULL;
    memcpy(made, type + 6, strlen(type) - 5);
    char *end = strstr(made, " &");
    if (end != NULL) *end = '\0';
    return made;
}

static const char *list_type(const usc_ops_type *t, const char *base, const char *list,
                             usc_arena *arena)
{
    if (strcmp(t->base, "bool") == 0 && t->length[0] != '\0')
        return text_of(arena, "::std::array<bool, ", t->length, ">");
    if (list == NULL) return NULL;
    if (!t->list_optional) return list;
    if (strcmp(base, "int") == 0) return "at::OptionalIntArrayRef";
    if (strcmp(base, "SymInt") == 0) return "at::OptionalSymIntArrayRef";
    return text_of(arena, "::std::optional<", list, ">");
}

const char *usc_ops_cxx_type(const usc_ops_type *t, usc_ops_spelling how, bool structured,
                             usc_arena *arena)
{
    if (usc_ops_is_tensor(t)) return tensor_type(t, how, structured);
    const char *base = t->base;
    if (strcmp(base, "SymInt") == 0 && how != USC_OPS_SYMBOLIC) base = "int";
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(values[i].base, base) != 0) continue;
        if (t->list) return list_type(t, base, values[i].list, arena);
        if (!t->optional) return values[i].one;
        const char *one = bare(values[i].one, arena);
        if (one == NULL) return NULL;
        const bool scalar = strcmp(base, "Scalar") == 0;
        return text_of(arena, scalar ? "const ::std::optional<" : "::std::optional<", one,
                       scalar ? "> &" : ">");
    }
    return NULL;
}

static const char *returned_type(const usc_ops_type *t, bool by_reference,
                                 usc_arena *arena)
{
    if (usc_ops_is_tensor(t)) {
        if (t->list) return "::std::vector<at::Tensor>";
        return by_reference ? "at::Tensor &" : "at::Tensor";
    }
    const char *type = usc_ops_cxx_type(t, USC_OPS_WRAPPER, false, arena);
    return type != NULL ? bare(type, arena) : NULL;
}

const char *usc_ops_cxx_returned(const usc_ops_schema *s, usc_arena *arena)
{
    const bool by_reference = s->variant != USC_OPS_FUNCTIONAL;
    if (s->n_returned == 0) return "void";
    if (s->n_returned == 1)
        return returned_type(&s->returned[0].type, by_reference, arena);
    usc_line l = {0};
    usc_line_text(&l, "::std::tuple<");
    for (size_t i = 0; i < s->n_returned; i++) {
        const char *one = returned_type(&s->returned[i].type, by_reference, arena);
        usc_line_add(&l, "%s%s", i > 0 ? ", " : "", one != NULL ? one : "?");
    }
    usc_line_text(&l, ">");
    const char *kept = l.text != NULL ? usc_arena_text(arena, l.text) : NULL;
    usc_line_free(&l);
    return kept;
}

void usc_ops_put_parameters(usc_line *l, const usc_ops_schema *s, usc_ops_spelling how,
                            bool structured, usc_arena *arena)
{
    for (size_t i = 0; i < s->n_in + s->n_out; i++) {
        const usc_ops_argument *a = &s->in[i];
        const char *type = usc_ops_cxx_type(&a->type, how, structured, arena);
        if (type == NULL) type = "?";
        const bool close = type[strlen(type) - 1] == '&';
        usc_line_add(l, "%s%s%s%s", i > 0 ? ", " : "", type, close ? "" : " ", a->name);
    }
}
