# Tests that run on a GPU, and, with the emulated one, everywhere.
add_library(qat_device_cases OBJECT
  device/device_bf16_test.cpp device/device_blocks_test.cpp device/device_fold_test.cpp device/device_layers_test.cpp device/device_test.cpp)
steelyard_test_target(qat_device_cases steelyard::export)
steelyard_add_gpu_tests(qat_device_tests
  SOURCES $<TARGET_OBJECTS:qat_device_cases>
  DEPENDS steelyard::export GTest::gmock_main)
steelyard_add_tests(qat_device_emulated_tests
  SOURCES
    $<TARGET_OBJECTS:qat_device_cases>
    device/emulated_launches_test.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::export cuda_emulation
  PREFIX emulated.)
