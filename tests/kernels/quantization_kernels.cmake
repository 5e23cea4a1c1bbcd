if(NOT TARGET rapidcheck)
  find_package(rapidcheck REQUIRED CONFIG)
endif()

steelyard_add_tests(quantization_kernels_test
  SOURCES
    affine_test.cpp
    fake_quantize_test.cpp
    quantization_params_test.cpp
    range_test.cpp
    requantize_test.cpp
    value_type_test.cpp
  DEPENDS steelyard::kernels rapidcheck
  ENVIRONMENT RC_PARAMS=max_success=100000)

# QuantPlan against the plain definition; the same sources test other devices.
set(quant_plan_tests quant_plan_test.cpp quant_statistics_test.cpp)
steelyard_add_tests(quant_plan_test
  SOURCES ${quant_plan_tests} quant_device_cpu.cpp
  DEPENDS steelyard::kernels)

# Every float pattern, one pair of parameters; STEELYARD_LONG_TESTS=1 in the environment takes more.
steelyard_add_tests(fake_quantize_exhaustive_test
  SOURCES fake_quantize_exhaustive_test.cpp quant_half_patterns_test.cpp
  DEPENDS steelyard::kernels)

steelyard_add_tests(integer_kernels_test
  SOURCES integer_test.cpp
  DEPENDS steelyard::kernels)
# Without VNNI oneDNN's int8 products saturate and must not be used.
add_test(NAME integer_kernels_without_vnni COMMAND integer_kernels_test)
set_tests_properties(integer_kernels_without_vnni PROPERTIES ENVIRONMENT DNNL_MAX_CPU_ISA=AVX2)

if(STEELYARD_HAVE_CUDA)
  # The device code of the affine arithmetic keeps IEEE division, denormals and separate products
  # and sums. Needs the compiler, no GPU.
  list(GET CMAKE_CUDA_ARCHITECTURES 0 ptx_architecture)
  add_test(NAME affine_ptx
    COMMAND ${CMAKE_COMMAND} -DNVCC=${CMAKE_CUDA_COMPILER}
      -DHOST_COMPILER=${CMAKE_CXX_COMPILER}
      -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}/affine_ptx.cu
      -DINCLUDE=${PROJECT_SOURCE_DIR} -DPTX=${CMAKE_CURRENT_BINARY_DIR}/affine.ptx
      -DARCHITECTURE=${ptx_architecture}
      -P ${CMAKE_CURRENT_SOURCE_DIR}/check_ptx.cmake)
endif()
