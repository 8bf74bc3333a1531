# SPDX-License-Identifier: MIT
# What `cmake --install` adds to the command: presets where it looks for them, and the library for programs that embed it, with
# all modules in one archive and a pkg-config file. Nothing names the folder of the installation, so that it can be moved.
set(objects)
foreach(module IN LISTS TRIREME_MODULES)
  list(APPEND objects $<TARGET_OBJECTS:trireme_${module}>)
endforeach()
add_library(trireme_archive STATIC ${objects})
set_target_properties(trireme_archive PROPERTIES OUTPUT_NAME trireme LINKER_LANGUAGE C)

configure_file(cmake/trireme.pc.in ${CMAKE_BINARY_DIR}/trireme.pc @ONLY)
install(TARGETS trireme_archive DESTINATION lib)
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION lib/pkgconfig)
install(DIRECTORY include/trireme DESTINATION include)
install(DIRECTORY presets DESTINATION share/trireme)
