// SPDX-License-Identifier: Apache-2.0
// A kernel's file as a compiler of C++ takes it, for the simulated device: launches become
// calls, dynamic shared memory a pointer, and what the device does not have is listed. The
// lines stay where they are, so that compilers speak of the file that was written. What the
// rest of the file means is in glue/grid.
#include <string.h>

#include "port/port_job.h"

enum { MOST_BRACES = 128 };

/* Where in the file a token stands. */
typedef struct depth {
    bool is_function[MOST_BRACES], on_device[MOST_BRACES]; /* by open brace */
    size_t n;
    bool device_next; /* the next function is the device's */
} depth;

static bool in_function(const depth *d)
{
    return d->n > 0 && d->n <= MOST_BRACES && d->is_function[d->n - 1];
}

static bool on_device(const depth *d)
{
    return d->n > 0 && d->n <= MOST_BRACES && d->on_device[d->n - 1];
}

/* A brace behind a parameter list, or in a function, is a function's. */
static void open_brace(const usc_port_job *job, depth *d, size_t i)
{
    static const char *const before[] = {")", "const", "noexcept", "override", "try"};
    bool function = in_function(d);
    for (size_t k = 0; k < sizeof before / sizeof before[0]; k++)
        function = function || (i > 0 && usc_port_at(job, i - 1, before[k]));
    if (d->n < MOST_BRACES) {
        d->on_device[d->n] = on_device(d) || (function && d->device_next);
        d->is_function[d->n] = function;
    }
    if (function) d->device_next = false;
    d->n++;
}

static void follow(const usc_port_job *job, depth *d, size_t i)
{
    if (usc_port_at(job, i, "{"))
        open_brace(job, d, i);
    else if (usc_port_at(job, i, "}") && d->n > 0)
        d->n--;
    else if (usc_port_at(job, i, ";") && !in_function(d))
        d->device_next = false;
    else if (usc_port_at(job, i, "__global__") || usc_port_at(job, i, "__device__"))
        d->device_next = true;
}

/* ---- launches */

static bool three(const usc_port_job *job, size_t i, const char *sign)
{
    return usc_port_at(job, i, sign) && usc_port_at(job, i + 1, sign) &&
           usc_port_at(job, i + 2, sign);
}

/* The place of what opens at `open` and closes at i, searched backwards; n_sig: none. What
 * stands in parentheses is no angle bracket of a template. */
static size_t opened_at(const usc_port_job *job, size_t i, const char *open,
                        const char *close)
{
    size_t n = 0, in_parens = 0;
    for (size_t at = i; i - at < 400; at--) {
        if (open[0] == '<' && usc_port_at(job, at, ")")) in_parens++;
        if (in_parens == 0 && usc_port_at(job, at, close)) n++;
        if (in_parens == 0 && usc_port_at(job, at, open) && --n == 0) return at;
        if (open[0] == '<' && usc_port_at(job, at, "(") && in_parens-- == 0) break;
        if (at == 0 || usc_port_at(job, at, ";")) break;
    }
    return job->n_sig;
}

/* The first token of the kernel's name that ends before i; n_sig: there is none. */
static size_t kernel_before(const usc_port_job *job, size_t i)
{
    if (i == 0) return job->n_sig;
    size_t at = i - 1;
    if (usc_port_at(job, at, ")")) return opened_at(job, at, "(", ")");
    if (usc_port_at(job, at, ">")) {
        at = opened_at(job, at, "<", ">");
        if (at == job->n_sig || at-- == 0) return job->n_sig;
    }
    if (!usc_port_kind_at(job, at, USC_PORT_NAME) || usc_port_at(job, at, "operator"))
        return job->n_sig;
    while (at >= 2 && usc_port_at(job, at - 1, "::") &&
           usc_port_kind_at(job, at - 2, USC_PORT_NAME))
        at -= 2;
    return at >= 1 && usc_port_at(job, at - 1, "::") ? at - 1 : at;
}

