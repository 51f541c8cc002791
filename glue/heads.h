// SPDX-License-Identifier: Apache-2.0
// Headers of torch that nearly every file here includes, parsed once (program/glue.py): a file
// includes what it uses all the same. None that brings all of torch's functions, as ATen/ATen.h
// does: what is in here costs each file.
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <torch/library.h>
