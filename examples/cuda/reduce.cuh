// SPDX-License-Identifier: Apache-2.0
// The sum over a block of what each thread has put into shared memory.
#pragma once

template <int BLOCK> __device__ __forceinline__ float block_sum(float *part)
{
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}
