// Datasets of the user's own in safetensors files, whose inputs may be larger than memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// Reads train.safetensors and test.safetensors of a folder, or their shards, named as
// train-00001-of-00004.safetensors. Each file holds exactly two tensors: `inputs` [N, ...], u8,
// floats, or other integers, which are whole numbers in f32 (arrays/stored_array.h); and `targets`,
// integer labels [N] below kMaxClasses or floating values [N, ...], where [N] is read as [N, 1].
// With `request.inputs`, tensors of those names are there instead of one (named_inputs.h). The
// number of classes is the largest label of the training set + 1; kTest reads test.safetensors
// alone, with its own largest label; it may be absent where `request.test_samples` are set aside.
// Targets are converted as `request.targets` says. Without labels, only the inputs are looked for,
// and the path may be a file. Throws InputError that names the file and what
// it expected.
DatasetSplits load_safetensors_dataset(const DatasetRequest& request);
// The inputs of any safetensors file, as such a dataset has them. Throws InputError where one is
// missing.
Dataset load_safetensors_inputs(const std::filesystem::path& path,
                                const std::vector<std::string>& inputs = {});

}  // namespace steelyard
