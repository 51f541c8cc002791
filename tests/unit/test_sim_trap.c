// SPDX-License-Identifier: Apache-2.0
// What a signal tells of the instruction that it stopped: what the processor left, and an
// instruction of A64 by its word, as an assembler made it.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../sim/trap.c" /* which the library does not export */

static const uint32_t stores[] = {
    0xb9000020, /* str w0, [x1] */
    0x39000c20, /* strb w0, [x1, #3] */
    0xf81f8020, /* stur x0, [x1, #-8] */
    0xf8008420, /* str x0, [x1], #8 */
    0xf8226820, /* str x0, [x1, x2] */
    0xf8000820, /* sttr x0, [x1] */
    0xa9bf07e0, /* stp x0, x1, [sp, #-16]! */
    0x3d800020, /* str q0, [x1] */
    0xfd000420, /* str d0, [x1, #8] */
    0xad000400, /* stp q0, q1, [x0] */
    0x4c007800, /* st1 {v0.4s}, [x0] */
    0x0d009000, /* st1 {v0.s}[1], [x0] */
    0xc8007c41, /* stxr w0, x1, [x2] */
    0xc8200c41, /* stxp w0, x1, x3, [x2] */
    0xc89ffc41, /* stlr x1, [x2] */
    0xd9008041, /* stlur x1, [x2, #8] */
    0xc8a07c41, /* cas x0, x1, [x2] */
    0x88e07c41, /* casa w0, w1, [x2] */
    0x48207c82, /* casp x0, x1, x2, x3, [x4] */
    0xf8200041, /* ldadd x0, x1, [x2] */
    0xf8208041, /* swp x0, x1, [x2] */
    0xd50b7420, /* dc zva, x0 */
};

static const uint32_t loads[] = {
    0xb9400020, /* ldr w0, [x1] */
    0x39800c20, /* ldrsb x0, [x1, #3] */
    0xb9800020, /* ldrsw x0, [x1] */
    0xf85f8020, /* ldur x0, [x1, #-8] */
    0xf8408420, /* ldr x0, [x1], #8 */
    0xf8626820, /* ldr x0, [x1, x2] */
    0xf8400820, /* ldtr x0, [x1] */
    0xa8c107e0, /* ldp x0, x1, [sp], #16 */
    0x69400440, /* ldpsw x0, x1, [x2] */
    0x3dc00020, /* ldr q0, [x1] */
    0xfd400420, /* ldr d0, [x1, #8] */
    0xad400400, /* ldp q0, q1, [x0] */
    0x4c407800, /* ld1 {v0.4s}, [x0] */
    0x4d40c800, /* ld1r {v0.4s}, [x0] */
    0x4cdf7800, /* ld1 {v0.4s}, [x0], #16 */
    0xc85f7c41, /* ldxr x1, [x2] */
    0xc87f0c41, /* ldxp x1, x3, [x2] */
    0xc8dffc41, /* ldar x1, [x2] */
    0xd9408041, /* ldapur x1, [x2, #8] */
    0xf8bfc041, /* ldapr x1, [x2] */
    0x58000040, /* ldr x0, its literal */
};

static const uint32_t others[] = {
    0x8b020020, /* add x0, x1, x2 */
    0xd503201f, /* nop */
    0x1ac20c20, /* sdiv w0, w1, w2 */
    0x00000000, /* udf #0 */
};

static void are(const uint32_t *words, size_t n, usc_trap_access wanted)
{
    for (size_t i = 0; i < n; i++)
        if (usc_trap_of_a64(words[i]) != wanted) fail_msg("0x%08x", words[i]);
}

static void test_instructions_of_a64(void **state)
{
    (void)state;
    are(stores, sizeof stores / sizeof *stores, USC_TRAP_WRITES);
    are(loads, sizeof loads / sizeof *loads, USC_TRAP_READS);
    are(others, sizeof others / sizeof *others, USC_TRAP_TOUCHES);
}

static ucontext_t left; /* by the system, for the handler */

#if defined(__x86_64__)

static void test_what_the_processor_left(void **state)
{
    (void)state;
    left.uc_mcontext.gregs[REG_RIP] = 0x1234;
    assert_ptr_equal(usc_trap_code(&left), (void *)0x1234);
    left.uc_mcontext.gregs[REG_ERR] = 4; /* of a user, to read */
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_READS);
    left.uc_mcontext.gregs[REG_ERR] = 6;
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_WRITES);
}

#elif defined(__aarch64__)

static void record(size_t at, uint32_t magic, uint32_t size, uint64_t esr)
{
    const struct esr_context r = {{magic, size}, esr};
    memcpy((char *)left.uc_mcontext.__reserved + at, &r, sizeof r);
}

static void test_what_the_processor_left(void **state)
{
    static const uint32_t store = 0xb9000020, load = 0xb9400020;
    const uint64_t below = (uint64_t)ABORT_BELOW << 26, code = (uint64_t)0x20 << 26;
    (void)state;
    left.uc_mcontext.pc = (uintptr_t)&store;
    assert_ptr_equal(usc_trap_code(&left), &store);
    record(0, FPSIMD_MAGIC, sizeof(struct fpsimd_context), 0);
    record(sizeof(struct fpsimd_context), ESR_MAGIC, 16, below | 0x46);
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_WRITES);
    record(sizeof(struct fpsimd_context), ESR_MAGIC, 16, below | 6);
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_READS); /* goes before */
    record(sizeof(struct fpsimd_context), ESR_MAGIC, 16, code | 0x46);
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_READS);
    record(sizeof(struct fpsimd_context), 0, 0, 0); /* no record: by the word */
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_WRITES);
    assert_int_equal(usc_trap_access_of(&left, &store), USC_TRAP_READS);
    left.uc_mcontext.pc = (uintptr_t)&load;
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_READS);
    left.uc_mcontext.pc = 1; /* no instruction, and nothing that can be read */
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_READS);
}

#else

static void test_what_the_processor_left(void **state)
{
    (void)state;
    assert_int_equal(usc_trap_access_of(&left, NULL), USC_TRAP_TOUCHES);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_processor_left),
        cmocka_unit_test(test_instructions_of_a64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
