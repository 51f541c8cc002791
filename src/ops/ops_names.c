// SPDX-License-Identifier: Apache-2.0
// Names that written C++ has: of kernels, classes and wrappers.
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
void usc_ops_put_root(usc_line *l, const usc_ops_schema *s)
{
    const size_t n = strlen(s->base);
    if (n > 4 && strncmp(s->base, "__", 2) == 0 && strcmp(s->base + n - 2, "__") == 0) {
        const bool inplace = s->n_in > 0 && usc_ops_is_written(&s->in[0].type);
        usc_line_put(l, s->base + 2 + inplace, n - 4 - inplace); /* of __ilshift__ */
        return;
    }
    usc_line_put(l, s->base, s->variant == USC_OPS_INPLACE ? n - 1 : n);
}

/* The kernel's name from everywhere. */
void usc_ops_put_qualified(usc_ops_writer *w, usc_line *l, const char *kernel)
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

bool usc_ops_is_structured(const usc_ops_entry *e)
{
    return e->kind == USC_OPS_LEGACY || e->kind == USC_OPS_LEGACY_META ||
           e->kind == USC_OPS_CUSTOMIZED;
}

/* Whether torch has it in a structured group: lists of tensors have another type then. */
bool usc_ops_in_group(const usc_ops_entry *e)
{
    return e->torch_group.out != NULL;
}

/* at::meta::structured_lerp_Tensor: by the functional variant, or the out= one alone. */
const char *usc_ops_meta_name(usc_ops_writer *w, const usc_ops_entry *out)
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
void usc_ops_put_class(usc_ops_writer *w, usc_line *l, const usc_ops_entry *out)
{
    if (out->kind == USC_OPS_LEGACY)
        usc_line_add(l, "at::native::structured_%s", legacy_kernel(out));
    else
        usc_line_add(l, "%s::structured_%s", w->space,
                     usc_ops_kernel_of(out, "PrivateUse1"));
}
const usc_ops_precomputed *usc_ops_computed_of(const usc_ops_entry *out, const char *name)
{
    for (size_t i = 0; i < out->n_computed; i++) {
        const char *replaces = out->computed[i].replaces;
        if (name == NULL ? replaces == NULL
                         : replaces != NULL && strcmp(replaces, name) == 0)
            return &out->computed[i];
    }
    return NULL;
}
void usc_ops_put_wrapper_name(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                              const char *key)
{
    const bool own = strcmp(e->space, "aten") != 0;
    usc_line_add(l, "wrapper_%s%s%s%s%s", own ? e->space : "", own ? "_" : "",
                 usc_ops_cxx_name(e->name, w->arena),
                 strcmp(key, "PrivateUse1") != 0 ? "__" : "",
                 strcmp(key, "PrivateUse1") != 0 ? key : "");
}
