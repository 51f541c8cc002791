// SPDX-License-Identifier: Apache-2.0
// Where somebody's kernel calls a library: a barrier inside of it is told by the line of the
// kernel. Neighbour: grid_core.h.
#pragma once

#include "grid_core.h"

namespace usc_grid_cxx
{

// "k.cu:12", as long as the process: places are compared by their address first.
inline const char *place_of(const char *file, int line)
{
    struct known {
        const char *file;
        int line;
        const char *text;
    };
    static thread_local known places[256];
    static thread_local std::vector<std::pair<std::string, std::string *>> all;
    known &k = places[((uintptr_t)file / 8 + (unsigned)line) % 256];
    if (k.file == file && k.line == line) return k.text;
    const std::string text = base_name(file) + (":" + std::to_string(line));
    k = {file, line, nullptr};
    for (const auto &one : all)
        if (one.first == text) k.text = one.second->c_str();
    if (k.text == nullptr) {
        all.emplace_back(text, new std::string(text));
        k.text = all.back().second->c_str();
    }
    return k.text;
}

#define USC_GRID_CALLER ::usc_grid_cxx::place_of(__builtin_FILE(), __builtin_LINE())

inline unsigned thread_number()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

inline unsigned block_size()
{
    return blockDim.x * blockDim.y * blockDim.z;
}

inline void meet_block(const char *place)
{
    (void)usc_grid_barrier(USC_GRID_COUNT, 0, place);
}

// The mask of `n` lanes from the multiple of n on that holds this lane.
inline uint64_t lanes_around(unsigned n)
{
    const uint64_t ones = n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    return ones << (usc_grid_lane() / n * n);
}

} // namespace usc_grid_cxx
