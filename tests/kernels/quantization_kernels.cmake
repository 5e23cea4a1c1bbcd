if(NOT TARGET rapidcheck)
  find_package(rapidcheck REQUIRED CONFIG)
endif()

steelyard_add_tests(quantization_kernels_test
  SOURCES
    affine_test.cpp
    fake_quantize_test.cpp
    oscillation_test.cpp
    quantization_params_test.cpp
    quantizer_state_test.cpp
    range_test.cpp
    requantize_test.cpp
    value_type_test.cpp
  DEPENDS steelyard::kernels rapidcheck
  LABELS once
  ENVIRONMENT RC_PARAMS=max_success=100000)

# QuantPlan against the plain definition; the same sources test other devices.
set(quant_plan_tests
  quant_edge_cases_test.cpp
  quant_plan_test.cpp
  quant_statistics_test.cpp)
steelyard_add_tests(quant_plan_test
  SOURCES ${quant_plan_tests} quant_device_cpu.cpp quant_host_memory.cpp
  DEPENDS steelyard::kernels
  LABELS once)

# The kernels of quantized layers: CPU against GPU.
set(quantized_layer_tests
  quantizer_cpu_gpu_test.cpp
  code_gradients_test.cpp
  weight_codes_test.cpp
  range_search_cpu_gpu_test.cpp
  integer_cpu_gpu_test.cpp)  # last: it leaves the most memory behind

# Every float pattern, one pair of parameters; STEELYARD_LONG_TESTS=1 in the environment takes more.
steelyard_add_tests(fake_quantize_exhaustive_test
  SOURCES fake_quantize_exhaustive_test.cpp quant_half_patterns_test.cpp
  DEPENDS steelyard::kernels
  LABELS once)

steelyard_add_tests(integer_kernels_test
  SOURCES integer_test.cpp
  DEPENDS steelyard::kernels)
# Without VNNI oneDNN's int8 products saturate and must not be used.
add_test(NAME integer_kernels_without_vnni COMMAND integer_kernels_test)
set_tests_properties(integer_kernels_without_vnni PROPERTIES ENVIRONMENT DNNL_MAX_CPU_ISA=AVX2)

# Device code keeps IEEE division, denormals and separate products and sums: looked up in its PTX.
# Needs the compiler, no GPU and no CUDA build.
find_program(STEELYARD_NVCC nvcc HINTS /usr/local/cuda/bin)
if(STEELYARD_NVCC)
  foreach(source
      tests/kernels/affine_ptx.cu
      kernels/cuda/fake_quantize.cu
      kernels/cuda/histogram_ranges.cu
      kernels/cuda/percentile.cu
      kernels/cuda/quant_backward.cu
      kernels/cuda/quant_forward.cu
      kernels/cuda/quant_parameter_gradients.cu
      kernels/cuda/quant_statistics.cu
      kernels/cuda/quantizer_state.cu
      kernels/cuda/shrunken_range.cu
      kernels/cuda/weight_codes.cu)
    cmake_path(GET source STEM stem)
    set(fused 0)
    if(stem STREQUAL "affine_ptx")
      set(fused 3)
    endif()
    set(divisions f32,f64)
    if(stem MATCHES "histogram_ranges|percentile")
      set(divisions f64)
    endif()
    add_test(NAME ptx.${stem}
      COMMAND ${CMAKE_COMMAND} -DNVCC=${STEELYARD_NVCC} -DHOST_COMPILER=${CMAKE_CXX_COMPILER}
        -DSOURCE=${PROJECT_SOURCE_DIR}/${source} -DINCLUDE=${PROJECT_SOURCE_DIR}
        -DPTX=${CMAKE_CURRENT_BINARY_DIR}/${stem}.ptx -DARCHITECTURE=90
        -DFUSED=${fused} -DDIVISIONS=${divisions}
        -P ${CMAKE_CURRENT_SOURCE_DIR}/check_ptx.cmake)
  endforeach()
endif()

# The same tests on a GPU, where the build has CUDA; without a device they are skipped.
if(STEELYARD_HAVE_CUDA)
  add_executable(quant_plan_cuda_test ${quant_plan_tests} quant_cpu_gpu_test.cpp
    quant_cuda_memory.cpp quant_device_cuda.cpp)
  target_link_libraries(quant_plan_cuda_test PRIVATE
    steelyard::kernels GTest::gmock steelyard_warnings)
  target_include_directories(quant_plan_cuda_test PRIVATE ${PROJECT_SOURCE_DIR})
  add_test(NAME gpu.quant_plan COMMAND quant_plan_cuda_test)
  set_tests_properties(gpu.quant_plan PROPERTIES SKIP_RETURN_CODE 77)
  add_executable(quantized_layer_cuda_test ${quantized_layer_tests} quant_cuda_memory.cpp
    quant_device_cuda.cpp)
  target_link_libraries(quantized_layer_cuda_test PRIVATE
    steelyard::kernels GTest::gmock steelyard_warnings)
  target_include_directories(quantized_layer_cuda_test PRIVATE ${PROJECT_SOURCE_DIR})
  add_test(NAME gpu.quantized_layer COMMAND quantized_layer_cuda_test)
  set_tests_properties(gpu.quantized_layer PROPERTIES SKIP_RETURN_CODE 77)
endif()
