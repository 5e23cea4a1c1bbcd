#include "steelyard/export/compressed_tensors.h"

#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/qat/quantizers/words.h"

namespace steelyard::deploy {
namespace {

constexpr int kWordBits = 32;
constexpr int kBitsOfByte = 8;

// Two formats: a byte for each code where products are of bytes, and packed codes elsewhere.
bool is_packed(const qat::QConfig& config) {
  return config.weights->scheme.bits != kBitsOfByte || !config.activations;
}

const char* format_of(const qat::QConfig& config) {
  return is_packed(config) ? "pack-quantized" : "int-quantized";
}

// QuantizationArgs.
nlohmann::ordered_json arguments_of(const observers::QScheme& scheme) {
  nlohmann::ordered_json arguments{{"num_bits", scheme.bits},
                                   {"type", "int"},
                                   {"symmetric", scheme.symmetric},
                                   {"strategy", word_of(scheme.granularity)},
                                   {"dynamic", scheme.dynamic}};
  if (scheme.granularity == kernels::Granularity::kGroup) {
    arguments["group_size"] = scheme.group_size;
  }
  return arguments;
}

std::uint32_t lowest(int bits) { return (std::uint32_t{1} << bits) - 1; }

}  // namespace

std::string refusal_of_compressed(const qat::QConfig& config) {
  if (!config.weights) return "its weights are float, compressed-tensors has no such layers";
  const observers::QScheme& weights = config.weights->scheme;
  if (!weights.symmetric) return "expected symmetric weights";
  if (weights.wide()) return "expected weights of at most 8 bits";
  if (!config.activations) return "";
  const observers::QScheme& inputs = config.activations->scheme;
  if (!inputs.dynamic) {
    return "expected activations with dynamic: true, of which the reader computes scales as "
           "training does";
  }
  if (inputs.bits != kBitsOfByte) return "expected activations of 8 bits";
  if (inputs.granularity == kernels::Granularity::kBlock) {
    return "expected activations of the strategy token or group";
  }
  return "";
}

std::vector<NamedTensor> compressed_tensors(const CompressedLayer& layer) {
  const std::int64_t rows = layer.codes.dim(0), columns = layer.codes.dim(1);
  const bool whole = layer.config.weights->scheme.granularity == kernels::Granularity::kTensor;
  const Shape grid = whole ? Shape{1} : Shape{rows, layer.scales.size() / rows};
  std::vector<NamedTensor> tensors{{layer.name + ".weight_scale", layer.scales.reshape(grid)}};
  if (!is_packed(layer.config)) {
    tensors.push_back({layer.name + ".weight", layer.codes});
    return tensors;
  }
  const int bits = layer.config.weights->scheme.bits;
  tensors.push_back({layer.name + ".weight_packed", pack_bits(layer.codes, bits)});
  tensors.push_back(
      {layer.name + ".weight_shape", Tensor::from(std::vector<std::int64_t>{rows, columns}, {2})});
  return tensors;
}

nlohmann::ordered_json compression_config(const std::vector<CompressedLayer>& layers,
                                          const std::vector<std::string>& in_float) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::object();
  std::map<std::string, std::string> group_of;  // by its description
  std::map<std::string, bool> formats;
  for (const CompressedLayer& layer : layers) {
    nlohmann::ordered_json group{{"targets", nlohmann::ordered_json::array()},
                                 {"format", format_of(layer.config)},
                                 {"weights", arguments_of(layer.config.weights->scheme)},
                                 {"input_activations", nullptr}};
    if (layer.config.activations) {
      group["input_activations"] = arguments_of(layer.config.activations->scheme);
    }
    formats[format_of(layer.config)] = true;
    const auto [name, is_new] =
        group_of.emplace(group.dump(), "group_" + std::to_string(group_of.size()));
    if (is_new) groups[name->second] = group;
    groups[name->second]["targets"].push_back(layer.name);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", formats.size() == 1 ? formats.begin()->first : "mixed-precision"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", in_float}};
}

Tensor pack_bits(const Tensor& codes, int bits) {
  const std::int64_t rows = codes.dim(0), columns = codes.dim(1);
  const std::int64_t words = (columns * bits + kWordBits - 1) / kWordBits;
  Tensor packed = Tensor::zeros({rows, words}, DType::kI32);
  const std::int8_t* from = codes.data<std::int8_t>();
  const int half = 1 << (bits - 1);
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* row = reinterpret_cast<std::uint32_t*>(packed.data<std::int32_t>() + r * words);
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto number = static_cast<std::uint32_t>(from[r * columns + c] + half);
      const std::int64_t bit = c * bits;
      const int shift = static_cast<int>(bit % kWordBits);
      row[bit / kWordBits] |= number << shift;
      if (shift + bits > kWordBits) row[bit / kWordBits + 1] |= number >> (kWordBits - shift);
    }
  }
  return packed;
}

Tensor unpack_bits(const Tensor& packed, int bits, std::int64_t columns) {
  const std::int64_t rows = packed.dim(0), words = packed.dim(1);
  Tensor codes = Tensor::zeros({rows, columns}, DType::kI8);
  std::int8_t* to = codes.data<std::int8_t>();
  const int half = 1 << (bits - 1);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* row =
        reinterpret_cast<const std::uint32_t*>(packed.data<std::int32_t>() + r * words);
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t bit = c * bits;
      const int shift = static_cast<int>(bit % kWordBits);
      std::uint32_t number = row[bit / kWordBits] >> shift;
      if (shift + bits > kWordBits) number |= row[bit / kWordBits + 1] << (kWordBits - shift);
      to[r * columns + c] =
          static_cast<std::int8_t>(static_cast<int>(number & lowest(bits)) - half);
    }
  }
  return codes;
}

}  // namespace steelyard::deploy
