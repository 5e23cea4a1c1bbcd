if(NOT TARGET rapidcheck)
  find_package(rapidcheck REQUIRED CONFIG)
endif()

steelyard_add_tests(quantization_kernels_test
  SOURCES
    affine_test.cpp
    fake_quantize_test.cpp
    fixed_functions_test.cpp
    fixed_point_test.cpp
    ggml_blocks_test.cpp
    ggml_searched_blocks_test.cpp
    ggml_stored_blocks_test.cpp
    oscillation_test.cpp
    quantization_params_test.cpp
    quantizer_state_test.cpp
    range_test.cpp
    requantize_test.cpp
    value_type_test.cpp
  DEPENDS steelyard::kernels rapidcheck
  ENVIRONMENT RC_PARAMS=max_success=100000
  AGAIN x86-64-v3)

# QuantPlan against the plain definition. Objects, linked into a program for each kind of device.
add_library(quant_plan_cases OBJECT quant_plan/quant_arguments_test.cpp quant_plan/quant_edge_cases_test.cpp quant_plan/quant_guarantees_test.cpp
  quant_plan/quant_plan_test.cpp quant_plan/quant_statistics_test.cpp quant_plan/quant_sums_test.cpp)
steelyard_test_target(quant_plan_cases steelyard::kernels)
steelyard_add_tests(quant_plan_test
  SOURCES $<TARGET_OBJECTS:quant_plan_cases> quant_plan/quant_device_cpu.cpp quant_plan/quant_host_memory.cpp
  DEPENDS steelyard::kernels
  AGAIN x86-64-v2 x86-64-v3
  LABELS quick)

# The kernels of quantized layers: CPU against GPU.
add_library(quantized_layer_cases OBJECT
  quantizer_cpu_gpu_test.cpp
  code_gradients_test.cpp
  fixed_point_cpu_gpu_test.cpp
  tensor_core_products_test.cpp
  weight_codes_test.cpp
  range_search_cpu_gpu_test.cpp
  integer_cpu_gpu_test.cpp)  # last: it leaves the most memory behind
steelyard_test_target(quantized_layer_cases steelyard::kernels)

# Every float pattern, one pair of parameters; STEELYARD_LONG_TESTS=1 in the environment takes more.
steelyard_add_tests(fake_quantize_exhaustive_test
  SOURCES fake_quantize_exhaustive_test.cpp quant_plan/quant_half_patterns_test.cpp
  DEPENDS steelyard::kernels
  AGAIN x86-64-v3)
# Their own loops over every pattern take the time.
set_source_files_properties(fake_quantize_exhaustive_test.cpp quant_plan/quant_half_patterns_test.cpp PROPERTIES
  COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)

steelyard_add_tests(integer_kernels_test
  SOURCES integer_groups_test.cpp integer_test.cpp
  DEPENDS steelyard::kernels
  AGAIN x86-64-v2 x86-64-v3 eigen
  LABELS quick)

# A program of this build on processors that lack instructions which this machine has: it chooses its kernels by what
# the processor says, and nothing of it needs more.
find_program(STEELYARD_QEMU qemu-x86_64)
if(STEELYARD_BUILT_LEVELS STREQUAL "v2;v3;v4" AND STEELYARD_QEMU)
  set(nehalem Nehalem)
  set(haswell Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid)
  foreach(processor nehalem haswell)
    add_test(NAME ${processor}.integer_kernels_test
      COMMAND ${STEELYARD_QEMU} -cpu ${${processor}} $<TARGET_FILE:integer_kernels_test>)
    add_test(NAME ${processor}.quant_plan_test
      COMMAND ${STEELYARD_QEMU} -cpu ${${processor}} $<TARGET_FILE:quant_plan_test> --gtest_filter=*uarantees*)
    set_tests_properties(${processor}.integer_kernels_test ${processor}.quant_plan_test PROPERTIES
      FAIL_REGULAR_EXPRESSION "Running 0 tests" ENVIRONMENT OMP_NUM_THREADS=1)
  endforeach()
  add_test(NAME core2duo.integer_kernels_test
    COMMAND ${STEELYARD_QEMU} -cpu core2duo $<TARGET_FILE:integer_kernels_test>)
  set_tests_properties(core2duo.integer_kernels_test PROPERTIES
    PASS_REGULAR_EXPRESSION "expected a processor with the instructions of x86-64-v2, got an older one")
