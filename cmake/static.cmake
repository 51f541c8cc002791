# SPDX-License-Identifier: Apache-2.0
# With ULPSCOPE_STATIC: SQLite, jansson and libyaml (xxHash is all in its header) from the archives of
# the system's packages, and only our own names exported. Their headers are seen through a
# folder of links, so that a compiler which brings a C library of its own (wheels are linked
# against an old one) does not meet the system's beside them.
set(vendored ${CMAKE_BINARY_DIR}/vendored)
file(MAKE_DIRECTORY ${vendored})
set(headers sqlite3.h jansson.h jansson_config.h yaml.h xxhash.h xxh3.h)
if(ULPSCOPE_TESTS)
  list(APPEND headers cmocka.h)
endif()
foreach(name IN LISTS headers)
  find_file(header_${name} ${name} PATHS /usr/include /usr/include/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu
            REQUIRED)
  file(CREATE_LINK ${header_${name}} ${vendored}/${name} SYMBOLIC)
endforeach()
set(usc_triplet ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu) # a compiler of its own knows none
find_library(archive_sqlite3 libsqlite3.a PATHS /usr/lib/${usc_triplet} REQUIRED)
find_library(archive_jansson libjansson.a PATHS /usr/lib/${usc_triplet} REQUIRED)
find_library(archive_yaml libyaml.a PATHS /usr/lib/${usc_triplet} REQUIRED)
set(SQLite3_INCLUDE_DIR ${vendored})
set(SQLite3_LIBRARY ${archive_sqlite3})
set(JANSSON_INCLUDE ${vendored})
set(JANSSON ${archive_jansson})
set(LIBYAML_INCLUDE ${vendored})
set(LIBYAML ${archive_yaml})
include_directories(SYSTEM ${vendored})
file(WRITE ${vendored}/exported.map "{ global: usc_*; local: *; };\n")
# Debian's jansson is not compiled for shared libraries: what it compares with stdin, in a
# function that is not called here, must lie in ours.
file(WRITE ${vendored}/stdin.c "__attribute__((visibility(\"hidden\"))) void *stdin;\n")
set(usc_exported -Wl,--version-script=${vendored}/exported.map)
link_libraries(m dl pthread) # SQLite's, in the C libraries in which they lie apart
add_link_options(-s)

# Debian's pyconfig.h includes the one of the architecture by a path from /usr/include.
function(usc_python_headers target folder)
  set(seen ${vendored}/${target})
  file(MAKE_DIRECTORY ${seen})
  get_filename_component(above ${folder} DIRECTORY)
  if(EXISTS ${above}/${usc_triplet})
    file(CREATE_LINK ${above}/${usc_triplet} ${seen}/${usc_triplet} SYMBOLIC)
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${folder} ${seen})
endfunction()
