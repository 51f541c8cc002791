// SPDX-License-Identifier: Apache-2.0
// What the table and the source say of a dotted name. Neighbours: python_port.c,
// python_import.c, port_own.c.
#include <string.h>
#include <unistd.h>

#include "port/port_own.h"

size_t usc_port_words_of(const char *name)
{
    size_t n = 1;
    for (; *name != '\0'; name++)
        n += *name == '.';
    return n;
}

/* Length of the first `words` words. */
static size_t length_of(const char *name, size_t words)
{
    const char *at = name;
    for (; *at != '\0'; at++)
        if (*at == '.' && --words == 0) break;
    return (size_t)(at - name);
}

const char *usc_port_dotted(usc_port_job *job, usc_port_row_kind kind, const char *name,
                            size_t *matched, bool *left)
{
    *left = false;
    for (size_t words = usc_port_words_of(name); words > 0; words--) {
        const size_t n = length_of(name, words);
        bool known = false;
        const char *to = usc_port_to(job, kind, name, n, &known);
        if (!known) continue;
        const size_t size = to != NULL ? strlen(to) : 0;
        const bool alone = size > 0 && to[size - 1] == '!';
        *matched = words;
        *left = to == NULL || (alone && name[n] != '\0');
        if (*left) return NULL;
        return usc_port_format(job, "%.*s%s", (int)(size - alone), to, name + n);
    }
    *matched = 0;
    return NULL;
}

bool usc_port_is_here(usc_port_job *job, const char *module)
{
    const int n = (int)strcspn(module, ".");
    if (job->root == NULL) return false;
    return access(usc_port_format(job, "%s/%.*s", job->root, n, module), F_OK) == 0 ||
           access(usc_port_format(job, "%s/%.*s.py", job->root, n, module), F_OK) == 0;
}
