// SPDX-License-Identifier: Apache-2.0
// Names of API calls: PREFIX.name.NUMBER.forward in a dump; in a trace the
// dotted name under which Python finds the function, or namespace::name of an operator.
#include "foreign/api_names.h"

#include <stdio.h>
#include <string.h>

/* In the order in which a trace's names are tried: longer ones first. */
static const struct {
    const char *prefix, *space;
} spaces[] = {
    {"Functional.", "torch.nn.functional."},
    {"Tensor.", "torch.Tensor."},
    {"VF.", "torch._VF."},
    {"Distributed.", "torch.distributed."},
    {"Torch.", "torch."},
    {"NPU.", "torch_npu."},
    {"MindSpeed.", "mindspeed.ops."},
    {"Aten.", "aten::"},
};
enum { N_SPACES = sizeof spaces / sizeof spaces[0] };

/* Methods by which Python runs an operator of the language, and the name under which
 * torch hands it on: a trace has the latter (docs/reference/levels.md), msprobe wraps the
 * former. Of several that torch hands on under one name, the first is what is written
 * most often.
 */
static const struct {
    const char *dunder, *method;
} operators[] = {
    {"__add__", "add"},
    {"__radd__", "add"},
    {"__iadd__", "add_"},
    {"__sub__", "sub"},
    {"__isub__", "sub_"},
    {"__mul__", "mul"},
    {"__rmul__", "mul"},
    {"__imul__", "mul_"},
    {"__truediv__", "div"},
    {"__div__", "div"},
    {"__itruediv__", "div_"},
    {"__idiv__", "div_"},
    {"__rtruediv__", "__rdiv__"},
    {"__mod__", "remainder"},
    {"__imod__", "remainder_"},
    {"__ifloordiv__", "floor_divide_"},
    {"__matmul__", "matmul"},
    {"__ge__", "ge"},
    {"__gt__", "gt"},
    {"__le__", "le"},
    {"__lt__", "lt"},
    {"__ne__", "ne"},
    {"__rand__", "bitwise_and"},
    {"__ror__", "bitwise_or"},
    {"__rxor__", "bitwise_xor"},
    {"__nonzero__", "__bool__"},
};
enum { N_OPERATORS = sizeof operators / sizeof operators[0] };

static bool is_number(const char *text, size_t n)
{
    return n > 0 && n < 19 && strspn(text, "0123456789") >= n;
}

/* Where the last part of a name begins, behind its dot; NULL: it has no dot. */
static const char *last_part(const char *text, size_t n)
{
    while (n > 0 && text[n - 1] != '.')
        n--;
    return n > 0 ? text + n : NULL;
}

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

static const char tensor_space[] = "torch.Tensor.";

/* torch.ops.aten.mm.default is aten::mm; torch.ops.aten.mm is a function. */
static void read_operator(char *op)
{
    const char *space = op + sizeof "torch.ops." - 1, *name = strchr(space, '.');
    if (name == NULL || strchr(name + 1, '.') == NULL) return;
    const size_t n_space = (size_t)(name - space), n = strlen(name + 1);
    memmove(op, space, n_space);
    memcpy(op + n_space, "::", 2);
    memmove(op + n_space + 2, name + 1, n + 1);
    char *overload = strrchr(op, '.');
    if (overload != NULL && strcmp(overload, ".default") == 0) *overload = '\0';
}

void usc_api_canonical(char *op, size_t size)
{
    const size_t space = sizeof tensor_space - 1, inner = sizeof "torch.functional." - 1;
    if (strncmp(op, "torch.functional.", inner) == 0)
        memmove(op + 6, op + inner, strlen(op + inner) + 1);
    if (strncmp(op, "torch.ops.", 10) == 0) read_operator(op);
    if (strncmp(op, tensor_space, space) != 0) return;
    for (int i = 0; i < N_OPERATORS; i++)
        if (strcmp(op + space, operators[i].dunder) == 0) {
            (void)snprintf(op + space, size - space, "%s", operators[i].method);
            return;
        }
}

/* PREFIX.name.NUMBER, of which `n` bytes count. */
static bool read_call(const char *text, size_t n, usc_api_name *out)
{
    const char *number = last_part(text, n);
    if (number == NULL || n >= sizeof out->call ||
        !is_number(number, (size_t)(text + n - number)))
        return false;
    memcpy(out->call, text, n);
    out->call[n] = '\0';
    for (int i = 0; i < N_SPACES; i++) {
        const size_t prefix = strlen(spaces[i].prefix);
        if (strncmp(text, spaces[i].prefix, prefix) != 0) continue;
        const int name = (int)(number - 1 - text) - (int)prefix;
        if (name <= 0 || snprintf(out->op, sizeof out->op, "%s%.*s", spaces[i].space,
                                  name, text + prefix) >= (int)sizeof out->op)
            return false;
        usc_api_canonical(out->op, sizeof out->op);
        return true;
    }
    return false;
}

/* The first generation wrote Functional*conv2d*0: its stars are dots. */
static bool undo_stars(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < size; n++)
        out[n] = text[n] == '*' ? '.' : text[n];
    out[n] = '\0';
    return text[n] == '\0';
}

