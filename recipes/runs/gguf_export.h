// Language models of a run as files of llama.cpp's, and what such a file holds beside the run.
#pragma once

#include <cstdint>
#include <filesystem>

#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/weight_comparison.h"

namespace steelyard {

// The GGUF file in an export folder.
std::filesystem::path gguf_path(const std::filesystem::path& folder);

// The file that a run's model came from, which has its metadata and its vocabulary. Throws
// InputError where it is not there, or is another one than the run began with.
std::filesystem::path source_gguf(const LoadedRun& run);

// Writes the weights of a run whose recipe has an export.target into a copy of the file that its
// model came from (source_gguf()).
void write_gguf(const LoadedRun& run, const std::filesystem::path& path);

// A GGUF file beside a run's model.
struct GgufComparison : WeightComparison {
  std::int64_t tokens = 0;            // that the file's model was run on
  std::int64_t differing_tokens = 0;  // with a logit of other bits
};

// Compares what the file's weights stand for with what training computes with, and the logits of
// the model that is built of the file alone with the run's, on at most `samples` sequences of the
// test set. Throws InputError for a file that is no such model.
GgufComparison compare_gguf(const LoadedRun& run, const std::filesystem::path& path,
                            std::int64_t samples);

}  // namespace steelyard
