// The names of matmul precisions in recipes, messages and checkpoints.
#pragma once

#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/matmul_precision.h"

namespace steelyard::kernels {

inline constexpr Word<MatmulPrecision> kMatmulPrecisionWords[] = {
    {MatmulPrecision::kFloat32, "float32"},
    {MatmulPrecision::kTf32, "tf32"},
    {MatmulPrecision::kBf16, "bf16"},
};
static_assert(is_complete<MatmulPrecision>(kMatmulPrecisionWords, MatmulPrecision::kBf16));
constexpr std::span<const Word<MatmulPrecision>> words_of(MatmulPrecision) {
  return kMatmulPrecisionWords;
}

}  // namespace steelyard::kernels
