// A weighted layer in the plan.
#pragma once

#include <string>
#include <vector>

#include "steelyard/qat/prepare/plan.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

// A row of the plan. The model itself has an empty path.
PlanRow plan_row(const std::string& path, const std::string& tensor, const std::string& quantized,
                 const std::string& observer, const std::string& note);
// A row of the plan for a tensor with a quantizer.
PlanRow plan_row(const std::string& path, const std::string& tensor, const QuantizerConfig& config,
                 const std::string& note);

// A weighted layer with what it takes along; empty paths stand for what is not there.
struct LayerRows {
  std::string path;
  std::string norm;
  std::string activation;

  // Left in float: why.
  std::vector<PlanRow> in_float(const std::string& reason) const;
  // Quantized. `scaled_sums`: the product is a sum of scaled integer sums. `reads_codes`: whether
  // its input has codes whatever its group says. `float_output`: why its output stays in float
  // although its group has activations.
  std::vector<PlanRow> quantized(const QConfig& config, bool has_bias, bool scaled_sums,
                                 BatchNormFold bn_fold, bool reads_codes,
                                 const std::string& float_output) const;
};

}  // namespace steelyard::qat
