# Not among the quick tests: as many as a quarter of all, each a process of its own.
steelyard_add_tests(float_kernels_test
  SOURCES
    activation_test.cpp
    conv_test.cpp
    divisor_test.cpp
    elementwise_test.cpp
    embedding_test.cpp
    layer_norm_test.cpp
    line_buffer_test.cpp
    matmul_test.cpp
    norm_test.cpp
    optimizer_step_test.cpp
    pool_test.cpp
    scan_test.cpp
    softmax_test.cpp
    unary_test.cpp
  DEPENDS steelyard::kernels
  AGAIN x86-64-v2 x86-64-v3 eigen)
