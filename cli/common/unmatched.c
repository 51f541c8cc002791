// SPDX-License-Identifier: Apache-2.0
// What of --ops matched nothing, of several traces or processes; see cli.h.
#include "cli.h"

#include <string.h>

void cli_keep_common(char *list, const char *other)
{
    char *to = list;
    for (const char *from = list; *from == '\'';) {
        const size_t n = strcspn(from + 1, "'") + 2, gap = from[n] == ',' ? 2 : 0;
        if (memmem(other, strlen(other), from, n) != NULL) {
            if (to > list) to = (char *)memcpy(to, ", ", 2) + 2;
            to = (char *)memmove(to, from, n) + n;
        }
        from += n + gap;
    }
    *to = '\0';
}