/* The place of >>> that ends the configuration; n_sig: there is none. */
static size_t configuration_end(const usc_port_job *job, size_t i)
{
    int n = 0;
    for (size_t at = i; at + 3 < job->n_sig && at - i < 2000; at++) {
        if (usc_port_at(job, at, "(") || usc_port_at(job, at, "{")) n++;
        if (usc_port_at(job, at, ")") || usc_port_at(job, at, "}")) n--;
        if (n == 0 && three(job, at, ">") && usc_port_at(job, at + 3, "(")) return at;
        if (n < 0 || usc_port_at(job, at, ";")) break;
    }
    return job->n_sig;
}

static void lower_launch(usc_port_job *job, size_t i, bool device)
{
    const size_t first = kernel_before(job, i), end = configuration_end(job, i + 3);
    if (first == job->n_sig || end == job->n_sig) return; /* no launch: a < < < b */
    if (device) {
        usc_port_leave(job, first, i - 1, "dynamic parallelism",
                       "launch this kernel from the host");
        return;
    }
    const size_t start = usc_port_sig(job, first)->start;
    usc_port_edit_put(job, start, start, "USC_GRID_LAUNCH((");
    usc_port_edit_put(job, usc_port_sig(job, i)->start, usc_port_sig(job, i + 2)->end,
                      "), ");
    usc_port_edit_put(job, usc_port_sig(job, end)->start, usc_port_sig(job, end + 2)->end,
                      ")");
}

/* ---- dynamic shared memory */

/* Behind a word with arguments in parentheses at i, like __align__(16). */
static size_t behind_call(const usc_port_job *job, size_t i)
{
    int n = 0;
    for (i++; i < job->n_sig; i++) {
        if (usc_port_at(job, i, "(")) n++;
        if (usc_port_at(job, i, ")") && --n == 0) return i + 1;
        if (n == 0) break;
    }
    return i;
}

/* `extern __shared__ T name[];`, which begins at i. */
static void lower_dynamic(usc_port_job *job, size_t i, bool function)
{
    const char *type = "";
    bool shared = false;
    size_t at = i + 1;
    while (at < job->n_sig && at - i < 40 && !usc_port_at(job, at + 1, "[")) {
        if (usc_port_at(job, at, ";") || usc_port_at(job, at, "{")) return;
        if (usc_port_at(job, at, "__align__") || usc_port_at(job, at, "alignas") ||
            usc_port_at(job, at, "__attribute__")) {
            at = behind_call(job, at);
            continue;
        }
        if (usc_port_at(job, at, "__shared__"))
            shared = true;
        else
            type = usc_port_format(job, "%s%s%s", type, type[0] != '\0' ? " " : "",
                                   usc_port_word(job, at));
        at++;
    }
    if (!shared || !usc_port_at(job, at + 2, "]") || !usc_port_at(job, at + 3, ";"))
        return;
    const char *name = usc_port_word(job, at);
    usc_port_edit_put(
        job, usc_port_sig(job, i)->start, usc_port_sig(job, at + 2)->end,
        usc_port_format(job,
                        function ? "%s *%s = static_cast<%s *>(::usc_grid_now.shared)"
                                 : "static const ::usc_grid_cxx::dynamic_shared<%s> %s",
                        type, name, type));
}

/* ---- kernels that are handed on as void * */

/* Behind a name with :: and arguments of a template at i; i: there is none. */
static size_t behind_name(const usc_port_job *job, size_t i)
{
    static const char *const no_names[] = {"const", "noexcept", "override", "final",
                                           "volatile"};
    if (!usc_port_kind_at(job, i, USC_PORT_NAME)) return i;
    for (size_t k = 0; k < sizeof no_names / sizeof no_names[0]; k++)
        if (usc_port_at(job, i, no_names[k])) return i;
    size_t at = i + 1;
    while (usc_port_at(job, at, "::") && usc_port_kind_at(job, at + 1, USC_PORT_NAME))
        at += 2;
    if (!usc_port_at(job, at, "<")) return at;
    for (size_t n = 0; at < job->n_sig && at - i < 200; at++) {
        if (usc_port_at(job, at, ";")) break;
        n += usc_port_at(job, at, "<");
        if (usc_port_at(job, at, ">") && --n == 0) return at + 1;
    }
    return i;
}

