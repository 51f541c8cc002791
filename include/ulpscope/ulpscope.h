// SPDX-License-Identifier: Apache-2.0
// The whole C API. docs/c-api.md says which header holds what.
#ifndef ULPSCOPE_ULPSCOPE_H
#define ULPSCOPE_ULPSCOPE_H

#include <ulpscope/alloc.h>
#include <ulpscope/api.h>
#include <ulpscope/call.h>
#include <ulpscope/capture.h>
#include <ulpscope/case.h>
#include <ulpscope/cause.h>
#include <ulpscope/coverage.h>
#include <ulpscope/diff.h>
#include <ulpscope/draw.h>
#include <ulpscope/dtype.h>
#include <ulpscope/finding.h>
#include <ulpscope/flow.h>
#include <ulpscope/foreign.h>
#include <ulpscope/fuzz.h>
#include <ulpscope/generate.h>
#include <ulpscope/held.h>
#include <ulpscope/inject.h>
#include <ulpscope/judge.h>
#include <ulpscope/kept.h>
#include <ulpscope/kernels.h>
#include <ulpscope/launch.h>
#include <ulpscope/loss.h>
#include <ulpscope/npy.h>
#include <ulpscope/pack.h>
#include <ulpscope/pairs.h>
#include <ulpscope/pattern.h>
#include <ulpscope/report.h>
#include <ulpscope/result.h>
#include <ulpscope/run.h>
#include <ulpscope/safetensors.h>
#include <ulpscope/sides.h>
#include <ulpscope/standard.h>
#include <ulpscope/stats.h>
#include <ulpscope/status.h>
#include <ulpscope/sums.h>
#include <ulpscope/tensor.h>
#include <ulpscope/trace.h>
#include <ulpscope/trace_take.h>
#include <ulpscope/unjudged.h>
#include <ulpscope/value.h>
#include <ulpscope/verdict.h>
#include <ulpscope/version.h>
#include <ulpscope/watch.h>
#include <ulpscope/watch_log.h>
#include <ulpscope/watch_products.h>

#endif
