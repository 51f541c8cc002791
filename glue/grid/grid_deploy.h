// SPDX-License-Identifier: Apache-2.0
// The simulated device in a program of C++ that links torch, without Python; programs
// see it as <ulpscope_sim/torch.h>. How such a
// program is built is in docs/how-to/deploy-from-cpp.md.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

extern "C" const char *usc_glue_sim_register(void);
extern "C" void usc_glue_sim_settle(void);

namespace ulpscope_sim
{

/** Makes `sim` a device of this process's torch; once, before the first tensor on it.
 * Throws std::runtime_error where another backend has torch's one free place. */
inline void load()
{
    static const bool loaded = [] {
        c10::register_privateuse1_backend("sim");
        const std::string why = usc_glue_sim_register();
        if (!why.empty()) throw std::runtime_error("the device cannot be loaded: " + why);
        (void)std::atexit(usc_glue_sim_settle);
        return true;
    }();
    (void)loaded;
}

} // namespace ulpscope_sim
