// SPDX-License-Identifier: Apache-2.0
// The one dtype table and exact conversions to and from double.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_DTYPE_H
#define ULPSCOPE_DTYPE_H

#include <ulpscope/api.h>
#include <ulpscope/status.h>

USC_BEGIN_DECLS

/* enum name, torch's name, safetensors' name, bytes, kind; of floats the significand's
 * bits (with the hidden one), the exponents of the smallest normal and the largest
 * number, what the encodings beyond it mean, and that number. */
#define USC_DTYPE_LIST(X)                                                                \
    X(F64, "float64", "F64", 8, USC_KIND_FLOAT, 53, -1022, 1023, USC_TOP_INF,            \
      0x1.fffffffffffffp1023)                                                            \
    X(F32, "float32", "F32", 4, USC_KIND_FLOAT, 24, -126, 127, USC_TOP_INF,              \
      0x1.fffffep127)                                                                    \
    X(F16, "float16", "F16", 2, USC_KIND_FLOAT, 11, -14, 15, USC_TOP_INF, 65504.0)       \
    X(BF16, "bfloat16", "BF16", 2, USC_KIND_FLOAT, 8, -126, 127, USC_TOP_INF,            \
      0x1.fep127)                                                                        \
    X(I64, "int64", "I64", 8, USC_KIND_INT, 0, 0, 0, USC_TOP_NONE, 0.0)                  \
    X(I32, "int32", "I32", 4, USC_KIND_INT, 0, 0, 0, USC_TOP_NONE, 0.0)                  \
    X(I16, "int16", "I16", 2, USC_KIND_INT, 0, 0, 0, USC_TOP_NONE, 0.0)                  \
    X(I8, "int8", "I8", 1, USC_KIND_INT, 0, 0, 0, USC_TOP_NONE, 0.0)                     \
    X(U64, "uint64", "U64", 8, USC_KIND_UINT, 0, 0, 0, USC_TOP_NONE, 0.0)                \
    X(U32, "uint32", "U32", 4, USC_KIND_UINT, 0, 0, 0, USC_TOP_NONE, 0.0)                \
    X(U16, "uint16", "U16", 2, USC_KIND_UINT, 0, 0, 0, USC_TOP_NONE, 0.0)                \
    X(U8, "uint8", "U8", 1, USC_KIND_UINT, 0, 0, 0, USC_TOP_NONE, 0.0)                   \
    X(BOOL, "bool", "BOOL", 1, USC_KIND_BOOL, 0, 0, 0, USC_TOP_NONE, 0.0)                \
    X(F8_E5M2, "float8_e5m2", "F8_E5M2", 1, USC_KIND_FLOAT, 3, -14, 15, USC_TOP_INF,     \
      57344.0)                                                                           \
    X(F8_E4M3, "float8_e4m3fn", "F8_E4M3", 1, USC_KIND_FLOAT, 4, -6, 8, USC_TOP_NAN,     \
      448.0)                                                                             \
    X(F8_E5M2FNUZ, "float8_e5m2fnuz", "F8_E5M2FNUZ", 1, USC_KIND_FLOAT, 3, -15, 15,      \
      USC_TOP_NUMBER, 57344.0)                                                           \
    X(F8_E4M3FNUZ, "float8_e4m3fnuz", "F8_E4M3FNUZ", 1, USC_KIND_FLOAT, 4, -7, 7,        \
      USC_TOP_NUMBER, 240.0)

/* What the encodings with the highest exponent field mean. Only the first has Inf: a
 * number that overflows becomes NaN in the others. */
typedef enum usc_top {
    USC_TOP_NONE,   /* no float */
    USC_TOP_INF,    /* Inf and NaN, as in IEEE 754 */
    USC_TOP_NAN,    /* numbers, but all ones is NaN */
    USC_TOP_NUMBER, /* numbers; NaN is what would be -0, and there is no -0 */
} usc_top;

typedef enum usc_kind {
    USC_KIND_NONE, /* bytes that nobody here computes with (complex, quantized) */
    USC_KIND_FLOAT,
    USC_KIND_INT,
    USC_KIND_UINT,
    USC_KIND_BOOL,
} usc_kind;

typedef enum usc_dtype {
    USC_DTYPE_NONE, /* not in the table; such tensors are kept as bytes only */
#define USC_DTYPE_ENUM(id, name, st_name, size, kind, sig, emin, emax, top, most)        \
    USC_##id,
    USC_DTYPE_LIST(USC_DTYPE_ENUM)
#undef USC_DTYPE_ENUM
        USC_N_DTYPES
} usc_dtype;

typedef struct usc_dtype_info {
    const char *name;      /* as torch spells it, without "torch." */
    const char *file_name; /* as safetensors spells it */
    size_t size;           /* bytes of one element */
    usc_kind kind;
    int sig_bits; /* floats: bits of the significand, hidden bit included */
    int emin;     /* floats: smallest normal is 2^emin */
    int emax;     /* floats: largest finite is below 2^(emax+1) */
    usc_top top;
    double largest; /* floats: largest finite number; 0 for others */
} usc_dtype_info;

/**
 * The row of a dtype; the row of USC_DTYPE_NONE (name "unknown", size 1) for other
 * values.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const usc_dtype_info *usc_dtype_info_of(usc_dtype dtype);

/**
 * The dtype that torch calls `name` ("float32", "torch.float32") or safetensors does
 * ("F32"); USC_DTYPE_NONE where there is no such row, and for NULL.
 *
 * Threads: safe.
 */
USC_API usc_dtype usc_dtype_by_name(const char *name);

/**
 * Widens `n` elements to double: exact for floats, bool (0, 1) and integers up to 2^53;
 * larger 64-bit integers are rounded to nearest even.
 *
 * Numbers: NaN stays NaN (payload not promised), Inf, -0 and subnormals are kept.
 * Memory:  `src` and `dst` must not overlap; allocates nothing.
 * Threads: safe while nobody writes `src` or reads `dst`.
 */
USC_API void usc_dtype_widen(usc_dtype dtype, const void *src, double *dst, size_t n);

/**
 * Rounds `n` doubles once, to nearest with ties to even, into a float dtype; overflow
 * gives Inf (NaN where there is none), underflow subnormals and signed zero. Integers:
 * value rounded to nearest even and clamped to the range; NaN gives 0. Bool: 1 where the
 * value is not zero.
 *
 * Memory:  `src` and `dst` must not overlap; allocates nothing.
 * Threads: safe while nobody writes `src` or reads `dst`.
 */
USC_API void usc_dtype_narrow(usc_dtype dtype, const double *src, void *dst, size_t n);

USC_END_DECLS
#endif
