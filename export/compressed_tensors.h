// Linear layers with integer weights as compressed-tensors 0.20 stores them, for vLLM and
// transformers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/named_tensor.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::deploy {

struct CompressedLayer {
  std::string name;
  qat::QConfig config;
  Tensor codes;   // i8 [out, in]
  Tensor scales;  // f32, one, or one for each output or group of its weights
};

// Why such a layer has no form there; "" where it has.
std::string refusal_of_compressed(const qat::QConfig& config);

// Its tensors: `weight` i8 and `weight_scale`, or `weight_packed`, `weight_scale` and
// `weight_shape`, each behind the layer's name.
std::vector<NamedTensor> compressed_tensors(const CompressedLayer& layer);

inline constexpr const char* kCompressionSection = "quantization_config";

// This section of config.json: what these layers are, and the names of linear
// layers that stay in float.
nlohmann::ordered_json compression_config(const std::vector<CompressedLayer>& layers,
                                          const std::vector<std::string>& in_float);

// Signed codes i8 [rows, columns] plus 2^(bits - 1), one after another with the first in the lowest
// bits: i32 [rows, ceil(columns * bits / 32)], and back.
Tensor pack_bits(const Tensor& codes, int bits);
Tensor unpack_bits(const Tensor& packed, int bits, std::int64_t columns);

}  // namespace steelyard::deploy
