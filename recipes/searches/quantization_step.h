// The recipes of a search's steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/recipes/language/yaml_document.h"
#include "steelyard/recipes/searches/sensitivity.h"

namespace steelyard {

// How a step quantizes.
struct StepForm {
  ObserverNames observers = {};
  double percentile = 99.99;  // of the observer percentile: of values that stay in the range
  bool equalizes = false;
  bool corrects_biases = false;
  bool learns_rounding = false;
  std::vector<std::string> exempt = {};  // modules in float, or with activations of 16 bits
  std::int64_t epochs = 0;               // 0: calibrates only
  double rate = 0;
};

// What the steps of a search have in common.
struct StepRecipes {
  int weight_bits = 8, activation_bits = 8;
  bool symmetric_activations = false;     // as the profile tensorrt wants them
  bool widens = false;                    // exempt modules have activations of 16 bits
  std::vector<std::string> targets = {};  // types of layers
  std::vector<std::string> layers = {};  // paths of all with weights, for those that are not exempt
  std::int64_t samples = 0;              // to train on
  std::int64_t batch = 0;                // of them, at most
  std::int64_t calibration_samples = 0;
  // Batch norms keep their statistics: the samples are few, and may be others than those that the
  // norms have seen.
  bool freezes_norms = false;

  bool few_bits() const { return weight_bits < 8; }
  std::int64_t training_batch() const;
  // `document`: a recipe without `quantize` and `calibrate`.
  YamlNode recipe_of(YamlNode document, const std::string& name, const StepForm& form) const;

 private:
  YamlNode groups_of(const StepForm& form) const;
};

}  // namespace steelyard
