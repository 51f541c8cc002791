// SPDX-License-Identifier: Apache-2.0
// What the examinations of `ulpscope doctor` add to its findings. Neighbours: cmd_doctor.c,
// which tells them; one file for each thing that is examined.
#include "doctor/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- findings ---- */

static doctor_finding *add(doctor *d, const char *check, bool wrong, const char *format,
                           va_list args)
{
    static doctor_finding beyond; /* where there is no memory for more */
    if (d->n == d->room) {
        const int room = d->room > 0 ? 2 * d->room : 64;
        doctor_finding *grown = realloc(d->finding, (size_t)room * sizeof *grown);
        if (grown != NULL) {
            d->finding = grown;
            d->room = room;
        }
    }
    doctor_finding *f = d->n < d->room ? &d->finding[d->n++] : &beyond;
    *f = (doctor_finding){.check = check, .wrong = wrong};
    (void)vsnprintf(f->text, sizeof f->text, format, args);
    return f;
}

void doctor_fine(doctor *d, const char *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)add(d, check, false, format, args);
    va_end(args);
}

doctor_finding *doctor_wrong(doctor *d, const char *check, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    doctor_finding *f = add(d, check, true, format, args);
    va_end(args);
    return f;
}

void doctor_mend(doctor_finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->mend, sizeof f->mend, format, args);
    va_end(args);
}
