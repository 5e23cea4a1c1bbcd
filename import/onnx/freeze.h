// Constants in the place of a model's inputs, and the branches that they choose.
#pragma once

#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// Makes constants of inputs, each given as "sr=16000" or, with several values, "scale=1,0.5": of
// the input's type and shape, in which one dimension may be free. Throws InputError.
void freeze_inputs(OnnxModel& model, const std::vector<std::string>& given);

// The nodes of the branch that an If takes whose condition is a constant of the model, which gets
// the branch's constants too; nodes that give the If's outputs are the last. Empty for other nodes.
std::vector<OnnxNode> chosen_branch(OnnxModel& model, const OnnxNode& node);

}  // namespace steelyard::imports
