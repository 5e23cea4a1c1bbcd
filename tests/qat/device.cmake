# Tests that run on a GPU, and, with the emulated one, everywhere.
set(qat_device_tests device_fold_test.cpp device_test.cpp)
steelyard_add_tests(qat_device_tests
  SOURCES ${qat_device_tests}
  DEPENDS steelyard::export
  LABELS once)
steelyard_add_tests(qat_device_emulated_tests
  SOURCES
    ${qat_device_tests}
    emulated_launches_test.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::export cuda_emulation
  PREFIX emulated.
  LABELS once)
