// Language models of a run as folders of Hugging Face's transformers, and what such a folder holds
// beside the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/weight_comparison.h"

namespace steelyard {

// The folder that a run's model came from. Throws InputError where it is not there, or is another
// one than the run began with.
std::filesystem::path source_huggingface(const LoadedRun& run);

struct HuggingfaceFiles {
  std::vector<std::filesystem::path> paths = {};
  std::int64_t floats = 0, rounded = 0;  // values beside the codes; of them, by the source's type
};

// Writes a run whose model is of `model.huggingface` into a folder: config.json, model.safetensors
// with the source's names, and the source's tokenizer. Layers with integer weights are stored as
// compressed-tensors has them; other tensors keep the source's type, which rounds what was trained,
// unless one of their values would be infinite in it. Throws InputError as source_huggingface(), or
// where that is `folder` itself or this has a model in several files.
HuggingfaceFiles write_huggingface(const LoadedRun& run, const std::filesystem::path& folder);

// An exported folder beside a run's model.
struct HuggingfaceComparison : WeightComparison {
  std::string problem = {};  // of the folder itself, before anything was compared; "" without one
  std::int64_t tokens = 0;  // that the model of the folder alone was run on; 0 with inputs of codes
  std::int64_t differing_tokens = 0;  // with a logit of other bits
};

// Rounds the floats of the run's model as the folder's types do. Compares the network and the
// layers that config.json describes with the run's, what the folder's weights stand for with what
// training computes with, and where the inputs of layers are floats the logits, on at most
// `samples` sequences of the test set. Throws InputError for a folder that is no such model.
HuggingfaceComparison compare_huggingface(const LoadedRun& run, const std::filesystem::path& folder,
                                          std::int64_t samples);

}  // namespace steelyard
