// From a float network and data without labels to its quantized form: ranges are found in several
// ways, the network is fine-tuned on its own float outputs where that is not enough, and what
// integers would spoil stays in float.
//
// Every step is a run in a folder of its own; what it gave is written to search.json, so that a
// search that was stopped goes on after its last step.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/train/trainer_callback.h"
#include "steelyard/recipes/runs/graph_costs.h"
#include "steelyard/recipes/searches/fidelity.h"
#include "steelyard/recipes/searches/found_recipe.h"
#include "steelyard/recipes/searches/whole_file.h"

namespace steelyard {

// A user's own measure of an ONNX file, the larger the better.
struct OwnScore {
  std::string name = {};  // what another search is told by
  std::function<double(const std::filesystem::path& onnx)> of = {};
  double most_loss = 1;  // good enough: at most so many percent below the float file's
};

struct SearchStep {
  std::string name;  // and its folder's: "histogram"
  std::string what;  // for people
  // The checkpoint of its run: "last" or "best".
  std::string checkpoint = "last";
  Fidelity fidelity = {};  // on the validation samples
  GraphCosts costs = {};
  std::optional<double> score = {};  // of OwnScore
  double seconds = 0;
};

struct QuantizationSearch {
  std::filesystem::path folder;
  bool overwrites = false;  // begins again in a folder that holds a search
  int weight_bits = 8, activation_bits = 8;
  // The most sensitive modules get activations of 16 bits, instead of staying in float.
  bool widens = false;
  // No step begins with less time left than the one before took, and training gets as many epochs
  // as are expected to fit; a step that has begun is finished.
  double minutes = 30;
  FidelityGoal goal = {};
  std::optional<OwnScore> score = {};   // decides in the goal's place
  std::optional<WholeFile> whole = {};  // of a graph that was cut: the goal is for its outputs
  double most_float = 0.1;              // the part of quantizable layers' multiplications in float
  // Called with a line about the data or the model that the user should know.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  // Called when a step begins, with what it does, and when it is done.
  std::function<void(const std::string&)> begins = [](const std::string&) {};
  std::function<void(const SearchStep&)> done = [](const SearchStep&) {};
  std::vector<TrainerCallback*> watchers = {};  // see every step of training
  const std::atomic<bool>* stop = nullptr;      // ends the search after saving
};

struct SearchResult {
  bool interrupted = false;
  std::vector<SearchStep> steps = {};
  std::size_t chosen = 0;
  bool enough = false;                     // whether it is good enough
  bool whole = false;                      // whether outputs behind the cut were compared
  std::optional<double> float_score = {};  // of OwnScore
  std::vector<std::string> reasons = {};   // why no further step was tried, a line each
  Fidelity test = {};                      // of the chosen one, on samples that chose nothing
  std::vector<std::string> worst = {};     // the name of the worst test sample of each output
  std::filesystem::path run = {};          // the chosen step's folder
};

// Throws InputError for what Experiment, Run and export refuse, and for a folder that holds another
// search.
SearchResult search_quantization(const FoundRecipe& found, const QuantizationSearch& how,
                                 const Registries& registries);

}  // namespace steelyard
