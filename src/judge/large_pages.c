// SPDX-License-Identifier: Apache-2.0
// Large pages for memory that nobody has touched.
#include <ulpscope/x/rounding_runs.h>

#include <stdint.h>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

void usc_large_pages(void *data, size_t size)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const long page = sysconf(_SC_PAGESIZE);
    if (page <= 0) return;
    const uintptr_t first = (uintptr_t)data, part = (uintptr_t)page;
    const uintptr_t begin = (first + part - 1) / part * part;
    const uintptr_t end = (first + size) / part * part;
    if (begin < end)
        (void)madvise((unsigned char *)data + (begin - first), end - begin,
                      MADV_HUGEPAGE);
#else
    (void)data, (void)size;
#endif
}
