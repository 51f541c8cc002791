// SPDX-License-Identifier: Apache-2.0
// A page with a picture of each comparison: SVG, nothing from elsewhere.
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"
#include "loss/loss_say.h"

enum { WIDTH = 900, HEIGHT = 260, LEFT = 70, COLUMNS = 800, LINES = 4 };

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>ulpscope "
    "loss</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em "
    "auto;max-width:60em;color:#222}svg{display:block;margin:.5em 0}svg "
    "text{font-size:12px;fill:#666}.a{stroke:#2563a8}.b{stroke:#c23b22}"
    ".a,.b{fill:none;stroke-width:1.5}.band{fill:#2563a8;opacity:.15}"
    ".axis{stroke:#ccc}.first{stroke:#c23b22;stroke-dasharray:3 3}"
    ".differ{color:#c23b22}</style>\n<h1>Loss curves</h1>\n";

typedef struct picture {
    const usc_loss_result *r;
    double low, high;
    bool difference; /* of it, not of the curves */
} picture;

static double x_of(const picture *p, int64_t i)
{
    const double first = (double)p->r->steps[0], last = (double)p->r->steps[p->r->n - 1];
    return LEFT + ((double)p->r->steps[i] - first) / (last - first) * COLUMNS;
}

static double y_of(const picture *p, double value)
{
    return 10 + (p->high - value) / (p->high - p->low) * (HEIGHT - 40);
}

static double middle_of(const picture *p, int64_t i)
{
    return p->difference ? 0 : p->r->a[i];
}

static double value_of(const picture *p, int64_t i, bool of_b)
{
    return (of_b ? p->r->b[i] : p->r->a[i]) - (p->difference ? p->r->a[i] : 0);
}

static void find_range(picture *p)
{
    p->low = HUGE_VAL;
    p->high = -HUGE_VAL;
    for (int64_t i = 0; i < p->r->n; i++) {
        const double band = p->difference ? p->r->band[i] : 0;
        p->low = fmin(p->low, fmin(middle_of(p, i) - band, value_of(p, i, true)));
        p->high = fmax(p->high, fmax(middle_of(p, i) + band, value_of(p, i, true)));
    }
    if (!(p->high > p->low)) p->high = p->low + 1;
}

/* Of long curves the smallest and the largest value of each column. */
static void put_curve(usc_line *l, const picture *p, bool of_b)
{
    const int64_t n = p->r->n, columns = n < COLUMNS ? n : COLUMNS;
    usc_line_add(l, "<polyline class=\"%s\" points=\"", of_b ? "b" : "a");
    for (int64_t k = 0; k < columns; k++) {
        int64_t low = k * n / columns, high = low;
        for (int64_t i = low; i < (k + 1) * n / columns; i++) {
            if (value_of(p, i, of_b) < value_of(p, low, of_b)) low = i;
            if (value_of(p, i, of_b) > value_of(p, high, of_b)) high = i;
        }
        const int64_t first = low < high ? low : high, second = low < high ? high : low;
        usc_line_add(l, "%.1f,%.1f ", x_of(p, first), y_of(p, value_of(p, first, of_b)));
        if (second != first)
            usc_line_add(l, "%.1f,%.1f ", x_of(p, second),
                         y_of(p, value_of(p, second, of_b)));
    }
    usc_line_text(l, "\"/>\n");
}

static double clipped(const picture *p, double value)
{
    return fmin(fmax(value, p->low), p->high);
}

static void put_band(usc_line *l, const picture *p)
{
    const int64_t n = p->r->n, columns = n < 200 ? n : 200;
    usc_line_text(l, "<polygon class=\"band\" points=\"");
    for (int64_t k = 0; k < 2 * columns; k++) {
        const int64_t column = k < columns ? k : 2 * columns - 1 - k;
        const int64_t i = columns > 1 ? column * (n - 1) / (columns - 1) : 0;
        const double band = k < columns ? p->r->band[i] : -p->r->band[i];
        usc_line_add(l, "%.1f,%.1f ", x_of(p, i),
                     y_of(p, clipped(p, middle_of(p, i) + band)));
    }
    usc_line_text(l, "\"/>\n");
}

static void put_axes(usc_line *l, const picture *p)
{
    for (int k = 0; k <= LINES; k++) {
        const double value = p->low + (p->high - p->low) * k / LINES, y = y_of(p, value);
        usc_line_add(l,
                     "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%.4g</text>\n",
                     LEFT, y, LEFT + COLUMNS, LEFT - 6, y + 4, value);
    }
    const int64_t n = p->r->n;
    usc_line_add(l,
                 "<text x=\"%d\" y=\"%d\">step %lld</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">step %lld</text>\n",
                 LEFT, HEIGHT - 8, (long long)p->r->steps[0], LEFT + COLUMNS, HEIGHT - 8,
                 (long long)p->r->steps[n - 1]);
}

static void put_first(usc_line *l, const picture *p)
{
    for (int64_t i = 0; i < p->r->n; i++)
        if (p->r->steps[i] == p->r->first.step)
            usc_line_add(l, "<path class=\"first\" d=\"M%.1f 10V%d\"/>\n", x_of(p, i),
                         HEIGHT - 30);
}

static void put_picture(usc_line *l, const usc_loss_result *r, bool difference)
{
    picture p = {.r = r, .difference = difference};
    find_range(&p);
    usc_line_add(l, "<svg width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n",
                 WIDTH, HEIGHT, difference ? "their difference" : "the curves");
    put_axes(l, &p);
    put_band(l, &p);
    if (!difference) put_curve(l, &p, false);
    put_curve(l, &p, true);
    put_first(l, &p);
    usc_line_text(l, "</svg>\n");
}

static void put_result(usc_line *l, const usc_curve *a, const usc_curve *b,
                       const usc_loss_result *r)
{
    char words[96];
    usc_line_text(l, "<h2><span style=\"color:#2563a8\">");
    usc_line_html(l, a->name);
    usc_line_text(l, "</span> and <span style=\"color:#c23b22\">");
    usc_line_html(l, b->name);
    usc_line_add(l, "</span></h2>\n<p%s>", r->differ ? " class=\"differ\"" : "");
    usc_line_html(l, r->sentence);
    usc_line_add(l, "</p>\n<p>Noise (shaded): %s. Area between the curves: %.4g.</p>\n",
                 usc_loss_noise_words(r, words), r->area);
    if (r->n < 2) return;
    put_picture(l, r, false);
    usc_line_text(l, "<p>The difference, and by how much noise lets them differ:</p>\n");
    put_picture(l, r, true);
}

usc_status usc_loss_html(const usc_curve *a, const usc_curve *const *b,
                         const usc_loss_result *const *results, size_t n, FILE *to,
                         usc_error *err)
{
    usc_line l = {0};
    usc_status st = USC_OK;
    usc_line_text(&l, head);
    for (size_t i = 0; i < n; i++)
        put_result(&l, a, b[i], results[i]);
    usc_line_text(&l, "</html>\n");
    if (l.failed)
        st = usc_no_memory("loss", err);
    else if (fwrite(l.text, 1, l.n, to) != l.n)
        st = usc_error_set(err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
    usc_line_free(&l);
    return st;
}
