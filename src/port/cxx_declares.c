// SPDX-License-Identifier: Apache-2.0
// What declares a name in C++, and what is called around one. Neighbours: cxx_port.c, port_own.c.
#include "port/port_job.h"

/* Whether what stands at i ends a statement, or is a word that a type may follow. */
static bool before_type(usc_port_job *job, size_t i)
{
    static const char *const words[] = {
        ";", "}", "{", ">", "static", "inline", "template", "const", "extern", "virtual"};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (usc_port_at(job, i, words[k])) return true;
    return usc_port_sig(job, i)->directive;
}

/* Whether the > at i ends a type with which a statement begins, as in
 * `std::vector<at::Tensor> name(`; no comparison. */
static bool ends_type(usc_port_job *job, size_t i)
{
    static const char *const inside[] = {"::", ",", "*", "&"};
    size_t depth = 1, at = i;
    while (depth > 0) {
        if (at-- == 0 || i - at > 64) return false;
        bool may = usc_port_kind_at(job, at, USC_PORT_NAME) ||
                   usc_port_kind_at(job, at, USC_PORT_NUMBER);
        for (size_t k = 0; k < sizeof inside / sizeof inside[0]; k++)
            may |= usc_port_at(job, at, inside[k]);
        if (usc_port_at(job, at, ">"))
            depth++;
        else if (usc_port_at(job, at, "<"))
            depth--;
        else if (!may)
            return false;
    }
    if (at == 0 || !usc_port_kind_at(job, at - 1, USC_PORT_NAME)) return false;
    for (at--; at >= 2 && usc_port_at(job, at - 1, "::"); at -= 2)
        if (!usc_port_kind_at(job, at - 2, USC_PORT_NAME)) return false;
    return at == 0 || before_type(job, at - 1);
}

bool usc_port_declares(usc_port_job *job, size_t i)
{
    static const char *const not_types[] = {"return",   "else",      "case",
                                            "throw",    "new",       "delete",
                                            "typename", "co_return", "do"};
    if (usc_port_at(job, i - 1, "&") || usc_port_at(job, i - 1, "*"))
        return usc_port_kind_at(job, i - 2, USC_PORT_NAME) &&
               !usc_port_at(job, i + 1, "(");
    if (usc_port_at(job, i - 1, ">"))
        return usc_port_at(job, i + 1, "(") && ends_type(job, i - 1);
    if (!usc_port_kind_at(job, i - 1, USC_PORT_NAME)) return false;
    for (size_t k = 0; k < sizeof not_types / sizeof not_types[0]; k++)
        if (usc_port_at(job, i - 1, not_types[k])) return false;
    return true;
}

const char *usc_port_called_around(usc_port_job *job, size_t i, size_t most)
{
    int depth = 0;
    for (size_t at = i; at-- > 0 && i - at < most;) {
        if (usc_port_at(job, at, ")")) depth++;
        if (usc_port_at(job, at, ";") || usc_port_at(job, at, "{")) return NULL;
        if (!usc_port_at(job, at, "(") || depth-- > 0) continue;
        return usc_port_kind_at(job, at - 1, USC_PORT_NAME) ? usc_port_word(job, at - 1)
                                                            : NULL;
    }
    return NULL;
}
