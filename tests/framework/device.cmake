# Tests that run on a GPU, and, with the emulated one, everywhere.
add_library(device_cases OBJECT
  device/device_conversion_test.cpp
  device/device_decoder_ops_test.cpp
  device/device_evaluate_test.cpp
  device/device_kernels_test.cpp
  device/device_norms_pools_test.cpp
  device/device_ops_test.cpp
  device/device_optimizer_test.cpp
  device/device_products_test.cpp
  device/device_captured_steps_test.cpp
  device/device_step_profile_test.cpp
  device/device_tensor_test.cpp
  device/device_training_test.cpp)
steelyard_test_target(device_cases steelyard::layers)
steelyard_add_gpu_tests(device_tests
  SOURCES $<TARGET_OBJECTS:device_cases> device/held_queue_cuda.cpp
  DEPENDS steelyard::layers GTest::gmock_main)
steelyard_add_tests(device_emulated_tests
  SOURCES
    $<TARGET_OBJECTS:device_cases>
    device/held_queue_emulated.cpp
    device/emulated_delays_test.cpp
    device/emulated_device_test.cpp
    device/emulated_orders_test.cpp
    $<TARGET_OBJECTS:emulated_kernels>
    $<TARGET_OBJECTS:emulated_gpu>
  DEPENDS steelyard::layers cuda_emulation
  PREFIX emulated.)
