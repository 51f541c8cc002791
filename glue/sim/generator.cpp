// SPDX-License-Identifier: Apache-2.0
// Generators: the CPU's, claiming to live on the device, so that the stream of numbers for
// a seed is the CPU's too; or Philox's seed and offset (sim/random.c).
#include "sim_glue.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

namespace usc_sim
{

std::atomic<bool> using_philox{false};
std::atomic<bool> handing_out_defaults{false};

namespace
{

using c10::Device;
using c10::DeviceIndex;

// What generators share whose states were handed on by reference (graphsafe_*).
struct Source {
    at::Generator cpu = at::make_generator<at::CPUGeneratorImpl>();
    usc_sim_random philox{c10::default_rng_seed_val, 0};
};

class Generator final : public c10::GeneratorImpl
{
  public:
    explicit Generator(DeviceIndex index,
                       std::shared_ptr<Source> its = std::make_shared<Source>())
        : GeneratorImpl(Device(DEVICE, index),
                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
          source(std::move(its))
    {
    }
    void set_current_seed(uint64_t seed) override
    {
        source->cpu.set_current_seed(seed);
        source->philox = {seed, 0};
    }
    uint64_t current_seed() const override
    {
        return using_philox ? source->philox.seed : source->cpu.current_seed();
    }
    uint64_t seed() override
    {
        const uint64_t drawn = source->cpu.seed(); // as the CPU draws one
        set_current_seed(drawn);
        return drawn;
    }
    void set_offset(uint64_t offset) override
    {
        check_philox();
        TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
        source->philox.offset = offset;
    }
    uint64_t get_offset() const override
    {
        check_philox();
        return source->philox.offset;
    }
    void set_state(const c10::TensorImpl &state) override
    {
        if (!using_philox) {
            source->cpu.unsafeGetGeneratorImpl()->set_state(state);
            return;
        }
        TORCH_CHECK(state.layout() == c10::kStrided && state.dtype() == at::kByte &&
                        state.device_type() == c10::kCPU && state.is_contiguous(),
                    "sim: the state of a generator is bytes of the host");
        TORCH_CHECK(state.numel() == sizeof source->philox,
                    "sim: a generator's state of ", state.numel(),
                    " bytes; seed and offset are ", sizeof source->philox);
        usc_sim_random wanted;
        std::memcpy(&wanted, state.data(), sizeof wanted);
        TORCH_CHECK(wanted.offset % 4 == 0, "offset must be a multiple of 4");
        source->philox = wanted;
    }
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override
    {
        if (!using_philox) return source->cpu.unsafeGetGeneratorImpl()->get_state();
        // no operator makes it: nobody's mode is to see one
        auto *bytes = new usc_sim_random(source->philox);
        const auto drop = [](void *its) { delete static_cast<usc_sim_random *>(its); };
        return at::from_blob(bytes, {sizeof *bytes}, drop, at::kByte).getIntrusivePtr();
    }
    void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &state)
    {
        const auto *other = dynamic_cast<const Generator *>(state.get());
        TORCH_CHECK(other != nullptr, "sim: the state of a generator of another device");
        source = other->source;
    }
    c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const
    {
        return c10::make_intrusive<Generator>(device().index(), source);
    }

    std::shared_ptr<Source> source;

  private:
    static void check_philox()
    {
        TORCH_CHECK(using_philox,
                    "sim: the CPU's stream of random numbers has no offset; "
                    "torch.sim.random('philox') has one");
    }
    Generator *clone_impl() const override
    {
        auto copy = std::make_shared<Source>();
        copy->cpu = source->cpu.clone();
        copy->philox = source->philox;
        return new Generator(device().index(), std::move(copy));
    }
};

Generator &ours(const at::Generator &g)
{
    auto *found = dynamic_cast<Generator *>(g.unsafeGetGeneratorImpl());
    TORCH_CHECK(found != nullptr,
                "Expected a 'sim' device type for generator but found '",
                g.device().type(), "'");
    return *found;
}

} // namespace

at::Generator new_generator(c10::DeviceIndex device)
{
    TORCH_CHECK(device >= 0 && device < usc_sim_device_count(),
                "sim: there is no device ", static_cast<int>(device), "; there are ",
                usc_sim_device_count());
    if (handing_out_defaults) return default_generator(device);
    return at::make_generator<Generator>(device);
}

at::Generator &default_generator(c10::DeviceIndex device)
{
    static std::vector<at::Generator> *all = [] {
        auto *made = new std::vector<at::Generator>;
        for (DeviceIndex i = 0; i < USC_SIM_MOST_DEVICES; i++)
            made->push_back(at::make_generator<Generator>(i));
        return made;
    }();
    return all->at(static_cast<size_t>(device < 0 ? current_device() : device));
}

// With Philox a kernel of the CPU gets a generator that two words of the stream have seeded.
at::Generator cpu_generator(const at::Generator &sim_generator)
{
    Generator &g = ours(sim_generator);
    if (!using_philox) return g.source->cpu;
    const std::lock_guard<std::mutex> hold(g.mutex_);
    uint64_t seed = 0;
    usc_sim_random_integers(&g.source->philox, 0, &seed, 1);
    return at::make_generator<at::CPUGeneratorImpl>(seed);
}

static at::Generator cpu_default()
{
    return at::globalContext().defaultGenerator(c10::Device(c10::kCPU));
}

LentGenerator::LentGenerator(c10::DeviceIndex device)
    : its_(cpu_generator(default_generator(device))), kept_(cpu_default().get_state())
{
    at::Generator host = cpu_default();
    host.set_state(its_.get_state());
}

LentGenerator::~LentGenerator()
{
    at::Generator host = cpu_default();
    its_.set_state(host.get_state());
    host.set_state(kept_);
}

void run_random(RandomKernel kernel, torch::jit::Stack *stack,
                const at::Generator &generator)
{
    TORCH_INTERNAL_ASSERT(kernel != nullptr && !stack->empty());
    Generator &g = ours(generator);
    const std::lock_guard<std::mutex> hold(g.mutex_);
    kernel(stack, g.source->philox);
}

} // namespace usc_sim
