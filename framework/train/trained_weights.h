// Weights that training, or a teacher, loads from a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/files/safetensors.h"

namespace steelyard {

struct WeightsFile {
  std::vector<NamedTensor> tensors;
  std::string entry = {};  // of a PyTorch file: TorchFile::entry
};

// Reads a checkpoint or another safetensors file (load_tensors()), or one that PyTorch wrote
// (framework/files/torch_file.h): the format is recognized by content. Throws InputError.
WeightsFile read_weights(const std::filesystem::path& path);

// Throws InputError naming the file and the tensor for values that no training gives: NaN, infinite
// ones, those beyond float32 and negative variances of batch norms.
void require_trained_values(const std::vector<NamedTensor>& tensors,
                            const std::filesystem::path& path);

// Loads a file with read_weights(), checks its values and copies them into a module on the CPU, as
// load_into() does. Returns the contents of the file.
WeightsFile load_trained_weights(Module& module, const std::filesystem::path& path);

}  // namespace steelyard
