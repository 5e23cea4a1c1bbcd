# Tests that run on a GPU, and, with the emulated one, everywhere.
steelyard_add_tests(qat_device_tests
  SOURCES device_test.cpp
  DEPENDS steelyard::export
  LABELS once)
steelyard_add_tests(qat_device_emulated_tests
  SOURCES
    device_test.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::export cuda_emulation
  PREFIX emulated.
  LABELS once)
