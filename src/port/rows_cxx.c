// SPDX-License-Identifier: Apache-2.0
// Names of C++ at each target: musa, sim, npu, xpu. NULL: a human decides. Kernels keep
// their names at sim, which takes them as they are written.
#include "port/port_names.h"

#define NAME USC_PORT_CXX_NAME
#define CALL USC_PORT_CXX_CALL
#define INC USC_PORT_INCLUDE
#define KEY USC_PORT_KEY
/* clang-format off */

const usc_port_family usc_port_families_cxx[] = {
    {NAME, "cuda", {"musa", "cuda", NULL, NULL},
     "Malloc MallocHost MallocManaged MallocAsync MallocPitch Malloc3D MallocArray MallocFromPoolAsync Free FreeHost "
     "FreeAsync FreeArray HostAlloc HostRegister HostUnregister HostGetDevicePointer HostGetFlags Memcpy MemcpyAsync "
     "Memcpy2D Memcpy2DAsync Memcpy3D Memcpy3DAsync MemcpyPeer MemcpyPeerAsync MemcpyToSymbol MemcpyToSymbolAsync "
     "MemcpyFromSymbol MemcpyFromSymbolAsync Memset MemsetAsync Memset2D Memset2DAsync Memset3D MemGetInfo MemAdvise "
     "MemPrefetchAsync MemPoolCreate MemPoolDestroy MemPoolTrimTo DeviceGetDefaultMemPool "
     "MemcpyKind MemcpyHostToHost MemcpyHostToDevice MemcpyDeviceToHost MemcpyDeviceToDevice MemcpyDefault "
     "HostAllocDefault HostAllocPortable HostAllocMapped HostAllocWriteCombined HostRegisterDefault HostRegisterPortable "
     "HostRegisterMapped MemAttachGlobal MemAttachHost GetSymbolAddress GetSymbolSize PointerGetAttributes "
     "PointerAttributes MemoryTypeHost MemoryTypeDevice MemoryTypeManaged MemoryTypeUnregistered "
     "SetDevice GetDevice GetDeviceCount GetDeviceProperties DeviceProp DeviceGetAttribute DeviceSynchronize DeviceReset "
     "DeviceGetLimit DeviceSetLimit DeviceGetStreamPriorityRange DeviceCanAccessPeer DeviceEnablePeerAccess "
     "DeviceDisablePeerAccess DeviceGetPCIBusId DeviceGetByPCIBusId DeviceSetCacheConfig DeviceGetCacheConfig "
     "DeviceSetSharedMemConfig DeviceGetSharedMemConfig ChooseDevice SetDeviceFlags GetDeviceFlags DeviceAttr "
     "DevAttrMultiProcessorCount DevAttrMaxThreadsPerBlock DevAttrMaxThreadsPerMultiProcessor DevAttrMaxSharedMemoryPerBlock "
     "DevAttrMaxSharedMemoryPerBlockOptin DevAttrMaxSharedMemoryPerMultiprocessor DevAttrWarpSize DevAttrMaxGridDimX "
     "DevAttrMaxGridDimY DevAttrMaxGridDimZ DevAttrMaxBlockDimX DevAttrMaxBlockDimY DevAttrMaxBlockDimZ "
     "DevAttrComputeCapabilityMajor DevAttrComputeCapabilityMinor DevAttrMaxRegistersPerBlock DevAttrL2CacheSize "
     "DevAttrCooperativeLaunch DevAttrUnifiedAddressing DevAttrConcurrentManagedAccess DevAttrMemoryPoolsSupported "
     "Stream_t StreamCreate StreamCreateWithFlags StreamCreateWithPriority StreamDestroy StreamSynchronize StreamQuery "
     "StreamWaitEvent StreamAddCallback StreamGetPriority StreamGetFlags StreamDefault StreamNonBlocking StreamLegacy "
     "StreamPerThread StreamCallback_t StreamBeginCapture StreamEndCapture StreamIsCapturing StreamCaptureStatus "
     "StreamCaptureStatusNone StreamCaptureStatusActive StreamCaptureStatusInvalidated StreamCaptureModeGlobal "
     "StreamCaptureModeThreadLocal StreamCaptureModeRelaxed "
     "Event_t EventCreate EventCreateWithFlags EventDestroy EventRecord EventSynchronize EventQuery EventElapsedTime "
     "EventDefault EventBlockingSync EventDisableTiming EventInterprocess EventWaitDefault "
     "Error_t Error Success GetLastError PeekAtLastError GetErrorString GetErrorName ErrorInvalidValue "
     "ErrorMemoryAllocation ErrorInitializationError ErrorInvalidDevice ErrorInvalidDeviceFunction ErrorInvalidConfiguration "
     "ErrorNotReady ErrorNoDevice ErrorUnknown ErrorNotSupported ErrorLaunchFailure ErrorLaunchOutOfResources "
     "ErrorInvalidResourceHandle ErrorPeerAccessAlreadyEnabled ErrorHostMemoryAlreadyRegistered ErrorIllegalAddress "
     "LaunchKernel LaunchCooperativeKernel LaunchHostFunc LaunchConfig_t FuncSetAttribute FuncGetAttributes FuncAttributes "
     "FuncSetCacheConfig FuncSetSharedMemConfig FuncCachePreferNone FuncCachePreferShared FuncCachePreferL1 "
     "FuncCachePreferEqual FuncAttributeMaxDynamicSharedMemorySize FuncAttributePreferredSharedMemoryCarveout "
     "OccupancyMaxActiveBlocksPerMultiprocessor OccupancyMaxActiveBlocksPerMultiprocessorWithFlags "
     "OccupancyMaxPotentialBlockSize OccupancyMaxPotentialBlockSizeVariableSMem SharedMemBankSizeDefault "
     "SharedMemBankSizeFourByte SharedMemBankSizeEightByte LimitStackSize LimitPrintfFifoSize LimitMallocHeapSize "
     "DriverGetVersion RuntimeGetVersion IpcMemHandle_t IpcGetMemHandle IpcOpenMemHandle IpcCloseMemHandle "
     "IpcEventHandle_t IpcGetEventHandle IpcOpenEventHandle IpcMemLazyEnablePeerAccess Graph_t GraphExec_t GraphNode_t "
     "GraphCreate GraphDestroy GraphInstantiate GraphLaunch GraphExecDestroy GraphExecUpdate GraphGetNodes "
     "ProfilerStart ProfilerStop DataType DataType_t Pos Extent PitchedPtr make_cudaExtent"},
    {NAME, "cublas", {"mublas", "cublas", NULL, NULL},
     "Handle_t Status_t Operation_t Create Destroy SetStream GetStream SetMathMode GetMathMode SetPointerMode "
     "GetPointerMode Math_t FillMode_t DiagType_t SideMode_t PointerMode_t Sgemm Dgemm Hgemm Cgemm Zgemm GemmEx "
     "SgemmEx SgemmBatched DgemmBatched HgemmBatched SgemmStridedBatched DgemmStridedBatched HgemmStridedBatched "
     "GemmStridedBatchedEx GemmBatchedEx Sgemv Dgemv Saxpy Daxpy Sdot Ddot Sscal Dscal Snrm2 Dnrm2 Strsm Dtrsm Sgeam "
     "Dgeam Scopy Dcopy GemmAlgo_t ComputeType_t GetVersion SetWorkspace"},
    {NAME, "CUBLAS_", {"MUBLAS_", "CUBLAS_", NULL, NULL},
     "OP_N OP_T OP_C STATUS_SUCCESS STATUS_NOT_INITIALIZED STATUS_ALLOC_FAILED STATUS_INVALID_VALUE "
     "STATUS_ARCH_MISMATCH STATUS_MAPPING_ERROR STATUS_EXECUTION_FAILED STATUS_INTERNAL_ERROR STATUS_NOT_SUPPORTED "
     "DEFAULT_MATH TENSOR_OP_MATH TF32_TENSOR_OP_MATH GEMM_DEFAULT GEMM_DEFAULT_TENSOR_OP GEMM_DFALT COMPUTE_32F "
     "COMPUTE_16F COMPUTE_64F POINTER_MODE_HOST POINTER_MODE_DEVICE FILL_MODE_LOWER FILL_MODE_UPPER DIAG_NON_UNIT "
     "DIAG_UNIT SIDE_LEFT SIDE_RIGHT"},
    {NAME, "CUDA_", {"MUSA_", "CUDA_", NULL, NULL}, "R_16F R_32F R_64F R_8I R_32I R_16BF C_32F C_64F"},
    {NAME, "curand", {"murand", "curand", NULL, NULL},
     "State State_t StatePhilox4_32_10_t StateXORWOW_t StateMRG32k3a_t _init _uniform _uniform2 _uniform4 _normal "
     "_normal2 _normal4 _uniform_double _uniform2_double _normal_double _log_normal _poisson Generator_t "
     "CreateGenerator DestroyGenerator SetPseudoRandomGeneratorSeed SetStream GenerateUniform GenerateNormal Status_t"},
    {NAME, "cufft", {"mufft", "cufft", NULL, NULL},
     "Handle Result Plan1d Plan2d Plan3d PlanMany ExecC2C ExecR2C ExecC2R ExecZ2Z ExecD2Z ExecZ2D Destroy SetStream "
     "Complex DoubleComplex Real DoubleReal Type"},
    {NAME, "cusparse", {"musparse", "cusparse", NULL, NULL},
     "Handle_t Status_t Create Destroy SetStream MatDescr_t CreateMatDescr DestroyMatDescr SetMatType SetMatIndexBase "
     "SpMM SpMV SpMM_bufferSize SpMV_bufferSize SpMatDescr_t DnMatDescr_t CreateCsr CreateCoo CreateDnMat "
     "DestroySpMat DestroyDnMat GetErrorString Operation_t"},
    {NAME, "CUSPARSE_", {"MUSPARSE_", "CUSPARSE_", NULL, NULL},
     "STATUS_SUCCESS INDEX_32I INDEX_64I INDEX_BASE_ZERO INDEX_BASE_ONE OPERATION_NON_TRANSPOSE OPERATION_TRANSPOSE "
     "MATRIX_TYPE_GENERAL ORDER_ROW ORDER_COL"},
    {NAME, "nccl", {"mccl", NULL, NULL, NULL},
     "Comm_t UniqueId Result_t DataType_t RedOp_t Success Float Float16 Bfloat16 Double Int32 Int64 Int8 Uint8 Sum Prod "
     "Max Min GetUniqueId CommInitRank CommInitAll CommDestroy CommAbort CommCount AllReduce AllGather ReduceScatter "
     "Broadcast Reduce Send Recv GroupStart GroupEnd GetErrorString GetVersion"},
    {NAME, "CU", {"MU", "CU", NULL, NULL}, "stream device context module function deviceptr event result"},
    {NAME, "__nv_", {"__mt_", "__nv_", NULL, NULL}, "bfloat16 bfloat162 bfloat16_raw bfloat162_raw"},
    {INC, "cuda_", {"musa_", "cuda_", NULL, NULL},
     "runtime.h runtime_api.h fp16.h fp16.hpp bf16.h bf16.hpp profiler_api.h occupancy.h texture_types.h "
     "surface_types.h pipeline.h awbarrier.h device_runtime_api.h"},
    {INC, "cu", {"mu", "cu", NULL, NULL},
     "rand.h rand_kernel.h rand_philox4x32_x.h fft.h fftXt.h sparse.h sparse_v2.h blasLt.h blas_api.h solverDn.h "
     "solver_common.h Complex.h"},
    {0},
};

