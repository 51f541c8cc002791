# SPDX-License-Identifier: Apache-2.0
# Extensions for the simulated device in a project of one's own:
#
#   ulpscope_add_extension(NAME SOURCES ops.cpp nms.cu [INCLUDES csrc])
#
# adds a library NAME.so as ulpscope.extension.load builds one, for the torch and the
# ulpscope of Python3_EXECUTABLE (python3 where it is not set). Kernels' files are lowered
# when the project is configured, which a change of them or of their headers does again.
# docs/how-to/run-a-cuda-kernel.md
if(NOT Python3_EXECUTABLE)
  find_program(Python3_EXECUTABLE NAMES python3 python REQUIRED)
endif()

function(ulpscope_add_extension name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;INCLUDES")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}.lowered")
  list(TRANSFORM arg_INCLUDES PREPEND "--include=")
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -m ulpscope.extension_cmake "${folder}" ${name} ${arg_INCLUDES} ${arg_SOURCES}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    message(FATAL_ERROR "${why}")
  endif()
  include("${folder}/words.cmake") # usc_sources, usc_depends, usc_includes, usc_flags, usc_link
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${usc_depends})
  add_library(${name} MODULE ${usc_sources})
  set_target_properties(${name} PROPERTIES PREFIX "" CXX_STANDARD ${usc_standard} CXX_EXTENSIONS OFF
                        POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${usc_includes})
  target_compile_options(${name} PRIVATE ${usc_flags})
  target_link_libraries(${name} PRIVATE ${usc_link})
endfunction()
