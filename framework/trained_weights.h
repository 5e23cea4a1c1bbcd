// Weights of a file that training, or a teacher, begins with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/module.h"
#include "steelyard/framework/safetensors.h"

namespace steelyard {

struct WeightsFile {
  std::vector<NamedTensor> tensors;
  std::string entry = {};  // of a PyTorch file: TorchFile::entry
};

// Reads a checkpoint or another safetensors file (load_tensors()), or one that PyTorch wrote
// (framework/torch_file.h): what it is its content says. Throws InputError.
WeightsFile read_weights(const std::filesystem::path& path);

// Throws InputError naming the file and the tensor for values that no training gives: NaN, infinite
// ones, those beyond float32 and negative variances of batch norms.
void require_trained_values(const std::vector<NamedTensor>& tensors,
                            const std::filesystem::path& path);

// Copies a file of read_weights() into a module on the CPU, as load_into() does, and checks its
// values. Gives what the file holds.
WeightsFile load_trained_weights(Module& module, const std::filesystem::path& path);

}  // namespace steelyard
