# SPDX-License-Identifier: MIT
# The plug-ins over MPI, one per MPI that is found: trireme-openmpi.so and trireme-mpich.so beside the command, loaded when
# ranks run on several hosts. The library itself needs none. They are compiled by each MPI's own wrapper, which knows its flags.
function(trireme_find_mpi name macro)
  find_program(TRIREME_MPICC_${name} NAMES mpicc.${name})
  find_program(TRIREME_MPICC_${name} NAMES mpicc PATHS /usr/lib64/${name}/bin /usr/lib/${name}/bin /opt/${name}/bin NO_DEFAULT_PATH)
  if(TRIREME_MPICC_${name})
    return()
  endif()
  find_program(TRIREME_MPICC NAMES mpicc) # of which MPI, its header tells
  if(TRIREME_MPICC)
    file(WRITE ${CMAKE_BINARY_DIR}/which_mpi.c "#include <mpi.h>\n#ifndef ${macro}\n#error other\n#endif\n")
    execute_process(COMMAND ${TRIREME_MPICC} -fsyntax-only ${CMAKE_BINARY_DIR}/which_mpi.c RESULT_VARIABLE other OUTPUT_QUIET ERROR_QUIET)
    if(NOT other)
      set(TRIREME_MPICC_${name} ${TRIREME_MPICC} CACHE FILEPATH "" FORCE)
    endif()
  endif()
endfunction()

set(plugins)
foreach(mpi openmpi:OPEN_MPI mpich:MPICH_VERSION)
  string(REGEX REPLACE ":.*" "" name ${mpi})
  string(REGEX REPLACE ".*:" "" macro ${mpi})
  trireme_find_mpi(${name} ${macro})
  if(NOT TRIREME_MPICC_${name})
    message(STATUS "${name} not found: no plug-in for it is built")
    continue()
  endif()
  set(plugin ${CMAKE_BINARY_DIR}/trireme-${name}.so)
  add_custom_command(OUTPUT ${plugin}
    COMMAND ${CMAKE_COMMAND} -E env OMPI_CC=${CMAKE_C_COMPILER} MPICH_CC=${CMAKE_C_COMPILER} ${TRIREME_MPICC_${name}} -std=c17 -D_GNU_SOURCE -O2 -g1
      -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/comm/mpi/plugin.c -o ${plugin}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/mpi/plugin.c ${CMAKE_SOURCE_DIR}/src/comm/mpi_table_internal.h VERBATIM)
  list(APPEND plugins ${plugin})
endforeach()
if(plugins)
  add_custom_target(trireme_mpi ALL DEPENDS ${plugins})
  install(FILES ${plugins} DESTINATION lib/trireme)
endif()
