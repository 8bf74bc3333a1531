# SPDX-License-Identifier: MIT
# What the library needs from the distribution, each attached to the module that uses it.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)

# oneDNN by header and library: its own CMake files ask for OpenCL's headers where it was built with GPU support, and only
# the CPU part is used here.
find_path(DNNL_INCLUDE_FOLDER oneapi/dnnl/dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_FOLDER})

set(TRIREME_LIBS_base PkgConfig::YAML PkgConfig::JANSSON PkgConfig::XXHASH Threads::Threads m ${CMAKE_DL_LIBS})
set(TRIREME_LIBS_kernel DNNL::dnnl)
set(TRIREME_LIBS_token PkgConfig::PCRE2 PkgConfig::UTF8PROC)
set(TRIREME_LIBS_data PkgConfig::ZLIB PkgConfig::ZSTD)
set(TRIREME_LIBS_comm PkgConfig::HWLOC)
