// SPDX-License-Identifier: Apache-2.0
// How attention of torch becomes heads of sim/kernels_attention.c: only where its arithmetic
// was chosen or broken; else it is torch's formula of products and softmax.
#include "../torch_private_attention.h"
#include "native.h"

#ifdef USC_GLUE_CHOOSES_ATTENTION
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace usc_sim
{
namespace
{

using at::IValue;
using at::Tensor;
using torch::jit::Stack;

constexpr const char *FORWARD = "aten::_scaled_dot_product_fused_attention_overrideable";

Tensor room(at::IntArrayRef sizes)
{
    return at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
}

// As factors of the chosen kind, (batch * heads, length, depth).
Tensor heads_of(const Tensor &t, const Choice &c)
{
    Tensor made = room({t.size(0) * t.size(1), t.size(2), t.size(3)});
    made.view(t.sizes()).copy_(t);
    usc_sim_round_factors(&c.numerics, made.mutable_data_ptr<double>(),
                          static_cast<size_t>(made.numel()));
    return made;
}

struct Heads {
    Tensor q, k, v, mask;
    usc_sim_attention one; // of the first
    int64_t n_heads;

    usc_sim_attention at(int64_t i) const
    {
        usc_sim_attention a = one;
        a.q += i * q.stride(0);
        a.k += i * k.stride(0);
        a.v += i * v.stride(0);
        if (a.mask != nullptr) a.mask += i * mask.stride(0);
        return a;
    }
};

Heads heads(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &bias,
            bool causal, const IValue &scale, const Choice &c)
{
    Heads h{heads_of(q, c), heads_of(k, c), heads_of(v, c), Tensor(), {}, 0};
    h.n_heads = h.q.size(0);
    if (bias.defined()) {
        h.mask = room({h.n_heads, h.q.size(1), h.k.size(1)});
        h.mask.copy_(bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)})
                         .reshape(h.mask.sizes()));
    }
    h.one = {h.q.const_data_ptr<double>(),
             h.k.const_data_ptr<double>(),
             h.v.const_data_ptr<double>(),
             h.mask.defined() ? h.mask.const_data_ptr<double>() : nullptr,
             static_cast<size_t>(h.q.size(1)),
             static_cast<size_t>(h.k.size(1)),
             static_cast<size_t>(h.q.size(2)),
             static_cast<size_t>(h.v.size(2)),
             scale.isNone() ? 1 / std::sqrt(static_cast<double>(q.size(3)))
                            : scale.toDouble(),
             causal};
    return h;
}

Tensor maybe(const IValue &v)
{
    return v.isNone() ? Tensor() : v.toTensor();
}

at::ScalarType wide(const Tensor &t)
{
    return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// (query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, scale?)
std::vector<IValue> forward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 8);
    const Tensor q = in[0].toTensor(), k = in[1].toTensor(), v = in[2].toTensor();
    const Heads h = heads(q, k, v, maybe(in[3]), in[5].toBool(), in[7], c);
    const Tensor out = room({q.size(0), q.size(1), q.size(2), v.size(3)});
    const Tensor sums = room({q.size(0), q.size(1), q.size(2)});
    const int64_t n = q.size(2);
    for (int64_t i = 0; i < h.n_heads; i++) {
        const usc_sim_attention a = h.at(i);
        TORCH_CHECK(usc_sim_attend(&c.numerics, c.dtype, &a,
                                   out.mutable_data_ptr<double>() + i * n * v.size(3),
                                   sums.mutable_data_ptr<double>() + i * n),
                    "sim: no memory for attention");
    }
    const Tensor none = at::zeros({}, at::TensorOptions().dtype(at::kLong));
    return {out.to(q.scalar_type()),
            sums.to(wide(q)),
            Tensor(),
            Tensor(),
            n,
            k.size(2),
            none,
            none.clone(),
            Tensor()};
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q,
// cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale?)
std::vector<IValue> backward(const Stack &in, const Choice &c)
{
    TORCH_INTERNAL_ASSERT(in.size() >= 17);
    const Tensor q = in[1].toTensor(), k = in[2].toTensor(), v = in[3].toTensor();
    const Heads h = heads(q, k, v, maybe(in[4]), in[13].toBool(), in[16], c);
    const Tensor out = in[6].toTensor().to(at::kDouble).contiguous(),
                 sums = in[7].toTensor().to(at::kDouble).contiguous(),
                 grad = heads_of(in[0].toTensor(), c);
    const Tensor dq = room(q.sizes()), dk = room(k.sizes()), dv = room(v.sizes());
    const int64_t n = q.size(2), wide_out = n * v.size(3);
    for (int64_t i = 0; i < h.n_heads; i++) {
        const usc_sim_attention a = h.at(i);
        TORCH_CHECK(usc_sim_attend_back(
                        &c.numerics, c.dtype, &a,
                        out.const_data_ptr<double>() + i * wide_out,
                        sums.const_data_ptr<double>() + i * n,
                        grad.const_data_ptr<double>() + i * wide_out,
                        dq.mutable_data_ptr<double>() + i * n * q.size(3),
                        dk.mutable_data_ptr<double>() + i * k.size(2) * k.size(3),
                        dv.mutable_data_ptr<double>() + i * v.size(2) * v.size(3)),
                    "sim: no memory for attention");
    }
    return {dq.to(q.scalar_type()), dk.to(k.scalar_type()), dv.to(v.scalar_type()),
            Tensor()};
}

// Which attention torch takes on this device.
int64_t choose(const Tensor &query, const Tensor &key, const Tensor &value,
               const optional<Tensor> &mask, double dropout, bool, optional<double>,
               bool grouped)
{
    usc_sim_numerics unused{};
    const bool asked = usc_sim_numerics_of(FORWARD, &unused) ||
                       (usc_sim_fault_planted() && usc_sim_fault_concerns(FORWARD));
    const bool fits = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
                      dropout == 0.0 && !grouped && query.numel() > 0 &&
                      key.numel() > 0 &&
                      !(mask && mask->defined() && mask->requires_grad());
    return asked && fits ? usc_glue::ATTENTION_OF_ITS_OWN
                         : usc_glue::ATTENTION_BY_FORMULA;
}

} // namespace

const std::vector<NativeRow> &attention_kernels()
{
    static const std::vector<NativeRow> rows = {
        {FORWARD, forward},
        {"aten::_scaled_dot_product_fused_attention_overrideable_backward", backward},
    };
    return rows;
}

void register_attention()
{
    usc_glue::register_attention_choice(&choose);
}

} // namespace usc_sim

#else // before, no device could have one of its own: torch's formula

namespace usc_sim
{

const std::vector<NativeRow> &attention_kernels()
{
    static const std::vector<NativeRow> rows;
    return rows;
}

void register_attention()
{
}

} // namespace usc_sim

#endif
