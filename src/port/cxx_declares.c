// SPDX-License-Identifier: Apache-2.0
// What declares a name in C++. Neighbours: cxx_port.c, port_own.c.
#include "port/port_job.h"

bool usc_port_declares(usc_port_job *job, size_t i)
{
    static const char *const not_types[] = {"return",   "else",      "case",
                                            "throw",    "new",       "delete",
                                            "typename", "co_return", "do"};
    if (usc_port_at(job, i - 1, "&") || usc_port_at(job, i - 1, "*"))
        return usc_port_kind_at(job, i - 2, USC_PORT_NAME) &&
               !usc_port_at(job, i + 1, "(");
    if (!usc_port_kind_at(job, i - 1, USC_PORT_NAME)) return false;
    for (size_t k = 0; k < sizeof not_types / sizeof not_types[0]; k++)
        if (usc_port_at(job, i - 1, not_types[k])) return false;
    return true;
}
