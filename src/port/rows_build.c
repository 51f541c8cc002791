// SPDX-License-Identifier: Apache-2.0
// Names of CMake at each target: musa, sim, npu, xpu. NULL: a human decides, as of every
// other word that speaks of CUDA.
#include "port/port_names.h"

#define BUILD USC_PORT_BUILD_NAME
/* clang-format off */

const usc_port_family usc_port_families_build[] = {
    {BUILD, "CUDA_", {"MUSA_", NULL, NULL, NULL},
     "FOUND LIBRARIES INCLUDE_DIRS HOME PATH LINK_LIBRARIES_KEYWORD"},
    {BUILD, "cuda_", {"musa_", NULL, NULL, NULL}, "add_library add_executable include_directories"},
    {BUILD, "CUDA::cu", {"MUSA::mu", NULL, NULL, NULL}, "blas blasLt solver fft rand sparse"},
    {BUILD, "NCCL_", {"MCCL_", NULL, NULL, NULL}, "FOUND LIBRARIES INCLUDE_DIRS INCLUDE_DIR LIB_DIR"},
    {0},
};

const usc_port_row usc_port_rows_build[] = {
    {BUILD, "find_package CUDA", {"MUSA", NULL, NULL, NULL}},
    {BUILD, "find_package CUDAToolkit", {"MUSAToolkit", NULL, NULL, NULL}},
    {BUILD, "find_package NCCL", {"MCCL", NULL, NULL, NULL}},
    {BUILD, "CUDA_NVCC_FLAGS", {"MUSA_MCC_FLAGS", NULL, NULL, NULL}},
    {BUILD, "CUDA::cudart", {"MUSA::musart", NULL, NULL, NULL}},
    {0},
};
