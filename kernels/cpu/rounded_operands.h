// Operands of products whose precision is bf16, where no instruction multiplies bf16. Private to
// the CPU's kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"

namespace steelyard::kernels {

// Whether an instruction multiplies the operands of bf16 products.
inline bool has_bf16(const CpuProducts& products) {
  return products.backend == Backend::kOneDnn && onednn::has_bf16();
}

// Where float32 products ask for bf16 and the backend does not round operands itself: a and b are
// rounded copies while this lives, and the products those of float32. Doubles are left alone.
class RoundedOperands {
 public:
  template <typename T>
  RoundedOperands(CpuProducts& products, const T*& a, std::int64_t a_size, const T*& b,
                  std::int64_t b_size) {
    if constexpr (std::is_same_v<T, float>) {
      if (!is_needed(products)) return;
      a = (a_ = rounded(a_size, a)).get();
      b = (b_ = rounded(b_size, b)).get();
      products.precision = MatmulPrecision::kFloat32;
    }
  }

 private:
  static bool is_needed(const CpuProducts& products);
  static std::unique_ptr<float[]> rounded(std::int64_t n, const float* values);

  std::unique_ptr<float[]> a_, b_;
};

}  // namespace steelyard::kernels
