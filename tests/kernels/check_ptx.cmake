# Compiles SOURCE to PTX as the CUDA kernels are compiled and fails on inexact instructions and
# unless it holds FUSED multiply-adds.
execute_process(
  COMMAND ${NVCC} -ccbin ${HOST_COMPILER} -std=c++20 --fmad=false -arch=sm_${ARCHITECTURE}
    -I${INCLUDE} -ptx ${SOURCE} -o ${PTX}
  RESULT_VARIABLE failed ERROR_VARIABLE messages)
if(failed)
  message(FATAL_ERROR "nvcc failed:\n${messages}")
endif()
file(READ ${PTX} ptx)
if(NOT ptx MATCHES "div\\.rn\\.f32" OR NOT ptx MATCHES "div\\.rn\\.f64")
  message(FATAL_ERROR "expected IEEE divisions in ${PTX}, found none")
endif()
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
