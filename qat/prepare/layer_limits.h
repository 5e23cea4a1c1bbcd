// Requirements on a layer's weights, checked before they are quantized.
#pragma once

#include <string>

#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

// Throws InputError, `place` first, where the weight [O, ...] does not divide into the config's
// groups.
void require_groups_fit(const QConfig& config, const Tensor& weight, const std::string& place);

// Throws InputError, `place` first, unless int32 holds the sums of products of the weights and any
// codes of `inputs`.
void require_sums_fit(const observers::QScheme& inputs, const observers::QScheme& weights,
                      const Tensor& weight, const std::string& place);

}  // namespace steelyard::qat
