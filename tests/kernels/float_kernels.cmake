steelyard_add_tests(float_kernels_test
  SOURCES
    conv_test.cpp
    elementwise_test.cpp
    matmul_test.cpp
    norm_test.cpp
    pool_test.cpp
    softmax_test.cpp
  DEPENDS steelyard::kernels)
