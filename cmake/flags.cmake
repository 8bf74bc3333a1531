# SPDX-License-Identifier: MIT
# Compiler flags shared by everything. Floating-point contraction is off outside the kernels' own choice, so that
# the same expression has the same bits in every file; -ffp-contract is set per kernel file in isa.cmake.
add_library(trireme_flags INTERFACE)
target_compile_definitions(trireme_flags INTERFACE _GNU_SOURCE)
target_compile_options(trireme_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wwrite-strings -Wundef
  -fno-math-errno -ffp-contract=off -fno-strict-aliasing)
# Functions of shared libraries are found when a program starts, not in the training step that calls one first.
target_link_options(trireme_flags INTERFACE -Wl,-z,now)
# Only for compilers and flags that the tests run with: others may see warnings that nobody has seen yet, and a user's build must
# not fail on them.
if((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 15) OR
   (CMAKE_C_COMPILER_ID MATCHES Clang AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 20))
  set(TRIREME_WERROR OFF)
endif()
# GCC 12 sees dangling pointers where strstr looks into text that a function has returned, at -O3.
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND
   CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(trireme_flags INTERFACE -Wno-dangling-pointer)
endif()
if(TRIREME_WERROR)
  target_compile_options(trireme_flags INTERFACE -Werror)
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>) # with what sanitizers add, compilers no longer see how long a text can be
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()
