// Datasets of the user's own, in two safetensors files.
#pragma once

#include <filesystem>

#include "steelyard/framework/data/targets.h"

namespace steelyard {

// Reads train.safetensors and test.safetensors of a folder. Each holds exactly two tensors:
// `inputs`, u8 or floating, [N, features] or images [N, H, W, C]; and `targets`, integer labels [N]
// below kMaxClasses or floating values [N, ...], where [N] is read as [N, 1]. The number of classes
// is the largest label of the training set + 1; kTest reads test.safetensors alone, with its own
// largest label. Targets are converted as `targets` says.
// Throws InputError that names the file and what it expected.
DatasetSplits load_safetensors_dataset(const std::filesystem::path& folder,
                                       DatasetParts parts = DatasetParts::kAll,
                                       const TargetOptions& targets = {});
// The tensor `inputs` of any safetensors file, as such a dataset has it. Throws InputError where
// there is none.
Tensor load_safetensors_inputs(const std::filesystem::path& path);

}  // namespace steelyard
