// Where a graph that cannot be imported as a whole is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"
#include "steelyard/import/translate.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

// The part of a graph that can be imported gives values, and what stays as it is reads them.
struct Cut {
  std::vector<std::string> values;  // as choose_outputs() wants them
  std::size_t nodes = 0;            // that stay
  double weights = 0;               // their part of the file's weights, from 0 to 1
  std::vector<UnsupportedNode> reasons;
  std::vector<std::string> constants;  // of the file, and frozen inputs, that the rest reads
};

// Nothing where a graph can be imported as a whole. The imported part is as large as it can be
// without anything before it that stays. Throws UnsupportedGraph where there is none.
std::optional<Cut> cut_of(const OnnxModel& model, const SampleSpec& sample);

// "behind boxes, scores: 14 of 120 nodes with 0.3 % of the weights stay as they are (nms
// (NonMaxSuppression): not supported)".
std::string to_string(const Cut& cut, const OnnxModel& model);

}  // namespace steelyard::imports
