// Which implementation of the CPU's dense kernels runs: the Eigen reference (always there) or
// oneDNN.
//
// Kernels take the backend as an argument; both obey the same contract and pass the same tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "steelyard/kernels/matmul_precision.h"

namespace steelyard::kernels {

enum class Backend { kEigen, kOneDnn };

// The backend's name in messages and in STEELYARD_CPU_BACKEND: "eigen" or "onednn".
std::string_view backend_name(Backend backend);

// The backends this build holds, Eigen first.
std::vector<Backend> available_backends();

// The backend operations use: STEELYARD_CPU_BACKEND when set (an unknown or absent name throws
// std::invalid_argument), otherwise the fastest that was built. Read once per process.
Backend default_backend();

// The default backend and the instructions that kernels and oneDNN chose on this processor, for
// people and to compare two machines: "onednn, kernels x86-64-v4, oneDNN's instructions 3ef".
std::string backend_text();

// What computes float32 products on the CPU, and how. Without TF32, which no CPU has.
struct CpuProducts {
  CpuProducts(Backend b, MatmulPrecision p = MatmulPrecision::kFloat32)  // NOLINT: a backend is one
      : backend(b), precision(p) {}
  Backend backend;
  MatmulPrecision precision;
};

// The precision of products on the default backend, for the whole process: float32 unless changed,
// which nothing may compute meanwhile.
MatmulPrecision& cpu_matmul_precision();
// The default backend with that precision.
CpuProducts default_products();

// Number of threads the CPU kernels use. Kernels that promise the same bits give them with any
// number (docs/numerics.md).
int num_threads();
void set_num_threads(int threads);

}  // namespace steelyard::kernels
