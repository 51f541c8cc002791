// SPDX-License-Identifier: Apache-2.0
// Compiled into each extension: assertions of a kernel end the kernel, and, where its code
// was built to tell of each access (-fsanitize=thread, without that sanitizer's library),
// what that code calls. Hidden: each extension has its own.
#include <ulpscope_sim/grid.h>

#include <cstdio>
#include <cstdlib>

#define HIDDEN __attribute__((visibility("hidden"), no_sanitize("thread")))

// What assert() and torch's CUDA_KERNEL_ASSERT call.
extern "C" HIDDEN void __assert_fail(const char *what, const char *file, unsigned line,
                                     const char *function) noexcept
{
    const char *name = file;
    for (const char *c = file; *c != '\0'; c++)
        if (*c == '/') name = c + 1;
    if (usc_grid_inside())
        usc_grid_fail("the assertion %s fails at %s:%u", what, name, line);
    std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function,
                 what);
    std::abort();
}

#ifdef ULPSCOPE_SIM_RACES
#define USC_TSAN(name, size, write)                                                      \
    extern "C" HIDDEN void __tsan_##name(void *at)                                       \
    {                                                                                    \
        usc_grid_access(at, size, write, false, __builtin_return_address(0));            \
    }
#define USC_TSAN_SIZE(n)                                                                 \
    USC_TSAN(read##n, n, false)                                                          \
    USC_TSAN(write##n, n, true)                                                          \
    USC_TSAN(unaligned_read##n, n, false)                                                \
    USC_TSAN(unaligned_write##n, n, true)
USC_TSAN_SIZE(1)
USC_TSAN_SIZE(2)
USC_TSAN_SIZE(4)
USC_TSAN_SIZE(8)
USC_TSAN_SIZE(16)

extern "C" {
HIDDEN void __tsan_read_range(void *at, unsigned long size)
{
    usc_grid_access(at, size, false, false, __builtin_return_address(0));
}
HIDDEN void __tsan_write_range(void *at, unsigned long size)
{
    usc_grid_access(at, size, true, false, __builtin_return_address(0));
}
HIDDEN void __tsan_init()
{
}
HIDDEN void __tsan_func_entry(void *)
{
}
HIDDEN void __tsan_func_exit()
{
}
HIDDEN void __tsan_vptr_read(void **)
{
}
HIDDEN void __tsan_vptr_update(void **at, void *value)
{
    (void)at;
    (void)value;
}
HIDDEN void __tsan_atomic_thread_fence(int)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
HIDDEN void __tsan_atomic_signal_fence(int)
{
}
}

// What the host's own atomics have become: torch counts its references with them.
#define USC_ATOMIC_OP(T, n, name)                                                        \
    extern "C" HIDDEN T __tsan_atomic##n##_##name(volatile T *at, T v, int)              \
    {                                                                                    \
        return __atomic_##name(at, v, __ATOMIC_SEQ_CST);                                 \
    }
#define USC_ATOMIC_CAS(T, n, name)                                                       \
    extern "C" HIDDEN int __tsan_atomic##n##_##name(volatile T *at, T *expected, T v,    \
                                                    int, int)                            \
    {                                                                                    \
        return __atomic_compare_exchange_n(at, expected, v, false, __ATOMIC_SEQ_CST,     \
                                           __ATOMIC_SEQ_CST);                            \
    }
#define USC_ATOMIC(T, n)                                                                 \
    extern "C" HIDDEN T __tsan_atomic##n##_load(const volatile T *at, int)               \
    {                                                                                    \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                    \
    }                                                                                    \
    extern "C" HIDDEN void __tsan_atomic##n##_store(volatile T *at, T v, int)            \
    {                                                                                    \
        __atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                       \
    }                                                                                    \
    extern "C" HIDDEN T __tsan_atomic##n##_exchange(volatile T *at, T v, int)            \
    {                                                                                    \
        return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                             \
    }                                                                                    \
    USC_ATOMIC_OP(T, n, fetch_add)                                                       \
    USC_ATOMIC_OP(T, n, fetch_sub)                                                       \
    USC_ATOMIC_OP(T, n, fetch_and)                                                       \
    USC_ATOMIC_OP(T, n, fetch_or)                                                        \
    USC_ATOMIC_OP(T, n, fetch_xor)                                                       \
    USC_ATOMIC_OP(T, n, fetch_nand)                                                      \
    USC_ATOMIC_CAS(T, n, compare_exchange_strong)                                        \
    USC_ATOMIC_CAS(T, n, compare_exchange_weak)                                          \
    extern "C" HIDDEN T __tsan_atomic##n##_compare_exchange_val(volatile T *at, T old,   \
                                                                T v, int, int)           \
    {                                                                                    \
        (void)__atomic_compare_exchange_n(at, &old, v, false, __ATOMIC_SEQ_CST,          \
                                          __ATOMIC_SEQ_CST);                             \
        return old;                                                                      \
    }
USC_ATOMIC(unsigned char, 8)
USC_ATOMIC(unsigned short, 16)
USC_ATOMIC(unsigned int, 32)
USC_ATOMIC(unsigned long, 64)
#endif
