# SPDX-License-Identifier: Apache-2.0
# Ulpscope::sim: the simulated device, compiled against the torch of the project that asks
# for it, once for each of its build folders; or what Ulpscope_SIM_LIBRARY names, which was
# compiled for this torch before (ulpscope.extension.export_device writes one).
find_dependency(Torch)
set(Ulpscope_SIM_LIBRARY "" CACHE FILEPATH "the device, compiled for this torch; empty: it is compiled here")
if(NOT TARGET Ulpscope::sim)
  if(Ulpscope_SIM_LIBRARY)
    add_library(Ulpscope::sim SHARED IMPORTED)
    set_target_properties(Ulpscope::sim PROPERTIES
      IMPORTED_LOCATION "${Ulpscope_SIM_LIBRARY}" IMPORTED_NO_SONAME TRUE)
    set(_usc_scope INTERFACE)
    set(_usc_target Ulpscope::sim)
  else()
    message(STATUS "Ulpscope: the device will be compiled for this torch, which takes minutes")
    file(GLOB _usc_sources "${_usc_glue}/sim/*.cpp")
    add_library(ulpscope_sim_torch SHARED ${_usc_sources})
    target_compile_definitions(ulpscope_sim_torch PRIVATE NDEBUG AT_PER_OPERATOR_HEADERS)
    target_compile_options(ulpscope_sim_torch PRIVATE -O1 -w -fvisibility=hidden)
    target_precompile_headers(ulpscope_sim_torch PRIVATE "${_usc_glue}/heads.h")
    set_target_properties(ulpscope_sim_torch PROPERTIES CXX_STANDARD 20 CXX_EXTENSIONS OFF)
    add_library(Ulpscope::sim ALIAS ulpscope_sim_torch)
    set(_usc_scope PUBLIC)
    set(_usc_target ulpscope_sim_torch)
  endif()
  target_include_directories(${_usc_target} ${_usc_scope} "${_usc_include}")
  target_link_libraries(${_usc_target} ${_usc_scope} "${_usc_lib}/libulpscope_sim.so"
                        ulpscope::ulpscope ${TORCH_LIBRARIES})
endif()
