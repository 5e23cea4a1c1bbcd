// Operands of products whose precision is bf16, where no instruction multiplies bf16. Private to
// kernels/cpu.
#pragma once

#include <cstdint>
#include <memory>

#include "steelyard/kernels/backend.h"

namespace steelyard::kernels {

// True where float32 products ask for bf16 and the backend does not round operands itself.
bool must_round_operands(const CpuProducts& products);

// n values, each rounded to bf16 and widened again.
std::unique_ptr<float[]> rounded_to_bf16(std::int64_t n, const float* values);

}  // namespace steelyard::kernels
