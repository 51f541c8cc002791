// SPDX-License-Identifier: Apache-2.0
// What every public header starts from: linkage and the compiler attributes that catch
// an ignored status or a wrong format string. Neighbour: status.h.
#ifndef ULPSCOPE_API_H
#define ULPSCOPE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define USC_API __attribute__((visibility("default")))
#define USC_NODISCARD __attribute__((warn_unused_result))
#define USC_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define USC_API
#define USC_NODISCARD
#define USC_PRINTF(format_at, args_at)
#endif

#ifdef __cplusplus
#define USC_BEGIN_DECLS extern "C" {
#define USC_END_DECLS }
#else
#define USC_BEGIN_DECLS
#define USC_END_DECLS
#endif

#endif
