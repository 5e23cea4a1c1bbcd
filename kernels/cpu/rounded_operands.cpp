#include "steelyard/kernels/cpu/rounded_operands.h"

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

bool RoundedOperands::is_needed(const CpuProducts& products) {
  return products.precision == MatmulPrecision::kBf16 && !has_bf16(products);
}

std::unique_ptr<float[]> RoundedOperands::rounded(std::int64_t n, const float* values) {
  constexpr std::int64_t kGrain = 16384;
  auto rounded = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
  float* const out = rounded.get();
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) out[i] = widen(narrow<BFloat16>(values[i]));
  });
  return rounded;
}

}  // namespace steelyard::kernels
