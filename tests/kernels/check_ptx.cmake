# Compiles SOURCE to PTX as the CUDA kernels are compiled and fails on inexact instructions and
# unless it holds FUSED multiply-adds and IEEE divisions of the types DIVISIONS, separated by commas.
execute_process(
  COMMAND ${NVCC} -ccbin ${HOST_COMPILER} -std=c++20 --fmad=false -arch=sm_${ARCHITECTURE}
    -I${INCLUDE} -ptx ${SOURCE} -o ${PTX}
  RESULT_VARIABLE failed ERROR_VARIABLE messages)
if(failed)
  message(FATAL_ERROR "nvcc failed:\n${messages}")
endif()
file(READ ${PTX} ptx)
string(REPLACE "," ";" types "${DIVISIONS}")
foreach(type ${types})
  if(NOT ptx MATCHES "div\\.rn\\.${type}")
    message(FATAL_ERROR "expected IEEE divisions of ${type} in ${PTX}, found none")
  endif()
endforeach()
string(REGEX MATCHALL "fma\\.rn" fused "${ptx}")
list(LENGTH fused fused)
if(NOT fused EQUAL "${FUSED}")
  message(FATAL_ERROR "expected ${FUSED} fma.rn in ${PTX}, found ${fused}")
endif()
foreach(pattern [.]ftz div\\.approx div\\.full)
  string(REGEX MATCHALL "[^\n]*${pattern}[^\n]*" lines "${ptx}")
  if(lines)
    message(FATAL_ERROR "${PTX} holds ${pattern}: ${lines}")
  endif()
endforeach()
