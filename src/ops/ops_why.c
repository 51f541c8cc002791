// SPDX-License-Identifier: Apache-2.0
// What an operator is in torch, and a first entry of it with what its author writes.
#include <ulpscope/x/ops.h>

#include <stdlib.h>
#include <string.h>

#include "ops/ops_write.h"

static usc_status find(const usc_ops_book *native, const char *op,
                       const usc_ops_entry **out, usc_error *err)
{
    *out = usc_ops_find(native, op);
    if (*out != NULL) return USC_OK;
    const char *near = usc_ops_nearest(native, op);
    return usc_error_set(err, USC_E_NOT_FOUND, -1,
                         "this torch has no operator '%.80s'%s%s%s", op,
                         near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                         near != NULL ? "'?" : "");
}

static void put_members(const usc_ops_group *g, FILE *to)
{
    const usc_ops_entry *const members[] = {g->functional, g->inplace, g->out};
    const char *comma = "";
    for (int i = 0; i < 3; i++) {
        if (members[i] == NULL) continue;
        (void)fprintf(to, "%s%s", comma, members[i]->name);
        comma = ", ";
    }
}

static void put_kernels(const usc_ops_entry *e, FILE *to)
{
    for (size_t i = 0; i < e->n_dispatch; i++)
        (void)fprintf(to, "%s%s: %s", i > 0 ? ", " : "  kernels: ", e->dispatch[i].key,
                      e->dispatch[i].kernel);
    if (e->n_dispatch > 0) (void)fputc('\n', to);
}

static void put_why(const usc_ops_book *native, const usc_ops_entry *e, FILE *to)
{
    usc_line signature = {0};
    usc_ops_put_signature(&signature, e->schema);
    (void)fprintf(to, "%s::%s%s\n", e->space, e->name,
                  signature.text != NULL ? signature.text : "");
    usc_line_free(&signature);
    const usc_ops_group g = usc_ops_group_of(native, e);
    if (g.out != NULL) {
        (void)fputs("  structured, with the group ", to);
        put_members(&g, to);
        (void)fputc('\n', to);
        put_kernels(g.out, to);
        (void)fprintf(
            to,
            "  write: the kernel at %s (TORCH_IMPL_FUNC over torch's shapes), or "
            "nothing there and a kernel behind torch's dispatch stub\n",
            g.out->name);
    } else if (usc_ops_is_composite(e)) {
        (void)fputs("  composite: torch makes it of other operators; a device needs "
                    "nothing\n",
                    to);
    } else if (usc_ops_common_kernel(e) != NULL) {
        put_kernels(e, to);
        (void)fprintf(to, "  torch's function serves every device: 'PrivateUse1: %s'\n",
                      usc_ops_common_kernel(e));
    } else {
        put_kernels(e, to);
        (void)fputs("  write: a function for the device; without one it runs on the CPU "
                    "with copies (the simulated device), or is missing\n",
                    to);
    }
    (void)fprintf(to, "  next: ulpscope ops skeleton %s\n", e->name);
}

static usc_status written(FILE *to, usc_error *err)
{
    return ferror(to) ? usc_error_set(err, USC_E_IO, -1, "the text cannot be written")
                      : USC_OK;
}

usc_status usc_ops_why(const char *op, const char *path, FILE *to, usc_error *err)
{
    usc_ops_book native;
    const usc_ops_entry *e = NULL;
    usc_status st = usc_ops_read_native(&native, path, err);
    if (st == USC_OK) st = find(&native, op, &e, err);
    if (st == USC_OK) {
        put_why(&native, e, to);
        st = written(to, err);
    }
    usc_ops_book_free(&native);
    return st;
}

/* ---- a first entry */

/* "lerp.Scalar_out" is LerpScalarOut; "add_.Tensor" Add_Tensor. */
static void put_kernel_name(FILE *to, const usc_ops_entry *e)
{
    bool up = true;
    for (const char *c = e->name; *c != '\0'; c++) {
        const bool mark = *c == '.' || (*c == '_' && c[1] != '\0' && c[1] != '.');
        if (!mark) (void)fputc(up && *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, to);
        up = mark;
    }
}

/* A function of C to fill in. */
static void put_c(const usc_ops_entry *e, const usc_ops_entry *named, FILE *code)
{
    char *name = NULL;
    size_t size = 0;
    usc_line signature = {0};
    FILE *to = open_memstream(&name, &size);
    if (to == NULL) return;
    put_kernel_name(to, named);
    if (fclose(to) == 0) usc_ops_put_c_signature(&signature, e, name);
    (void)fprintf(
        code,
        "%s\n{\n    return usc_error_set(err, USC_E_UNSUPPORTED, -1, \"%s is not "
        "written yet\");\n}\n\n",
        signature.text != NULL ? signature.text : "", e->name);
    usc_line_free(&signature);
    free(name);
}

