// Samples in files of their own, an array in each.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "steelyard/framework/data/sample_source.h"

namespace steelyard {

// The arrays of .npy files, each of which is one sample, read when it is asked for. Throws
// InputError for files whose samples have another dtype or shape than that of the first; read()
// throws it for a file that has another one by then, and as array_samples() does.
std::shared_ptr<const SampleSource> array_files(std::vector<std::filesystem::path> paths);

}  // namespace steelyard
