// The rows of the plan that a decision gives.
#pragma once

#include <vector>

#include "steelyard/qat/prepare/decisions.h"
#include "steelyard/qat/prepare/plan.h"

namespace steelyard::qat {

// What is known of a quantized layer once it is made.
struct LayerFacts {
  bool has_bias = false;
  bool has_groups = false;  // its weights have several scales for an output
  std::string codes_of{};   // the layer whose weights and their quantizer it shares; else empty
};

std::vector<PlanRow> rows_of(const Decisions& all, const Decision& decision,
                             const LayerFacts& facts, BatchNormFold bn_fold);

// The row of the model's input.
PlanRow input_row(const QuantizerConfig& config);

}  // namespace steelyard::qat