static void put_group(const usc_ops_group *g, bool in_c, FILE *yaml, FILE *cxx,
                      usc_arena *arena)
{
    const usc_ops_entry *const members[] = {g->functional, g->inplace, g->out};
    for (int i = 0; i < 3; i++)
        if (members[i] != NULL) (void)fprintf(yaml, "- func: %s\n", members[i]->name);
    const usc_ops_entry *named = g->functional != NULL ? g->functional : g->out;
    (void)fprintf(yaml, "%s  dispatch:\n    PrivateUse1: ", in_c ? "  kernel: c\n" : "");
    put_kernel_name(yaml, named);
    (void)fputs("\n\n", yaml);
    if (in_c) {
        usc_ops_entry out = *g->out;
        out.kind = USC_OPS_LEGACY_META;
        put_c(&out, named, cxx);
        return;
    }
    (void)fprintf(cxx, "// %s: its shapes are torch's.\nTORCH_IMPL_FUNC(", g->out->name);
    put_kernel_name(cxx, g->functional != NULL ? g->functional : g->out);
    (void)fputs(")(", cxx);
    const usc_ops_schema *s = g->out->schema;
    for (size_t i = 0; i < s->n_in + s->n_out; i++) {
        const char *type =
            usc_ops_cxx_type(&s->in[i].type, USC_OPS_STRUCTURED, true, arena);
        if (type == NULL) type = "?";
        (void)fprintf(cxx, "%s%s%s%s", i > 0 ? ", " : "", type,
                      type[strlen(type) - 1] == '&' ? "" : " ", s->in[i].name);
    }
    (void)fputs(")\n{\n    const usc_ops::Open open({}, {}); // read, written\n}\n\n",
                cxx);
}

static void put_function(const usc_ops_entry *e, bool in_c, FILE *yaml, FILE *cxx,
                         usc_arena *arena)
{
    usc_line parameters = {0};
    if (usc_ops_common_kernel(e) != NULL) in_c = false; /* torch's serves every device */
    (void)fprintf(yaml, "- func: %s\n%s  dispatch:\n    PrivateUse1: ", e->name,
                  in_c ? "  kernel: c\n" : "");
    if (in_c) {
        put_kernel_name(yaml, e);
        (void)fputs("\n\n", yaml);
        put_c(e, e, cxx);
        return;
    }
    if (usc_ops_common_kernel(e) != NULL) {
        (void)fprintf(yaml, "%s\n\n", usc_ops_common_kernel(e));
        return;
    }
    put_kernel_name(yaml, e);
    (void)fputs("\n\n", yaml);
    usc_ops_put_parameters(&parameters, e->schema, USC_OPS_WRAPPER, false, arena);
    (void)fprintf(cxx, "%s ", usc_ops_cxx_returned(e->schema, arena));
    put_kernel_name(cxx, e);
    (void)fprintf(cxx, "(%s)\n{\n}\n\n", parameters.text != NULL ? parameters.text : "");
    usc_line_free(&parameters);
}

usc_status usc_ops_skeleton(const char *const *op, size_t n, const char *path, bool in_c,
                            FILE *yaml, FILE *cxx, usc_error *err)
{
    usc_ops_book native;
    usc_keys seen = {0};
    usc_status st = usc_ops_read_native(&native, path, err);
    for (size_t i = 0; st == USC_OK && i < n; i++) {
        const usc_ops_entry *e = NULL;
        st = find(&native, op[i], &e, err);
        if (st != USC_OK) break;
        const usc_ops_group g = usc_ops_group_of(&native, e);
        const char *of = g.out != NULL ? g.out->name : e->name;
        if (usc_keys_put(&seen, usc_key_of(of), (int64_t)i) != (int64_t)i) continue;
        if (g.out != NULL)
            put_group(&g, in_c, yaml, cxx, &native.arena);
        else if (usc_ops_is_composite(e))
            (void)fprintf(yaml, "# %s is made of other operators: nothing is needed\n\n",
                          e->name);
        else
            put_function(e, in_c, yaml, cxx, &native.arena);
    }
    if (st == USC_OK && (native.arena.failed || seen.failed))
        st = usc_no_memory("a skeleton", err);
    if (st == USC_OK) st = written(yaml, err);
    if (st == USC_OK) st = written(cxx, err);
    usc_keys_free(&seen);
    usc_ops_book_free(&native);
    return st;
}
