// SPDX-License-Identifier: Apache-2.0
// Who touched what, in kernels that are built to tell (glue/grid/grid_races.cc): two threads
// of a block in the same bytes of shared memory, one of them writing, and neither a barrier
// nor a __syncwarp between them; and what lies outside of all arguments. A clock for each
// lane says what it knows of the others of its warp.
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "grid_parts.h"

/* Of one byte: who wrote it last, and the last two threads that read it. */
typedef struct touch {
    int thread; /* its number + 1; 0: none */
    uint32_t clock;
    const void *code;
} touch;

typedef struct cell {
    uint32_t epoch;
    bool atomic; /* the write was */
    touch writer, reader[2];
} cell;

typedef struct range {
    const char *first, *end;
    cell *cells;
} range;

enum { MOST_RANGES = 4 };
static range ranges[MOST_RANGES];
static size_t n_ranges;
static bool known;     /* the ranges of this kernel */
static uint32_t epoch; /* of barriers */
static uint32_t clocks[USC_GRID_MAX_THREADS][USC_GRID_MAX_WARP];

static void add_range(const char *first, const char *end)
{
    if (n_ranges == MOST_RANGES || first >= end) return;
    const size_t size = (size_t)(end - first) * sizeof(cell);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) ranges[n_ranges++] = (range){first, end, at};
}

/* Static shared memory lies among the variables of the library that holds the kernel. */
static int add_variables(struct dl_phdr_info *info, size_t size, void *ctx)
{
    const uintptr_t code = *(const uintptr_t *)ctx;
    (void)size;
    bool mine = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        mine = mine ||
               (p->p_type == PT_LOAD && code - info->dlpi_addr - p->p_vaddr < p->p_memsz);
    }
    for (int i = 0; mine && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *first = (const char *)(uintptr_t)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_LOAD && (p->p_flags & PF_W) != 0)
            add_range(first, first + p->p_memsz);
    }
    return mine;
}

void usc_grid_race_begin(const usc_grid_kernel *kernel)
{
    (void)kernel;
    known = false;
}

static void find_ranges(void)
{
    const usc_grid_kernel *k = usc_grid.kernel;
    const char *shared = usc_grid_now.shared;
    known = true;
    add_range(shared, shared + k->shared_size);
    uintptr_t code = (uintptr_t)k->threads;
    (void)dl_iterate_phdr(add_variables, &code);
    memset(clocks, 0, sizeof clocks);
    for (unsigned i = 0; i < USC_GRID_MAX_THREADS; i++)
        clocks[i][i % k->warp_size] = 1;
}

void usc_grid_race_end(void)
{
    for (size_t i = 0; i < n_ranges; i++)
        (void)munmap(ranges[i].cells,
                     (size_t)(ranges[i].end - ranges[i].first) * sizeof(cell));
    n_ranges = 0;
}

void usc_grid_race_barrier(void)
{
    epoch++;
}

void usc_grid_race_sync(unsigned first, uint64_t lanes)
{
    uint32_t all[USC_GRID_MAX_WARP] = {0};
    if (!known) return;
    for (unsigned lane = 0; lane < USC_GRID_MAX_WARP; lane++)
        for (unsigned k = 0; (lanes >> lane & 1) != 0 && k < USC_GRID_MAX_WARP; k++)
            if (clocks[first + lane][k] > all[k]) all[k] = clocks[first + lane][k];
    for (unsigned lane = 0; lane < USC_GRID_MAX_WARP; lane++) {
        if ((lanes >> lane & 1) == 0) continue;
        memcpy(clocks[first + lane], all, sizeof all);
        clocks[first + lane][lane]++;
    }
}

/* ---- an access ------------------------------------------------------------------------ */

static bool ordered(const touch *t, unsigned me)
{
    const unsigned other = (unsigned)t->thread - 1, width = usc_grid.kernel->warp_size;
    if (t->thread == 0 || other == me) return true;
    return other / width == me / width && clocks[me][other % width] >= t->clock;
}