bool usc_api_name_read(const char *text, usc_api_name *out)
{
    char name[USC_API_NAME];
    *out = (usc_api_name){.kind = USC_DUMPED_OTHER};
    if (strncmp(text, "Module.", 7) == 0 || strncmp(text, "Cell.", 5) == 0) {
        char path[USC_API_NAME], class_name[USC_API_NAME];
        if (usc_api_module(text, path, class_name, USC_API_NAME))
            out->kind = USC_DUMPED_MODULE;
        return true;
    }
    if (!undo_stars(text, name, sizeof name)) return false;
    size_t n = strlen(name);
    const char *last = last_part(name, n);
    if (last == NULL) return false;
    const size_t n_last = (size_t)(name + n - last);
    if (is_word(last, n_last, "debug")) return true;
    out->kind =
        is_word(last, n_last, "backward") ? USC_DUMPED_BACKWARD : USC_DUMPED_FORWARD;
    if (is_word(last, n_last, "forward") || out->kind == USC_DUMPED_BACKWARD)
        n -= n_last + 1;
    return read_call(name, n, out);
}

/* The operator of the language for a method that returns a new tensor. Of those that
 * write (add_), the method itself is what an optimizer calls; those that stand on the
 * right (1 / x) are not wrapped under the name that Python calls. */
static const char *operator_of(const char *method)
{
    const size_t n = strlen(method);
    if (method[0] == '_' || (n > 0 && method[n - 1] == '_')) return method;
    for (int i = 0; i < N_OPERATORS; i++)
        if (strcmp(operators[i].method, method) == 0)
            return strncmp(operators[i].dunder, "__r", 3) != 0 ? operators[i].dunder
                                                               : method;
    return method;
}

bool usc_api_name_write(const char *op, bool as_operators, char *out, size_t size)
{
    const size_t methods = sizeof tensor_space - 1;
    if (as_operators && strncmp(op, tensor_space, methods) == 0)
        return snprintf(out, size, "Tensor.%s", operator_of(op + methods)) < (int)size;
    for (int i = 0; i < N_SPACES; i++) {
        const size_t space = strlen(spaces[i].space);
        if (strncmp(op, spaces[i].space, space) == 0 && op[space] != '\0')
            return snprintf(out, size, "%s%s", spaces[i].prefix, op + space) < (int)size;
    }
    return false;
}

bool usc_api_dotted(const char *op, char *out, size_t size)
{
    const char *colon = strstr(op, "::");
    if (colon == NULL)
        return strchr(op, '.') != NULL && snprintf(out, size, "%s", op) < (int)size;
    return snprintf(out, size, "torch.ops.%.*s.%s%s", (int)(colon - op), op, colon + 2,
                    strchr(colon, '.') == NULL ? ".default" : "") < (int)size;
}

bool usc_api_module(const char *text, char *path, char *class_name, size_t size)
{
    size_t n = strlen(text);
    const char *number = last_part(text, n);
    if (number == NULL || strncmp(text, "Module.", 7) != 0 ||
        !is_number(number, (size_t)(text + n - number)))
        return false;
    n = (size_t)(number - 1 - text);
    const char *way = last_part(text, n);
    if (way == NULL) return false;
    const size_t n_way = (size_t)(text + n - way);
    if (!is_word(way, n_way, "forward") && !is_word(way, n_way, "backward")) return false;
    n = (size_t)(way - 1 - text);
    const char *name = last_part(text, n);
    const char *begin = text + 7;
    if (name == NULL || name < begin) return false;
    const int n_path = name > begin ? (int)(name - 1 - begin) : 0;
    return snprintf(path, size, "%.*s", n_path, begin) < (int)size &&
           snprintf(class_name, size, "%.*s", (int)(text + n - name), name) < (int)size;
}

/* The function's own name, without where it lies and without an overload. */
static void bare(const char *op, char *out, size_t size)
{
    const char *colon = strstr(op, "::");
    const char *dot = strrchr(op, '.');
    const char *name = colon != NULL ? colon + 2 : dot != NULL ? dot + 1 : op;
    (void)snprintf(out, size, "%.*s", (int)strcspn(name, "."), name);
}

static bool is_among(const char *name, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

bool usc_api_writes_first(const char *op)
{
    static const char *const dunders[] = {
        "__iadd__",      "__isub__", "__imul__",    "__idiv__",    "__itruediv__",
        "__ifloordiv__", "__imod__", "__ipow__",    "__imatmul__", "__iand__",
        "__ior__",       "__ixor__", "__ilshift__", "__irshift__", NULL};
    char name[USC_API_NAME];
    bare(op, name, sizeof name);
    const size_t n = strlen(name);
    if (n > 1 && name[n - 1] == '_' && name[n - 2] != '_') return true;
    return is_among(name, dunders);
}

bool usc_api_casts(const char *op)
{
    static const char *const casts[] = {"to",       "type",           "type_as", "half",
                                        "bfloat16", "npu_dtype_cast", NULL};
    char name[USC_API_NAME];
    bare(op, name, sizeof name);
    return is_among(name, casts);
}

/* torch's own list of what autocast runs in the narrower dtype (ATen/autocast_mode.h). */
bool usc_api_is_narrowed(const char *op)
{
    static const char *const narrowed[] = {"linear",
                                           "matmul",
                                           "__matmul__",
                                           "__rmatmul__",
                                           "mm",
                                           "bmm",
                                           "mv",
                                           "addmm",
                                           "addmv",
                                           "addbmm",
                                           "baddbmm",
                                           "chain_matmul",
                                           "multi_dot",
                                           "einsum",
                                           "conv1d",
                                           "conv2d",
                                           "conv3d",
                                           "conv_tbc",
                                           "conv_transpose1d",
                                           "conv_transpose2d",
                                           "conv_transpose3d",
                                           "scaled_dot_product_attention",
                                           NULL};
    char name[USC_API_NAME];
    bare(op, name, sizeof name);
    return is_among(name, narrowed);
}
