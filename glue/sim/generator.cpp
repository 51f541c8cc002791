// SPDX-License-Identifier: Apache-2.0
// Generators: the CPU's, claiming to live on the device, so that the stream of numbers for
// a seed is the CPU's too.
#include "sim_glue.h"

#include <ATen/CPUGeneratorImpl.h>

namespace usc_sim
{
namespace
{

using c10::Device;
using c10::DeviceIndex;

class Generator final : public c10::GeneratorImpl
{
  public:
    explicit Generator(DeviceIndex index,
                       at::Generator generator = at::detail::createCPUGenerator())
        : GeneratorImpl(Device(DEVICE, index),
                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
          cpu(std::move(generator))
    {
    }
    void set_current_seed(uint64_t seed) override
    {
        cpu.set_current_seed(seed);
    }
    uint64_t current_seed() const override
    {
        return cpu.current_seed();
    }
    uint64_t seed() override
    {
        return cpu.seed();
    }
    void set_offset(uint64_t offset) override
    {
        cpu.set_offset(offset);
    }
    uint64_t get_offset() const override
    {
        return cpu.get_offset();
    }
    void set_state(const c10::TensorImpl &state) override
    {
        cpu.unsafeGetGeneratorImpl()->set_state(state);
    }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        return cpu.unsafeGetGeneratorImpl()->get_state();
    }

    at::Generator cpu;

  private:
    Generator *clone_impl() const override
    {
        return new Generator(device().index(), cpu.clone());
    }
};

} // namespace

at::Generator new_generator(c10::DeviceIndex device)
{
    TORCH_INTERNAL_ASSERT(device >= 0 && device < USC_SIM_N_DEVICES);
    return at::make_generator<Generator>(device);
}

at::Generator &default_generator(c10::DeviceIndex device)
{
    static std::vector<at::Generator> *all = [] {
        auto *made = new std::vector<at::Generator>;
        for (DeviceIndex i = 0; i < USC_SIM_N_DEVICES; i++)
            made->push_back(at::make_generator<Generator>(i));
        return made;
    }();
    return all->at(static_cast<size_t>(device < 0 ? current_device() : device));
}

at::Generator &cpu_generator(const at::Generator &sim_generator)
{
    return static_cast<Generator *>(sim_generator.unsafeGetGeneratorImpl())->cpu;
}

} // namespace usc_sim
