// SPDX-License-Identifier: Apache-2.0
// Lanes of a warp that meet: shuffles, votes, __syncwarp. A meeting is over once all lanes
// of its mask have come; where some of them have ended, or no mask was given, once nobody
// else can go on.
#include <string.h>

#include "grid_parts.h"

static unsigned width(void)
{
    return usc_grid.kernel->warp_size;
}

static uint64_t bit(unsigned lane)
{
    return (uint64_t)1 << lane;
}

unsigned usc_grid_lane(void)
{
    return usc_grid_linear() % width();
}

void usc_grid_warps_begin(void)
{
    for (size_t i = 0; i < sizeof usc_grid.warps / sizeof usc_grid.warps[0]; i++)
        usc_grid.warps[i].n_open = 0;
}

/* ---- what they come to ----------------------------------------------------------- */

static uint64_t fold(usc_grid_meeting what, uint64_t a, uint64_t b)
{
    switch (what) {
    case USC_GRID_ADD:
        return a + b;
    case USC_GRID_MIN:
        return (int64_t)a < (int64_t)b ? a : b;
    case USC_GRID_MAX:
        return (int64_t)a > (int64_t)b ? a : b;
    case USC_GRID_UMIN:
        return a < b ? a : b;
    case USC_GRID_UMAX:
        return a > b ? a : b;
    case USC_GRID_BITS_AND:
        return a & b;
    case USC_GRID_BITS_OR:
        return a | b;
    case USC_GRID_BITS_XOR:
        return a ^ b;
    case USC_GRID_SYNC:
    case USC_GRID_WHO:
    case USC_GRID_TAKE:
    case USC_GRID_BALLOT:
    case USC_GRID_MATCH:
        break;
    }
    return a;
}

/* What is the same for all lanes. */
static uint64_t common_result(const warp *w, const meeting *m)
{
    uint64_t result = 0;
    bool first = true;
    if (m->what == USC_GRID_SYNC || m->what == USC_GRID_WHO) return m->came;
    if (m->what == USC_GRID_TAKE || m->what == USC_GRID_MATCH) return 0;
    for (uint64_t left = m->came; left != 0; left &= left - 1) {
        const unsigned lane = (unsigned)USC_CTZ64(left);
        if (m->what == USC_GRID_BALLOT)
            result |= w->value[lane] != 0 ? bit(lane) : 0;
        else
            result = first ? w->value[lane] : fold(m->what, result, w->value[lane]);
        first = false;
    }
    return result;
}

static uint64_t result_of(const warp *w, const meeting *m, unsigned lane, uint64_t common)
{
    if (m->what == USC_GRID_TAKE) {
        const unsigned from = w->from[lane];
        return from < USC_GRID_MAX_WARP && (m->came & bit(from)) != 0 ? w->value[from]
                                                                      : ~(uint64_t)0;
    }
    if (m->what != USC_GRID_MATCH) return common;
    uint64_t same = 0;
    for (uint64_t left = m->came; left != 0; left &= left - 1) {
        const unsigned other = (unsigned)USC_CTZ64(left);
        if (w->value[other] == w->value[lane]) same |= bit(other);
    }
    return same;
}

/* All but lane `self`, who goes on at once, are ready from now on; its result. */
static uint64_t complete(unsigned i_warp, meeting *m, unsigned self)
{
    warp *w = &usc_grid.warps[i_warp];
    const unsigned first = i_warp * width();
    const uint64_t common = common_result(w, m);
    uint64_t own = 0;
    if (m->what == USC_GRID_SYNC) usc_grid_race_sync(first, m->came);
    for (uint64_t left = m->came; left != 0; left &= left - 1) {
        const unsigned lane = (unsigned)USC_CTZ64(left);
        const uint64_t result = result_of(w, m, lane, common);
        if (lane == self) {
            own = result;
        } else {
            fiber *f = usc_grid.waiting[first + lane];
            f->result = result;
            usc_grid_ready(f);
        }
    }
    *m = w->open[--w->n_open];
    return own;
}

/* ---- who comes ---------------------------------------------------------------------- */

/* The lanes of a warp that the block has. */
static uint64_t lanes_of(unsigned i_warp)
{
    const unsigned n = usc_grid.n_threads - i_warp * width();
    return n >= width() ? ~(uint64_t)0 >> (64 - width()) : bit(n) - 1;
}

static meeting *join(warp *w, usc_grid_meeting what, uint64_t mask, unsigned lane)
{
    meeting *m = w->open;
    while (m < w->open + w->n_open && (m->what != what || m->mask != mask))
        m++;
    if (m == w->open + w->n_open) {
        w->n_open++;
        *m = (meeting){.what = what, .mask = mask};
    }
    m->came |= bit(lane);
    return m;
}

uint64_t usc_grid_meet(usc_grid_meeting what, uint64_t mask, uint64_t value,
                       unsigned from, const char *place)
{
    const unsigned linear = usc_grid_linear(), i_warp = linear / width();
    const unsigned lane = linear - i_warp * width();
    if (mask != 0 && (mask & bit(lane)) == 0)
        usc_grid_fail("lane %u calls what the mask 0x%llx leaves it out of, at %s", lane,
                      (unsigned long long)mask, place);
    warp *w = &usc_grid.warps[i_warp];
    w->value[lane] = value;
    w->from[lane] = from;
    meeting *m = join(w, what, mask, lane);
    const uint64_t wanted = (mask != 0 ? mask : ~(uint64_t)0) & lanes_of(i_warp);
    if ((m->came & wanted) == wanted) return complete(i_warp, m, lane);
    const fiber *self = usc_grid_will_wait(place);
    usc_grid_wait();
    return self->result;
}

/* ---- nobody can go on --------------------------------------------------------------- */

/* The lanes that have not ended: all of them wait. */
static uint64_t live_lanes(unsigned i_warp)
{
    uint64_t live = 0;
    const unsigned first = i_warp * width();
    for (unsigned lane = 0; lane < width() && first + lane < usc_grid.n_threads; lane++)
        if (usc_grid.waiting[first + lane] != NULL) live |= bit(lane);
    return live;
}

static bool settle(bool without_mask)
{
    bool any = false;
    for (unsigned i = 0; i * width() < usc_grid.n_threads; i++) {
        warp *w = &usc_grid.warps[i];
        const uint64_t live = w->n_open > 0 ? live_lanes(i) : 0;
        for (unsigned k = w->n_open; k-- > 0;) {
            meeting *m = &w->open[k];
            const bool over =
                m->mask == 0 ? without_mask : (m->came & m->mask) == (live & m->mask);
            if (!over) continue;
            (void)complete(i, m, USC_GRID_MAX_WARP);
            any = true;
        }
    }
    return any;
}

bool usc_grid_warps_settle(void)
{
    return settle(false) || settle(true);
}
