# SPDX-License-Identifier: Apache-2.0
# The folders of src/ and what each may use: docs/background/architecture.md, "Layers". One line here
# is the only place that says so. Each folder is an OBJECT library usc_FOLDER; what it may
# use holds for what those use in turn, too. With the tests, a program is linked from the
# objects of each folder and of what it may use, and of nothing else: a call that goes
# another way is an undefined symbol, and the build fails.

set(usc_folders "")

# usc_folder(NAME [USES FOLDER...] [LINKS LIBRARY...] [SOURCES FILE...])
function(usc_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES;LINKS;SOURCES")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.c)
  set(below "")
  foreach(used IN LISTS arg_USES)
    list(APPEND below ${used} ${usc_below_${used}})
  endforeach()
  list(REMOVE_DUPLICATES below)
  add_library(usc_${name} OBJECT ${sources} ${arg_SOURCES})
  target_compile_definitions(usc_${name} PRIVATE _GNU_SOURCE)
  target_include_directories(usc_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include
                             PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(usc_${name} PUBLIC ${arg_LINKS})
  foreach(source IN LISTS sources)
    usc_isa_flags(${source})
  endforeach()
  set(usc_below_${name} "${below}" PARENT_SCOPE)
  set(usc_folders ${usc_folders} ${name} PARENT_SCOPE)
  set(usc_libraries ${usc_libraries} ${arg_LINKS} PARENT_SCOPE)
endfunction()

# One translation unit per instruction set: *_avx2.c, *_avx512.c. Elsewhere they compile
# to nothing.
set(usc_avx2_flags -mavx2 -mfma -mf16c -mpopcnt) # newer compilers take no set for implied
set(usc_x86_names "^(x86_64|AMD64|amd64|i[3-6]86)$")
function(usc_isa_flags source)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "${usc_x86_names}")
    return()
  elseif(source MATCHES "_avx2\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${usc_avx2_flags}")
  elseif(source MATCHES "_avx512\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
      "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;${usc_avx2_flags}")
  endif()
endfunction()

usc_folder(base LINKS Threads::Threads m)
usc_folder(json USES base LINKS ${JANSSON})
usc_folder(db USES base LINKS SQLite::SQLite3)
usc_folder(tensor USES base)
usc_folder(kernels USES tensor)
usc_folder(stats USES kernels)
usc_folder(judge USES kernels)
usc_folder(standard USES kernels)
usc_folder(files USES json tensor)
usc_folder(call USES json tensor)
usc_folder(flow USES call)
usc_folder(loss USES files)
usc_folder(port USES json)
usc_folder(ops USES base LINKS ${LIBYAML})
usc_folder(generate USES stats call)
usc_folder(watch USES stats loss)
usc_folder(trace USES db call)
usc_folder(diff USES trace stats)
usc_folder(result USES db)
usc_folder(capture USES trace stats)
usc_folder(case USES judge)
usc_folder(draw USES case)
usc_folder(cause USES case)
usc_folder(pack USES cause standard files result stats)
usc_folder(run USES trace result generate)
usc_folder(foreign USES run files stats)
usc_folder(query USES trace result)
usc_folder(report USES result trace json tensor SOURCES ${CMAKE_BINARY_DIR}/report_page.c)

file(GLOB found RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/src/*/*.c)
foreach(path IN LISTS found)
  get_filename_component(name ${path} DIRECTORY)
  if(NOT name IN_LIST usc_folders)
    message(FATAL_ERROR "src/${name} has no line in cmake/folders.cmake")
  endif()
endforeach()

# usc_link_law() : the programs that hold the law. main.c is theirs all, and empty.
function(usc_link_law)
  file(WRITE ${CMAKE_BINARY_DIR}/law/main.c "int main(void);\nint main(void)\n{\n    return 0;\n}\n")
  foreach(name IN LISTS usc_folders ITEMS sim)
    add_executable(law_${name} ${CMAKE_BINARY_DIR}/law/main.c)
    if(name STREQUAL sim) # the simulated device, which lies outside of src/
      target_link_libraries(law_sim PRIVATE sim_objects usc_kernels usc_json usc_tensor usc_base)
    else()
      list(TRANSFORM usc_below_${name} PREPEND usc_ OUTPUT_VARIABLE objects)
      target_link_libraries(law_${name} PRIVATE usc_${name} ${objects})
    endif()
    set_target_properties(law_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/law)
  endforeach()
endfunction()
