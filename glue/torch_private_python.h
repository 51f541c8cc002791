// SPDX-License-Identifier: Apache-2.0
// Values of the dispatcher as Python's, and back: a header that torch keeps to itself, though
// not the names. Without it, as without Python's headers, no call is computed by a function
// of Python's, and who asks for it is told.
#pragma once

#if __has_include(<Python.h>) && __has_include(<torch/csrc/jit/python/pybind_utils.h>)
#define USC_GLUE_KNOWS_PYTHON 1

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace usc_glue
{

inline pybind11::object to_python(const c10::IValue &value)
{
    return torch::jit::toPyObject(value);
}

/** Throws where the object is none of that type. */
inline c10::IValue from_python(const pybind11::handle &object, const c10::TypePtr &type)
{
    return torch::jit::toIValue(object, type);
}

} // namespace usc_glue

#endif
