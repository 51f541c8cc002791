// SPDX-License-Identifier: Apache-2.0
// What a release promises of the C API. docs/reference/c-api.md says which header holds
// what; those in ulpscope/x/ serve the program and the extension, may change with any
// release, and are included one by one.
#ifndef ULPSCOPE_ULPSCOPE_H
#define ULPSCOPE_ULPSCOPE_H

#include <ulpscope/alloc.h>
#include <ulpscope/api.h>
#include <ulpscope/call.h>
#include <ulpscope/case.h>
#include <ulpscope/cause.h>
#include <ulpscope/dtype.h>
#include <ulpscope/finding.h>
#include <ulpscope/judge.h>
#include <ulpscope/kept.h>
#include <ulpscope/pack.h>
#include <ulpscope/report.h>
#include <ulpscope/result.h>
#include <ulpscope/safetensors.h>
#include <ulpscope/standard.h>
#include <ulpscope/stats.h>
#include <ulpscope/status.h>
#include <ulpscope/tensor.h>
#include <ulpscope/trace.h>
#include <ulpscope/value.h>
#include <ulpscope/verdict.h>
#include <ulpscope/version.h>

#endif