/* `(void *)name` of which nothing else is a part: what the name's type is goes with it. */
static void lower_as_void(usc_port_job *job, size_t i)
{
    static const char *const ends[] = {";", ",", ")", "}"};
    size_t at = i + 1;
    if (i > 0 && !usc_port_at(job, i - 1, "return") &&
        (usc_port_kind_at(job, i - 1, USC_PORT_NAME) || usc_port_at(job, i - 1, ")") ||
         usc_port_at(job, i - 1, "]") || usc_port_at(job, i - 1, ">")))
        return;
    at += usc_port_at(job, at, "const");
    if (!usc_port_at(job, at, "void") || !usc_port_at(job, at + 1, "*") ||
        !usc_port_at(job, at + 2, ")"))
        return;
    at += 3;
    at += usc_port_at(job, at, "&");
    const size_t end = behind_name(job, at);
    bool whole = false;
    for (size_t k = 0; end > at && k < sizeof ends / sizeof ends[0]; k++)
        whole |= usc_port_at(job, end, ends[k]);
    if (!whole) return;
    usc_port_edit_put(job, usc_port_sig(job, i)->start, usc_port_sig(job, at - 1)->end,
                      usc_port_at(job, at - 1, "&") ? "USC_GRID_AS_VOID(&"
                                                    : "USC_GRID_AS_VOID(");
    const size_t last = usc_port_sig(job, end - 1)->end;
    usc_port_edit_put(job, last, last, ")");
}

/* ---- the rest */

/* `#ifdef __CUDA_ARCH__` without another branch, with functions of the device in it: kernels
 * have no others to call, so the branch is taken. */
static void lower_arch(usc_port_job *job, size_t i)
{
    if (usc_port_only_for_devices(job, i)) usc_port_replace(job, i, "__SIMCC__");
}

/* `x.operator __half()`: torch's half types have that for compilers of CUDA alone; as a float
 * it is the same number. */
static void lower_half(usc_port_job *job, size_t i)
{
    if (i < 2 || !usc_port_at(job, i - 1, "operator") || !usc_port_at(job, i + 1, "(") ||
        !usc_port_at(job, i + 2, ")"))
        return;
    if (usc_port_at(job, i - 2, ".") || usc_port_at(job, i - 2, "->"))
        usc_port_replace(job, i, "float");
}

static void lower_word(usc_port_job *job, size_t i, const depth *d)
{
    if (usc_port_at(job, i, "__half") || usc_port_at(job, i, "__nv_bfloat16"))
        lower_half(job, i);
    const bool behind_paren = i > 0 && usc_port_at(job, i - 1, "(");
    if (usc_port_at(job, i, "extern")) lower_dynamic(job, i, in_function(d));
    if (usc_port_at(job, i, "__noinline__") && !behind_paren)
        usc_port_replace(job, i, "__attribute__((noinline))");
    if (usc_port_at(job, i, "__CUDACC__") || usc_port_at(job, i, "__NVCC__"))
        usc_port_replace(job, i, "__SIMCC__");
    if (usc_port_at(job, i, "__CUDA_ARCH__")) lower_arch(job, i);
    if (usc_port_at(job, i, "cudaLaunchCooperativeKernel"))
        usc_port_leave(job, i, i, "grid-wide synchronisation",
                       "end the kernel there and launch another");
}

void usc_port_lower(usc_port_job *job)
{
    depth d = {0};
    for (size_t i = 0; i < job->n_sig; i++) {
        const usc_port_token *t = usc_port_sig(job, i);
        if (!t->directive) follow(job, &d, i);
        if (t->kind == USC_PORT_NAME) {
            lower_word(job, i, &d);
        } else if (three(job, i, "<")) {
            lower_launch(job, i, on_device(&d));
            i += 2;
        } else if (usc_port_at(job, i, "(")) {
            lower_as_void(job, i);
        }
    }
    usc_port_cxx_refused(job);
}
