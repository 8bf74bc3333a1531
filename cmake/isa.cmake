# SPDX-License-Identifier: MIT
# Kernel files are built once per instruction set: src/kernel/simd_<isa>.c includes the shared body with the flags below,
# and the dispatcher picks a table at run time, so one binary runs on any x86-64 (and, with the base table, elsewhere).
set(optimise -O3)
if(TRIREME_SANITIZE MATCHES "fuzzer") # what fuzzers search uses no kernels, only links them
  set(optimise -O1 -fno-sanitize=all)
elseif(TRIREME_SANITIZE)
  set(optimise -O1) # these files would take a quarter of the build
endif()
set(vectorise ${optimise} -fopenmp-simd -ffp-contract=fast -fno-trapping-math -fno-signed-zeros)
foreach(isa base avx2 avx512 amx)
  set(file ${CMAKE_SOURCE_DIR}/src/kernel/simd_${isa}.c)
  if(NOT EXISTS ${file})
    continue()
  endif()
  set(flags ${vectorise})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    if(isa STREQUAL avx2)
      list(APPEND flags -mavx2 -mfma -mf16c)
    elseif(isa MATCHES "avx512|amx")
      list(APPEND flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
    endif()
    if(isa STREQUAL amx)
      list(APPEND flags -mamx-tile -mamx-bf16)
    endif()
  endif()
  set_source_files_properties(${file} TARGET_DIRECTORY trireme_kernel PROPERTIES COMPILE_OPTIONS "${flags}")
endforeach()

# Sums over ranks likewise (src/comm/reduce_<isa>.c), but with the same bits on all.
foreach(isa base avx2 avx512)
  set(flags ${optimise})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    if(isa STREQUAL avx2)
      list(APPEND flags -mavx2 -mprfchw)
    elseif(isa STREQUAL avx512)
      list(APPEND flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512 -mprfchw)
    endif()
  endif()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/reduce_${isa}.c TARGET_DIRECTORY trireme_comm
    PROPERTIES COMPILE_OPTIONS "${flags}")
endforeach()
