// Transposes that move the batch to another dimension.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// The nodes with slices in front of such a Transpose. Attention is often written so: queries, keys
// and values are one tensor, a Transpose brings the dimension of the three to the front, and each
// is taken from there, by Slice or Split and Squeeze, or by Gather. Taken before, the batch stays
// in front. `outputs` are the values that the model gives.
std::vector<OnnxNode> with_batch_first(std::vector<OnnxNode> nodes,
                                       const std::map<std::string, Constant>& constants,
                                       const std::vector<std::string>& outputs);

}  // namespace steelyard::imports
