// SPDX-License-Identifier: Apache-2.0
// How a dump names an API and how a trace does: the one place that knows both.
#ifndef USC_FOREIGN_API_NAMES_H
#define USC_FOREIGN_API_NAMES_H

#include <stddef.h>

#include <ulpscope/api.h>

enum { USC_API_NAME = 256 };

/** What a member of a dump is about. */
typedef enum usc_dumped {
    USC_DUMPED_FORWARD,  /* Functional.linear.0.forward */
    USC_DUMPED_BACKWARD, /* Functional.linear.0.backward */
    USC_DUMPED_MODULE,   /* Module.layers.0.Linear.forward.0 */
    USC_DUMPED_OTHER     /* gradients of parameters, single values */
} usc_dumped;

/* A member of an entry on a backward pass that exports write, other tools do not: "node"
 * as in theirs, or "arguments", gradients of those that ask for one. */
#define USC_GRADIENTS_OF "gradients_of"

typedef struct usc_api_name {
    usc_dumped kind;
    char call[USC_API_NAME]; /* without the direction: Functional.linear.0 */
    char op[USC_API_NAME];   /* of the trace: torch.nn.functional.linear */
} usc_api_name;

/** Takes the name of a member apart. False: it is no name that a dump has. */
bool usc_api_name_read(const char *text, usc_api_name *out);

/** Makes the name that a capture has of the name of a function, `size` bytes: what `a +
 * b` calls is torch.Tensor.add, not torch.Tensor.__add__. */
void usc_api_canonical(char *op, size_t size);

/** The dump's name without the number of the call, Functional.linear, of an operator of a
 * trace; `size` bytes at `out`. `as_operators`: torch.Tensor.add is Tensor.__add__.
 * False: dumps have no such name. */
bool usc_api_name_write(const char *op, bool as_operators, char *out, size_t size);

/** The name under which Python finds an operator of a trace, torch.ops.aten.mm.default,
 * for `size` bytes. False: it finds none. */
bool usc_api_dotted(const char *op, char *out, size_t size);

/** Path and class of the module in Module.layers.0.attn.Attention.forward.0, for `size`
 * bytes each. False: it names no module. */
bool usc_api_module(const char *text, char *path, char *class_name, size_t size);

/** Whether a call of that operator leaves its result in its first argument. */
bool usc_api_writes_first(const char *op);

/** Whether autocast rounds its inputs to the narrower dtype before it runs. */
bool usc_api_is_narrowed(const char *op);

/** Whether it gives another dtype because it was asked to, not because of autocast. */
bool usc_api_casts(const char *op);

#endif