endif()

# The same where qemu has no such processor: without AVX-512, with and without AVX-VNNI.
if(STEELYARD_BUILT_LEVELS STREQUAL "v2;v3;v4")
  add_library(older_processor MODULE ${PROJECT_SOURCE_DIR}/tests/support/older_processor.cpp)
  target_compile_features(older_processor PRIVATE cxx_std_20)
  target_link_libraries(older_processor PRIVATE $<BUILD_INTERFACE:steelyard_warnings>)
  foreach(kept avx2 avx-vnni)
    add_test(NAME ${kept}.integer_kernels_test COMMAND integer_kernels_test)
    set_tests_properties(${kept}.integer_kernels_test PROPERTIES
      FAIL_REGULAR_EXPRESSION "Running 0 tests" SKIP_REGULAR_EXPRESSION "CPUID does not fault here"
      ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:older_processor>;OLDER_PROCESSOR=${kept}")
  endforeach()
endif()

# Device code keeps IEEE division, denormals, and separate products and sums but for the fused ones
# that are counted here: looked up in its PTX.
# Needs the compiler, no GPU and no CUDA build.
find_program(STEELYARD_NVCC nvcc HINTS /usr/local/cuda/bin)
if(STEELYARD_NVCC)
  foreach(source
      tests/kernels/affine_ptx.cu
      kernels/fake_quantize/cuda.cu
      kernels/histogram_ranges/cuda.cu
      kernels/integer_groups/cuda.cu
      kernels/percentile/cuda.cu
      kernels/quant_plan/cuda_backward.cu
      kernels/quant_plan/cuda_forward.cu
      kernels/quant_plan/cuda_parameter_gradients.cu
      kernels/quant_plan/cuda_statistics.cu
      kernels/quantizer_state/cuda.cu
      kernels/shrunken_range/cuda.cu
      kernels/weight_codes/cuda.cu
      kernels/wide_codes/cuda.cu)
    cmake_path(GET source STEM stem)
    if(stem STREQUAL "cuda")  # of the family that its folder names
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(GET folder STEM stem)
    endif()
    string(REGEX REPLACE "^cuda_" "quant_" stem ${stem})  # of the plan's kernels
    # Those of multiples.h and extremes.h, as often as nvcc 13.0 writes them in a source's kernels.
    set(fused 0)
    if(stem STREQUAL "affine_ptx")
      set(fused 9)
    elseif(stem STREQUAL "quant_backward")
      set(fused 182)
    elseif(stem STREQUAL "quant_forward")
      set(fused 288)
    elseif(stem STREQUAL "quant_statistics")
      set(fused 209)
    endif()
    set(divisions f32,f64)
    if(stem MATCHES "histogram_ranges|percentile")
      set(divisions f64)
    elseif(stem STREQUAL "integer_groups")
      set(divisions)
    elseif(stem MATCHES "wide_codes")
      set(divisions f32)
    endif()
    add_test(NAME ptx.${stem}
      COMMAND ${CMAKE_COMMAND} -DNVCC=${STEELYARD_NVCC} -DHOST_COMPILER=${CMAKE_CXX_COMPILER}
        -DSOURCE=${PROJECT_SOURCE_DIR}/${source} -DINCLUDE=${STEELYARD_INCLUDE_DIR}
        -DPTX=${CMAKE_CURRENT_BINARY_DIR}/${stem}.ptx -DARCHITECTURE=90
        -DFUSED=${fused} -DDIVISIONS=${divisions}
        -P ${CMAKE_CURRENT_SOURCE_DIR}/check_ptx.cmake)
  endforeach()
endif()

# The same tests on a GPU.
steelyard_add_gpu_tests(quant_plan_cuda_test
  SOURCES $<TARGET_OBJECTS:quant_plan_cases> quant_plan/quant_cpu_gpu_test.cpp quant_plan/quant_cuda_memory.cpp quant_plan/quant_device_cuda.cpp
  DEPENDS steelyard::kernels)
steelyard_add_gpu_tests(quantized_layer_cuda_test
  SOURCES $<TARGET_OBJECTS:quantized_layer_cases> quant_plan/quant_cuda_memory.cpp quant_plan/quant_device_cuda.cpp
  DEPENDS steelyard::kernels)
