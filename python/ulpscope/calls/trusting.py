# SPDX-License-Identifier: Apache-2.0
"""Operators that may be asked nothing but what a program asked them. Needs nothing of torch."""

# Operators whose kernels trust what they are given: with other sizes or values they read elsewhere,
# or answer what is no question. Seen on the CPU; these keep the example's.
TRUSTING = {
    "_pdist_backward",  # one distance for each pair of rows: not looked at
    "segment_reduce",
    "_segment_reduce_backward",  # lengths that sum to the number of rows: dies of SIGSEGV
    "unfold_backward",  # a step and sizes that agree with the gradient: dies of SIGSEGV
    "native_group_norm_backward",  # numbers that are the sizes of its tensors: dies of SIGSEGV
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",  # scales that agree with the sizes: dies of SIGSEGV
    "histogramdd",
    "_histogramdd_from_bin_tensors",  # edges that ascend: no end
    "ctc_loss",
    "_ctc_loss",
    "_ctc_loss_backward",  # logarithms of probabilities, targets within lengths
    "embedding_bag",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_embedding_bag_backward",
    "_embedding_bag_dense_backward",
    "_embedding_bag_per_sample_weights_backward",  # sorted offsets within the indices
    # The last axis without gaps: on the CPU they read beside any other (pytorch/pytorch#187506).
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_reshape_alias",  # sizes and strides that stay within its memory: it reads beyond, where as_strided refuses
    "multinomial",  # as many categories of some weight as are drawn without replacement
}