static usc_grid_dim dim_of(unsigned linear)
{
    const usc_grid_dim d = usc_grid_now.block_dim;
    return (usc_grid_dim){linear % d.x, linear / d.x % d.y, linear / d.x / d.y};
}

/* " at scale.cu:12", or nothing. */
static void at_line(const void *code, char *out, size_t size)
{
    char line[160];
    usc_grid_line_of(code, line, sizeof line);
    (void)snprintf(out, size, line[0] != '\0' ? " at %s" : "%s", line);
}

static void tell(const touch *other, bool other_writes, bool writes, const void *code,
                 size_t at, bool dynamic)
{
    char mine[176], theirs[176];
    const usc_grid_dim t = dim_of((unsigned)other->thread - 1);
    at_line(code, mine, sizeof mine);
    at_line(other->code, theirs, sizeof theirs);
    char place[48] = "";
    if (dynamic) (void)snprintf(place, sizeof place, " (byte %zu of the dynamic)", at);
    usc_grid_fail(
        "a race in shared memory%s: it %s%s what thread (%u,%u,%u) %s%s, and no "
        "barrier is between them",
        place, writes ? "writes" : "reads", mine, t.x, t.y, t.z,
        other_writes ? "writes" : "reads", theirs);
}

static void note(cell *c, unsigned me, bool write, bool atomic, const void *code)
{
    const touch now = {(int)me + 1, clocks[me][me % usc_grid.kernel->warp_size], code};
    if (write) {
        c->writer = now;
        c->atomic = atomic;
    } else if (c->reader[0].thread == now.thread || c->reader[0].thread == 0) {
        c->reader[0] = now;
    } else {
        c->reader[1] = c->reader[0];
        c->reader[0] = now;
    }
}

static void look(const range *r, const char *at, bool write, bool atomic,
                 const void *code)
{
    const unsigned me = usc_grid_linear();
    cell *c = &r->cells[at - r->first];
    const bool dynamic = r->first == usc_grid_now.shared;
    if (c->epoch != epoch) *c = (cell){.epoch = epoch};
    if (!ordered(&c->writer, me) && !(atomic && c->atomic))
        tell(&c->writer, true, write, code, (size_t)(at - r->first), dynamic);
    for (int i = 0; i < 2 && write; i++)
        if (!ordered(&c->reader[i], me))
            tell(&c->reader[i], false, true, code, (size_t)(at - r->first), dynamic);
    note(c, me, write, atomic, code);
}

/* Whether all of it lies in a block that the kernel was given. */
static bool is_given(const char *at, size_t size)
{
    const usc_grid_kernel *k = usc_grid.kernel;
    const char *first = NULL, *end = NULL;
    bool live = false;
    if (!usc_sim_extent(at, &first, &end, &live)) return false;
    for (size_t i = 0; i < k->n_arguments; i++) {
        const char *a = k->arguments[i].address;
        if (a >= first && a < end) return at >= first && at + size <= end;
    }
    return false;
}

void usc_grid_access(const void *address, size_t size, bool write, bool atomic,
                     const void *code)
{
    const char *at = address;
    const char *state =
        (const char *)&usc_grid_now; /* where programs keep a copy of it */
    if (!usc_grid_inside() || (at >= state && at < state + sizeof usc_grid_now)) return;
    if (usc_sim_device_of(address) >= 0) {
        char where[160], line[176];
        if (is_given(at, size)) return;
        usc_grid_where(address, where, sizeof where);
        at_line(code, line, sizeof line);
        usc_grid_fail("%s %s%s", write ? "writes" : "reads", where, line);
    }
    if (!known) find_ranges();
    for (size_t i = 0; i < n_ranges; i++) {
        if (at < ranges[i].first || at >= ranges[i].end) continue;
        for (size_t b = 0; b < size && at + b < ranges[i].end; b++)
            look(&ranges[i], at + b, write, atomic, code);
        return;
    }
}
