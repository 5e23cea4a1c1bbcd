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
set(emulated_kernels
  ${PROJECT_SOURCE_DIR}/kernels/activation/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/broadcast/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/conv/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/convert/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/counter/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/fake_quantize.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/quant_backward.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/quant_forward.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/quant_parameter_gradients.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/quant_statistics.cu
  ${PROJECT_SOURCE_DIR}/kernels/cuda/weight_codes.cu
  ${PROJECT_SOURCE_DIR}/kernels/dropout/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/elementwise/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/embedding/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/histogram/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/histogram_ranges/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/integer_groups/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/integer_product/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/layer_norm/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/matmul/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/norm/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/norm_fold/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/optimizer_step/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/oscillation/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/percentile/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/pool/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/quantizer_state/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/reduce/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/requantize/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/shrunken_range/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/softmax/cuda.cu
  ${PROJECT_SOURCE_DIR}/kernels/transpose/cuda.cu)
set_source_files_properties(${emulated_kernels} PROPERTIES LANGUAGE CXX)
add_library(emulated_kernels OBJECT ${emulated_kernels})
# Device code reads arrays of values as 16-byte vectors.
target_compile_options(emulated_kernels PRIVATE -fno-strict-aliasing)
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
    quant_device_emulated.cpp
    quant_host_memory.cpp
    $<TARGET_OBJECTS:emulated_kernels>
  DEPENDS steelyard::kernels cuda_emulation)

steelyard_add_tests(quantized_layer_emulated_test
  SOURCES
    $<TARGET_OBJECTS:quantized_layer_cases>
    quant_cuda_memory.cpp
    quant_device_emulated.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::kernels cuda_emulation
  PREFIX emulated.)
