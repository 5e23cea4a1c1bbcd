// Weights of a file that training, or a teacher, begins with.
#pragma once

#include <filesystem>
#include <vector>

#include "steelyard/framework/module.h"
#include "steelyard/framework/safetensors.h"

namespace steelyard {

// Copies a checkpoint or another safetensors file into a module on the CPU, as load_tensors() and
// load_into() do (framework/checkpoint.h). Throws InputError naming the file and the tensor also
// for values that no training gives: NaN, infinite ones, those beyond float32 and negative
// variances of batch norms. Gives what the file holds.
std::vector<NamedTensor> load_trained_weights(Module& module, const std::filesystem::path& path);

}  // namespace steelyard
