# SPDX-License-Identifier: Apache-2.0
# `cmake --install` of a build without Python: library, headers, program, manual pages, and
# what pkg-config and CMake find them by.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ulpscope)
set_target_properties(ulpscope PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(ulpscope_static PROPERTIES OUTPUT_NAME ulpscope EXPORT_NAME static)
foreach(library ulpscope ulpscope_static)
  target_include_directories(${library} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS ulpscope ulpscope_static EXPORT ulpscope)
install(TARGETS ulpscope_cli)
install(DIRECTORY include/ulpscope TYPE INCLUDE)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(EXPORT ulpscope FILE ulpscope-targets.cmake NAMESPACE ulpscope:: DESTINATION ${package})
configure_package_config_file(cmake/ulpscope-config.cmake.in ulpscope-config.cmake
  INSTALL_DESTINATION ${package}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(ulpscope-config-version.cmake COMPATIBILITY SameMinorVersion)
# From the file itself, so that --prefix and moved folders are found.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up "${up}")
configure_file(cmake/ulpscope.pc.in ulpscope.pc @ONLY)
# The simulated device: its runtime, and its part that is compiled against a torch.
install(TARGETS ulpscope_sim)
install(DIRECTORY sim/include/ulpscope_sim TYPE INCLUDE)
install(FILES glue/grid/grid_deploy.h RENAME torch.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulpscope_sim)
install(DIRECTORY glue/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ulpscope/glue
        PATTERN "intercept" EXCLUDE PATTERN "simccl" EXCLUDE)
install(FILES cmake/ulpscope-sim.cmake DESTINATION ${package})
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND}
  -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
  -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake)
install(FILES ${CMAKE_BINARY_DIR}/ulpscope-config.cmake
  ${CMAKE_BINARY_DIR}/ulpscope-config-version.cmake DESTINATION ${package})
install(FILES ${CMAKE_BINARY_DIR}/ulpscope.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- cpack -G DEB
set(CPACK_PACKAGE_NAME ulpscope)
set(CPACK_PACKAGE_CONTACT "the authors of ulpscope <ulpscope@invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "judges whether an accelerator computes operators correctly: library and program")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3-torch)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libsqlite3-dev, libjansson-dev, libyaml-dev")
include(CPack)
