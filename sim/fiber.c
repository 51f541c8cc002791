// SPDX-License-Identifier: Apache-2.0
// Stacks that are changed without the system; see fiber.h.
#undef _FORTIFY_SOURCE /* its longjmp() takes another stack for a mistake */
#include "fiber.h"

#include <sys/mman.h>

#include "blocks.h"

static fiber fibers[USC_GRID_MAX_THREADS];

/* Stacks a power of two apart would share the same lines of every cache: each begins a few
 * lines lower than the one before. */
static size_t shift_of(unsigned i)
{
    return (size_t)(i % 64) * 192;
}

static bool get_stack(fiber *f, unsigned i)
{
    const size_t page = usc_sim_page_size();
    const size_t size = USC_GRID_STACK_SIZE + 64 * 192 + page;
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (at == MAP_FAILED) return false;
    if (mprotect(at, page, PROT_NONE) != 0) {
        (void)munmap(at, size);
        return false;
    }
    f->stack = at + page;
    f->stack_size = size - page - shift_of(i);
    return true;
}

fiber *usc_fiber_at(unsigned i, void (*body)(void))
{
    fiber *f = &fibers[i];
    if (f->stack == NULL && !get_stack(f, i)) return NULL;
    f->body = body;
    return f;
}

void usc_fiber_forget_all(void)
{
    for (unsigned i = 0; i < USC_GRID_MAX_THREADS; i++)
        fibers[i].made = false;
}

bool usc_fiber_overflows(const fiber *f, const void *address)
{
    const uintptr_t a = (uintptr_t)address, low = (uintptr_t)f->stack;
    return f->stack != NULL && a < low && low - a <= usc_sim_page_size();
}

static void make(const fiber *to, ucontext_t *context)
{
    (void)getcontext(context);
    context->uc_stack.ss_sp = to->stack;
    context->uc_stack.ss_size = to->stack_size;
    context->uc_link = NULL;
    makecontext(context, to->body, 0);
}

#if FIBERS_BY_SWAP
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

static void tell_left(fiber *from)
{
    from->seen = __tsan_get_current_fiber();
}

static void tell_made(fiber *to)
{
    if (to->seen != NULL) __tsan_destroy_fiber(to->seen);
    to->seen = __tsan_create_fiber(0);
}

static void tell_next(const fiber *to)
{
    __tsan_switch_to_fiber(to->seen, 0);
}
#else
static void tell_left(const fiber *from)
{
    (void)from;
}

static void tell_made(const fiber *to)
{
    (void)to;
}

static void tell_next(const fiber *to)
{
    (void)to;
}
#endif

static void get_ready(fiber *to)
{
    if (!to->made) {
        make(to, &to->place);
        tell_made(to);
    }
    to->made = true;
}

void usc_fiber_leave_for(fiber *to)
{
    get_ready(to);
    tell_next(to);
    (void)setcontext(&to->place);
}

void usc_fiber_switch(fiber *from, fiber *to)
{
    get_ready(to);
    from->made = true;
    tell_left(from);
    tell_next(to);
    (void)swapcontext(&from->place, &to->place);
}
#else
static void begin(fiber *to)
{
    ucontext_t context;
    to->made = true;
    make(to, &context);
    (void)setcontext(&context);
}

#if USC_HAS_PLACES
#define SAVE(place) USC_PLACE_SAVE(place)
#define TAKE_UP(place) USC_PLACE_GO(place)
#else
#define SAVE(place) setjmp(place)
#define TAKE_UP(place) longjmp(place, 1)
#endif

void usc_fiber_leave_for(fiber *to)
{
    if (to->made) TAKE_UP(to->place);
    begin(to);
}

/* Saving and going must not come to stand in one function. */
static USC_NOINLINE void leave_for(fiber *to)
{
    usc_fiber_leave_for(to);
}

USC_NOINLINE void usc_fiber_switch(fiber *from, fiber *to)
{
    from->made = true;
    if (SAVE(from->place) == 0) leave_for(to);
}
#endif
