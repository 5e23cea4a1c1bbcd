// The error that every CUDA function throws in a build without CUDA.
#pragma once

#include <stdexcept>

namespace steelyard::kernels {

[[noreturn]] inline void cuda_is_absent() {
  throw std::runtime_error("[cuda] built without CUDA: configure with -DSTEELYARD_CUDA=ON");
}

}  // namespace steelyard::kernels
