// SPDX-License-Identifier: Apache-2.0
// The last rounding of a narrow result that takes ties another way: what is off is off by
// one unit, and the right value lies halfway. Neighbours: cause_noise.c (formats).
#include "cause/cause_state.h"

enum { LEAST_TIES = 4 };

/* Ways to go from a tie, as bits. */
enum { AWAY = 1, TOWARD = 2, UP = 4, DOWN = 8, ODD = 16 };

/* The number on the other side of a tie that the truth is; NaN where it is none. */
static double other_side(const usc_cause *c, double t)
{
    const double right = rounded(c, t), other = 2 * t - right;
    const bool tie =
        isfinite(t) && isfinite(right) && right != t && rounded(c, other) == other;
    return tie ? other : (double)NAN;
}

static unsigned ways(double d, double t, double right)
{
    return (fabs(d) > fabs(t) ? AWAY : TOWARD) | (d > t ? UP : DOWN) |
           (d != right ? ODD : 0u);
}

bool usc_cause_ties(usc_cause *c, usc_cause_found *out)
{
    static const struct {
        unsigned way;
        const char *name;
    } names[] = {{AWAY, "away from zero instead of"},
                 {TOWARD, "towards zero instead of"},
                 {UP, "up instead of"},
                 {DOWN, "down instead of"},
                 {ODD, "to odd instead of"}};
    unsigned all = AWAY | TOWARD | UP | DOWN | ODD;
    int64_t n = 0;
    if (!c->floats || c->least_normal == 0)
        return false; /* the truth has room for none */
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const double right = rounded(c, t), other = other_side(c, t);
        const bool off = !same(d, right);
        if (off && d != other) return false; /* NaN is on no side of anything */
        if (!isnan(other)) all &= ways(d, t, right);
        n += off;
    }
    for (size_t k = 0; k < sizeof names / sizeof names[0] && n >= LEAST_TIES; k++)
        if (all & names[k].way)
            return usc_cause_say(
                out, &(clue){.code = USC_CAUSE_TIES, .s = names[k].name, .n = n});
    return n >= LEAST_TIES &&
           usc_cause_say(out,
                         &(clue){.code = USC_CAUSE_TIES, .s = "otherwise than", .n = n});
}
