// SPDX-License-Identifier: Apache-2.0
// The only place for what C11 does not have: compiler built-ins behind plain names.
// Neighbour: ulpscope/api.h holds the attributes that public headers need.
#ifndef USC_BASE_COMPILER_H
#define USC_BASE_COMPILER_H

#if !defined(__GNUC__)
#error "gcc or clang is needed: overflow-checked arithmetic and cpu detection are theirs"
#endif

/* True where the exact result does not fit `*out`, which then holds it wrapped. */
#define USC_ADD_OVERFLOWS(a, b, out) __builtin_add_overflow(a, b, out)
#define USC_MUL_OVERFLOWS(a, b, out) __builtin_mul_overflow(a, b, out)

/* Leading zero bits; x is not 0. */
#define USC_CLZ64(x) __builtin_clzll(x)

/* Trailing zero bits; x is not 0. */
#define USC_CTZ64(x) __builtin_ctzll(x)

/* Keeps a loop apart from the code around it, e.g. from a change of the float modes. */
#define USC_NOINLINE __attribute__((noinline))

/* For parts of a loop that become constants only once they stand in it. */
#define USC_ALWAYS_INLINE inline __attribute__((always_inline))

/* In front of a loop of a few constant turns over vectors: it becomes straight code. */
#if defined(__clang__)
#define USC_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define USC_UNROLLED _Pragma("GCC unroll 8")
#endif

/* Behind a type: a vector of it, of so many bytes. And each element in another type. */
#define USC_VECTOR(bytes) __attribute__((vector_size(bytes)))
#define USC_CONVERT_VECTOR(v, type) __builtin_convertvector(v, type)

/* Asks for memory that is read soon; any address will do. */
#define USC_PREFETCH(at) __builtin_prefetch(at)

/* Saves a place in the code, stack included, and goes there: a few instructions. A function
 * that saves must not go, nor be brought into one that does. */
#if !defined(__clang__) && defined(__x86_64__)
#define USC_HAS_PLACES 1
typedef void *usc_place[5];
#define USC_PLACE_SAVE(place) __builtin_setjmp(place)
#define USC_PLACE_GO(place) __builtin_longjmp(place, 1)
#else
#define USC_HAS_PLACES 0
#endif

/* The first word of what the system saves of an x86 processor's registers (XCR0), of which
 * CPUID must have told that it can be asked for. */
#if defined(__x86_64__) || defined(__i386__)
#define USC_XGETBV(low)                                                                  \
    do {                                                                                 \
        unsigned high_;                                                                  \
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high_) : "c"(0));                    \
    } while (0)
#endif

#endif
