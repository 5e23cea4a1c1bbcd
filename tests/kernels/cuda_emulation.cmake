# CUDA kernels compiled as C++ and run on the host: any target that links cuda_emulation gets
# tests/support/cuda_emulation/steelyard/kernels/cuda/launch.h for "steelyard/kernels/cuda/launch.h".
set(emulation_folder ${PROJECT_SOURCE_DIR}/tests/support/cuda_emulation)
add_library(cuda_emulation STATIC
  ${emulation_folder}/collective.cpp
  ${emulation_folder}/device_memory.cpp
  ${emulation_folder}/emulation.cpp
  ${emulation_folder}/fiber.cpp
  ${emulation_folder}/queued_work.cpp
  ${emulation_folder}/scheduler.cpp
  ${emulation_folder}/shared_memory.cpp
  ${emulation_folder}/stuck.cpp)
target_include_directories(cuda_emulation BEFORE PUBLIC ${emulation_folder} ${STEELYARD_INCLUDE_DIR}
                           ${PROJECT_SOURCE_DIR})
# A target's own include folders come before those of what it links; -iquote comes before them all.
# The kernels' #pragma unroll means nothing to g++.
target_compile_options(cuda_emulation PUBLIC
  $<$<COMPILE_LANGUAGE:CXX>:-iquote${emulation_folder};-Wno-unknown-pragmas>)
target_link_libraries(cuda_emulation PUBLIC steelyard_flags PRIVATE steelyard_warnings)

steelyard_add_tests(cuda_emulation_test
  SOURCES cuda_emulation_primitives_test.cpp cuda_emulation_test.cpp
  DEPENDS cuda_emulation)

# Our CUDA kernels as objects, so that they take the place of kernels/cuda_absent.
get_target_property(emulated_kernels steelyard_kernels STEELYARD_CUDA_SOURCES)
list(FILTER emulated_kernels EXCLUDE REGEX "cuda_graph|cuda_memory|gemm_cublas")  # the emulation's own
list(TRANSFORM emulated_kernels PREPEND ${PROJECT_SOURCE_DIR}/kernels/)
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX)
add_library(emulated_kernels OBJECT ${emulated_kernels})
set_target_properties(emulated_kernels PROPERTIES UNITY_BUILD OFF)  # each instantiates its own kernels
# Device code reads arrays of values as 16-byte vectors.
target_compile_options(emulated_kernels PRIVATE -fno-strict-aliasing ${STEELYARD_TEST_OPTIONS})
target_link_libraries(emulated_kernels PUBLIC cuda_emulation PRIVATE steelyard_warnings)

# An emulated GPU: with these objects a program finds one CUDA device, whatever the build has.
add_library(emulated_gpu OBJECT
  ${emulation_folder}/cuda_graph.cpp
  ${emulation_folder}/cuda_memory.cpp
  ${emulation_folder}/gemm.cpp)
target_link_libraries(emulated_gpu PUBLIC cuda_emulation PRIVATE steelyard_warnings)

steelyard_add_tests(quant_plan_emulated_test
  SOURCES
    $<TARGET_OBJECTS:quant_plan_cases>
    quant_plan/quant_device_emulated.cpp
    quant_plan/quant_host_memory.cpp
    $<TARGET_OBJECTS:emulated_kernels>
  DEPENDS steelyard::kernels cuda_emulation
  PREFIX emulated.)

steelyard_add_tests(quantized_layer_emulated_test
  SOURCES
    $<TARGET_OBJECTS:quantized_layer_cases>
    quant_plan/quant_cuda_memory.cpp
    quant_plan/quant_device_emulated.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::kernels cuda_emulation
  PREFIX emulated.)