const usc_port_row usc_port_rows_cxx[] = {
    /* ---- namespaces, guards, streams */
    {NAME, "at::cuda", {"at::musa", NULL, NULL, "at::xpu"}},
    {NAME, "c10::cuda", {"c10::musa", NULL, NULL, "c10::xpu"}},
    {NAME, "torch::cuda", {"torch::musa", NULL, NULL, "torch::xpu"}},
    {NAME, "at::cuda::CUDAGuard", {"c10::musa::MUSAGuard", "c10::DeviceGuard", "c10_npu::NPUGuard", "c10::DeviceGuard"}},
    {NAME, "c10::cuda::CUDAGuard", {"c10::musa::MUSAGuard", "c10::DeviceGuard", "c10_npu::NPUGuard", "c10::DeviceGuard"}},
    {NAME, "at::cuda::OptionalCUDAGuard", {"c10::musa::OptionalMUSAGuard", "c10::OptionalDeviceGuard", "c10_npu::OptionalNPUGuard", "c10::OptionalDeviceGuard"}},
    {NAME, "c10::cuda::OptionalCUDAGuard", {"c10::musa::OptionalMUSAGuard", "c10::OptionalDeviceGuard", "c10_npu::OptionalNPUGuard", "c10::OptionalDeviceGuard"}},
    {NAME, "at::cuda::getCurrentCUDAStream", {"c10::musa::getCurrentMUSAStream", "ulpscope_sim::getCurrentStream", "c10_npu::getCurrentNPUStream", "at::xpu::getCurrentXPUStream"}},
    {NAME, "c10::cuda::getCurrentCUDAStream", {"c10::musa::getCurrentMUSAStream", "ulpscope_sim::getCurrentStream", "c10_npu::getCurrentNPUStream", "c10::xpu::getCurrentXPUStream"}},
    {NAME, "at::cuda::CUDAStream", {"c10::musa::MUSAStream", "ulpscope_sim::Stream", "c10_npu::NPUStream", "at::xpu::XPUStream"}},
    {NAME, "c10::cuda::CUDAStream", {"c10::musa::MUSAStream", "ulpscope_sim::Stream", "c10_npu::NPUStream", "c10::xpu::XPUStream"}},
    {NAME, "at::cuda::CUDAStreamGuard", {"c10::musa::MUSAStreamGuard", NULL, NULL, NULL}},
    {NAME, "at::cuda::getDefaultCUDAStream", {"c10::musa::getDefaultMUSAStream", "ulpscope_sim::getDefaultStream", "c10_npu::getDefaultNPUStream", NULL}},
    {NAME, "at::cuda::getCurrentDeviceProperties", {"at::musa::getCurrentDeviceProperties", "ulpscope_sim::getCurrentDeviceProperties", NULL, "at::xpu::getCurrentDeviceProperties"}},
    {NAME, "at::cuda::warp_size", {"at::musa::warp_size", "ulpscope_sim::warp_size", NULL, "at::xpu::warp_size"}},
    {NAME, "at::cuda::ATenCeilDiv", {"at::musa::ATenCeilDiv", "ulpscope_sim::ATenCeilDiv", NULL, NULL}},
    {NAME, "at::cuda::setCurrentCUDAStream", {"c10::musa::setCurrentMUSAStream", NULL, "c10_npu::setCurrentNPUStream", "c10::xpu::setCurrentXPUStream"}},
    {NAME, "at::cuda::getStreamFromPool", {"c10::musa::getStreamFromPool", NULL, "c10_npu::getStreamFromPool", "c10::xpu::getStreamFromPool"}},
    {NAME, "CUDAGuard", {"MUSAGuard", NULL, NULL, NULL}},
    {NAME, "OptionalCUDAGuard", {"OptionalMUSAGuard", NULL, NULL, NULL}},
    {NAME, "CUDAStreamGuard", {"MUSAStreamGuard", NULL, NULL, NULL}},
    {NAME, "CUDAStream", {"MUSAStream", NULL, NULL, NULL}},
    {NAME, "CUDAEvent", {"MUSAEvent", NULL, NULL, NULL}},
    {NAME, "CUDAGraph", {"MUSAGraph", NULL, NULL, NULL}},
    {NAME, "getCurrentCUDAStream", {"getCurrentMUSAStream", NULL, "getCurrentNPUStream", "getCurrentXPUStream"}},
    {NAME, "getDefaultCUDAStream", {"getDefaultMUSAStream", NULL, "getDefaultNPUStream", NULL}},
    {NAME, "setCurrentCUDAStream", {"setCurrentMUSAStream", NULL, "setCurrentNPUStream", "setCurrentXPUStream"}},
    {NAME, "getStreamFromPool", {"getStreamFromPool", NULL, NULL, "getStreamFromPool"}},
    {NAME, "getCurrentCUDABlasHandle", {"getCurrentMUSABlasHandle", NULL, NULL, NULL}},
    {NAME, "getDefaultCUDAGenerator", {"getDefaultMUSAGenerator", NULL, NULL, NULL}},
    {NAME, "CUDAGeneratorImpl", {"MUSAGeneratorImpl", NULL, NULL, "XPUGeneratorImpl"}},
    {NAME, "PhiloxCudaState", {"PhiloxMusaState", NULL, NULL, NULL}},
    {NAME, "philox_cuda_state", {"philox_musa_state", NULL, NULL, NULL}},
    {NAME, "CUDACachingAllocator", {"MUSACachingAllocator", NULL, "NPUCachingAllocator", "XPUCachingAllocator"}},
    {CALL, "philox_cuda_state", {"philox_musa_state", NULL, NULL, NULL}},
    {CALL, "is_cuda", {"is_privateuseone", "is_privateuseone", "is_privateuseone", "is_xpu"}},
    {CALL, "cuda", {"to(at::kPrivateUse1", "to(at::kPrivateUse1", "to(at::kPrivateUse1", "to(at::kXPU"}},
    /* ---- checks */
    {NAME, "AT_CUDA_CHECK", {"AT_MUSA_CHECK", "USC_SIM_CHECK", "NPU_CHECK_ERROR", NULL}},
    {NAME, "C10_CUDA_CHECK", {"C10_MUSA_CHECK", "USC_SIM_CHECK", "NPU_CHECK_ERROR", NULL}},
    {NAME, "C10_CUDA_KERNEL_LAUNCH_CHECK", {"C10_MUSA_KERNEL_LAUNCH_CHECK", "USC_SIM_LAUNCH_CHECK", NULL, NULL}},
    {NAME, "C10_CUDA_CHECK_WARN", {"C10_MUSA_CHECK_WARN", NULL, NULL, NULL}},
    {NAME, "C10_CUDA_ERROR_HANDLED", {"C10_MUSA_ERROR_HANDLED", NULL, NULL, NULL}},
    {NAME, "TORCH_CUDABLAS_CHECK", {"TORCH_MUSABLAS_CHECK", NULL, NULL, NULL}},
    {NAME, "THCudaCheck", {"AT_MUSA_CHECK", "USC_SIM_CHECK", NULL, NULL}},
    {NAME, "REGISTER_CUDA_DISPATCH", {"REGISTER_MUSA_DISPATCH", "REGISTER_PRIVATEUSE1_DISPATCH", "REGISTER_PRIVATEUSE1_DISPATCH", "REGISTER_XPU_DISPATCH"}},
    /* ---- devices and dispatch */
    {NAME, "kCUDA", {"kPrivateUse1", "kPrivateUse1", "kPrivateUse1", "kXPU"}},
    {NAME, "DeviceType::CUDA", {"DeviceType::PrivateUse1", "DeviceType::PrivateUse1", "DeviceType::PrivateUse1", "DeviceType::XPU"}},
    {NAME, "DispatchKey::CUDA", {"DispatchKey::PrivateUse1", "DispatchKey::PrivateUse1", "DispatchKey::PrivateUse1", "DispatchKey::XPU"}},
    {NAME, "DispatchKey::AutogradCUDA", {"DispatchKey::AutogradPrivateUse1", "DispatchKey::AutogradPrivateUse1", "DispatchKey::AutogradPrivateUse1", "DispatchKey::AutogradXPU"}},
    {NAME, "Backend::CUDA", {"Backend::PrivateUse1", "Backend::PrivateUse1", "Backend::PrivateUse1", "Backend::XPU"}},
    {KEY, "CUDA", {"PrivateUse1", "PrivateUse1", "PrivateUse1", "XPU"}},
    {KEY, "AutogradCUDA", {"AutogradPrivateUse1", "AutogradPrivateUse1", "AutogradPrivateUse1", "AutogradXPU"}},
    {KEY, "AutocastCUDA", {"AutocastPrivateUse1", "AutocastPrivateUse1", "AutocastPrivateUse1", "AutocastXPU"}},
    {KEY, "SparseCUDA", {"SparsePrivateUse1", "SparsePrivateUse1", "SparsePrivateUse1", "SparseXPU"}},
    {KEY, "QuantizedCUDA", {"QuantizedPrivateUse1", "QuantizedPrivateUse1", "QuantizedPrivateUse1", "QuantizedXPU"}},
    {NAME, "torch::cuda::is_available", {NULL, NULL, NULL, "torch::xpu::is_available"}},
    /* ---- compilers */
    {NAME, "__CUDACC__", {"__MUSACC__", "__CUDACC__", NULL, NULL}},
    {NAME, "__NVCC__", {"__MUSACC__", "__NVCC__", NULL, NULL}},
    {NAME, "__CUDA_ARCH__", {"__MUSA_ARCH__", "__CUDA_ARCH__", NULL, NULL}},
    /* ---- headers */
    {INC, "cuda.h", {"musa.h", "cuda.h", NULL, NULL}},
    {INC, "cublas.h", {"mublas.h", "cublas.h", NULL, NULL}},
    {INC, "cublas_v2.h", {"mublas.h", "cublas_v2.h", NULL, NULL}},
    {INC, "curand_philox4x32_x.h", {"murand_philox4x32_10.h", "curand_philox4x32_x.h", NULL, NULL}},
    {INC, "nccl.h", {"mccl.h", NULL, "hccl/hccl.h", NULL}},
    {INC, "cub/cub.cuh", {"cub/cub.cuh", "cub/cub.cuh", NULL, NULL}},
    {INC, "cooperative_groups.h", {"cooperative_groups.h", "cooperative_groups.h", NULL, NULL}},
    {INC, "ATen/cuda/CUDAContext.h", {"\"torch_musa/csrc/aten/musa/MUSAContext.h\"", "<grid_torch.h>", "\"torch_npu/csrc/core/npu/NPUStream.h\"", "ATen/xpu/XPUContext.h"}},
    {INC, "ATen/cuda/CUDAApplyUtils.cuh", {"ATen/musa/MUSA_PORT_ApplyUtils.muh", "<grid_torch.h>", NULL, NULL}},
    {INC, "THC/THCAtomics.cuh", {"THC/THCAtomics.muh", "<grid_torch.h>", NULL, NULL}},
    {INC, "ATen/cuda/Atomic.cuh", {"ATen/musa/Atomic.muh", "<grid_torch.h>", NULL, NULL}},
    {INC, "ATen/cuda/CUDAEvent.h", {"\"torch_musa/csrc/core/MUSAEvent.h\"", NULL, "\"torch_npu/csrc/core/npu/NPUEvent.h\"", "ATen/xpu/XPUEvent.h"}},
    {INC, "ATen/cuda/CUDAGeneratorImpl.h", {"\"torch_musa/csrc/aten/musa/MUSAGeneratorImpl.h\"", NULL, NULL, "ATen/xpu/XPUGeneratorImpl.h"}},
    {INC, "ATen/cuda/Exceptions.h", {"\"torch_musa/csrc/aten/musa/Exceptions.h\"", "<grid_torch.h>", NULL, NULL}},
    {INC, "c10/cuda/CUDAGuard.h", {"\"torch_musa/csrc/core/MUSAGuard.h\"", "<grid_torch.h>", "\"torch_npu/csrc/core/npu/NPUGuard.h\"", "c10/core/DeviceGuard.h"}},
    {INC, "c10/cuda/CUDAStream.h", {"\"torch_musa/csrc/core/MUSAStream.h\"", "<grid_torch.h>", "\"torch_npu/csrc/core/npu/NPUStream.h\"", "c10/xpu/XPUStream.h"}},
    {INC, "c10/cuda/CUDAException.h", {"\"torch_musa/csrc/core/MUSAException.h\"", "<grid_torch.h>", "\"torch_npu/csrc/core/npu/NPUException.h\"", NULL}},
    {INC, "c10/cuda/CUDAFunctions.h", {"\"torch_musa/csrc/core/MUSAFunctions.h\"", NULL, NULL, "c10/xpu/XPUFunctions.h"}},
    {INC, "c10/cuda/CUDACachingAllocator.h", {"\"torch_musa/csrc/core/MUSACachingAllocator.h\"", NULL, "\"torch_npu/csrc/core/npu/NPUCachingAllocator.h\"", "c10/xpu/XPUCachingAllocator.h"}},
    {0},
};
