#include "steelyard/qat/prepare/layer_limits.h"

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::qat {

void require_groups_fit(const QConfig& config, const Tensor& weight, const std::string& place) {
  const std::int64_t outputs = weight.dim(0);
  if (!config.weights || outputs == 0) return;
  const std::int64_t of_output = weight.size() / outputs;
  try {
    observers::scale_count(config.weights->scheme, outputs, of_output);
  } catch (const std::invalid_argument& error) {
    std::int64_t size = config.weights->scheme.group_size;
    while (of_output % size != 0) --size;
    throw InputError(place + ": " + error.what() + " (a group_size of " + std::to_string(size) +
                     " would; quantize.ignore leaves the layer in float)");
  }
}

void require_sums_fit(const observers::QScheme& inputs, const observers::QScheme& weights,
                      const Tensor& weight, const std::string& place) {
  const std::int64_t outputs = weight.dim(0);
  if (outputs == 0) return;
  std::int64_t terms = weight.size() / outputs;
  const bool groups =
      weights.granularity == kernels::Granularity::kGroup && terms > weights.group_size;
  if (groups) terms = weights.group_size;
  if (inputs.granularity == kernels::Granularity::kGroup) {
    terms = std::min(terms, inputs.group_size);
  } else if (inputs.granularity == kernels::Granularity::kBlock) {
    terms = std::min(terms, inputs.block[1]);
  }
  // Wide codes are multiplied byte by byte, except in sums of groups.
  constexpr kernels::CodeRange kByte{0, 255};
  const kernels::CodeRange codes = inputs.wide() && !groups ? kByte : inputs.code_range();
  const std::int64_t most =
      kernels::most_terms(kernels::largest_product(codes, weights.code_range(), weights.symmetric));
  if (terms <= most) return;
  throw InputError(place + ": expected at most " + std::to_string(most) +
                   " products per output, so that their sum fits int32 (weights of " +
                   std::to_string(weights.bits) + " bits, inputs of " +
                   std::to_string(inputs.bits) + "), got " + std::to_string(terms));
}

}  // namespace steelyard::qat
