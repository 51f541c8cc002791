// SPDX-License-Identifier: Apache-2.0
// A metric as MLflow keeps it, mlruns/EXPERIMENT/RUN/metrics/NAME: lines of milliseconds
// since 1970, the value, and the step. The file has no name for it but its own.
#include <string.h>

#include "loss/curve.h"

typedef struct entry {
    const char *value, *step;
    size_t value_size, step_size;
} entry;

static bool read_entry(const char *line, size_t n, entry *out)
{
    enum { DIGITS = 13 }; /* from 2001 to 2286 */
    const char *const end = line + n;
    double value;
    int64_t step;
    if (n < DIGITS + 4 || line[DIGITS] != ' ') return false;
    for (int i = 0; i < DIGITS; i++)
        if (line[i] < '0' || line[i] > '9') return false;
    out->value = line + DIGITS + 1;
    const char *space = memchr(out->value, ' ', (size_t)(end - out->value));
    if (space == NULL) return false;
    out->value_size = (size_t)(space - out->value);
    out->step = space + 1;
    out->step_size = (size_t)(end - out->step);
    return usc_curve_number(out->value, out->value_size, &value) &&
           usc_curve_step(out->step, out->step_size, &step);
}

bool usc_curve_is_metric(const char *data, size_t size)
{
    const char *at = data, *line;
    size_t n;
    entry e;
    return usc_curve_line(&at, data + size, &line, &n) && read_entry(line, n, &e);
}

static void each_entry(usc_curve_maker *m, const char *data, size_t size,
                       const char *offered)
{
    const char *at = data, *line;
    size_t n;
    entry e;
    while (m->status == USC_OK && usc_curve_line(&at, data + size, &line, &n)) {
        double value;
        int64_t step;
        if (!read_entry(line, n, &e)) continue;
        (void)usc_curve_number(e.value, e.value_size, &value);
        (void)usc_curve_step(e.step, e.step_size, &step);
        if (offered != NULL) {
            usc_curve_offer(m, offered, strlen(offered), value);
            continue;
        }
        usc_curve_printed(m, e.value, e.value_size);
        usc_curve_add(m, step, value);
    }
}

void usc_curve_metric(usc_curve_maker *m, const char *data, size_t size)
{
    const char *slash = strrchr(m->name, '/');
    m->form = "metric of MLflow";
    each_entry(m, data, size, slash != NULL ? slash + 1 : m->name);
    usc_curve_choose(m);
    if (m->key == NULL) return;
    usc_curve_axis(m, "step", 4);
    each_entry(m, data, size, NULL);
}
