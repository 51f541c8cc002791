// SPDX-License-Identifier: Apache-2.0
// What older torch has under other names or not at all, for all of the glue; asked for by
// feature: torch's own function is the better match.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

namespace usc_glue
{

namespace older
{

/* Python's names, which lay in torch_python alone. */
template <typename Type> std::pair<std::string, std::string> getDtypeNames(Type type)
{
    static constexpr const char *names[][3] = {
        {"Byte", "uint8", ""},
        {"Char", "int8", ""},
        {"Short", "int16", "short"},
        {"Int", "int32", "int"},
        {"Long", "int64", "long"},
        {"Half", "float16", "half"},
        {"Float", "float32", "float"},
        {"Double", "float64", "double"},
        {"ComplexHalf", "complex32", "chalf"},
        {"ComplexFloat", "complex64", "cfloat"},
        {"ComplexDouble", "complex128", "cdouble"},
    };
    std::string name = c10::toString(type);
    for (const auto &row : names)
        if (name == row[0]) return {row[1], row[2]};
    TORCH_CHECK(name.find("UNKNOWN") == std::string::npos, "no such dtype");
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return {name, ""};
}

template <typename Work>
auto block_stream(Work &work, int) -> decltype(work.blockCurrentStream())
{
    work.blockCurrentStream();
}

template <typename Work> void block_stream(Work &work, long)
{
    work.synchronize();
}

} // namespace older

/** Both names that Python has for a dtype; the second may be "". Throws for a number that
 * torch left unused. */
inline std::pair<std::string, std::string> dtype_names(at::ScalarType type)
{
    using older::getDtypeNames;
    const auto found = getDtypeNames(type); /* c10's, found by its argument, is exact */
    return {std::string(found.first), std::string(found.second)};
}

/** Puts the current stream behind a work; a torch that cannot say so alone synchronizes. */
template <typename Work> void block_stream(Work &work)
{
    older::block_stream(work, 0);
}

} // namespace usc_glue
