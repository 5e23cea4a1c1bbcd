// How the products of float32 matrices, convolutions among them, are computed.
#pragma once

namespace steelyard::kernels {

// Operands keep their 24 significant bits or are brought to 11 (TF32) or 8 (bf16), on the CPU to
// the nearest, on a GPU as its library does; sums are float32. Products of float64, and depthwise
// convolutions, ignore it.
enum class MatmulPrecision { kFloat32, kTf32, kBf16 };

}  // namespace steelyard::kernels
