// The choice of a bit width for each layer within a budget, from measured sensitivities, and the
// recipe with these widths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/recipes/searches/sensitivity.h"

namespace steelyard {

struct WidthBudget {
  enum class Unit {
    kBitsPerWeight,  // mean over the weights of all layers
    kBytes,          // of these layers' exported parameters: packed codes, scales, biases
    kFlashBytes,     // of all constants of the program in C: Sensitivity::flash_beside_layers, too
    kBitOperations   // a sample: multiplications * width of weights * width of activations
  };
  Unit unit = Unit::kBitsPerWeight;
  double amount = 0;
};

struct ChosenWidth {
  std::string layer;
  std::string type;
  std::int64_t weights = 0;
  QuantizationEffect effect;  // of the chosen width
};

struct WidthPlan {
  std::vector<ChosenWidth> layers = {};
  // The width of all activations, 32 where they stay in float; nothing: the run's own, which
  // differ.
  std::optional<int> activation_bits = {};
  double divergence = 0;  // the objective: the sum of the layers'
  double bits_per_weight = 0;
  std::int64_t bytes = 0;                           // of the quantized layers' parameters
  std::optional<std::int64_t> flash_bytes = {};     // where flash_beside_layers is known
  std::optional<std::int64_t> bit_operations = {};  // where activations have one width
};

// What the plan costs: "4.1 bits a weight, 5400 bytes of parameters, ...".
std::string to_string(const WidthPlan& plan);

// The widths of weights, among those measured to leave outputs finite, whose divergences have the
// least sum that the budget allows, exactly; activations have `activation_bits`, or their widths in
// the run. The sum stands for the whole: each layer's error is taken to move the outputs
// independently of the others' (Cai et al., ZeroQ, arXiv:2001.00281, whose sensitivity this is;
// HAWQ-V3, arXiv:2011.10680, solves the same problem by integer programming).
//
// Throws InputError when the budget is below what the smallest widths need, for a layer at no width
// of which outputs are finite, for a budget of bit operations where activations have several widths
// and for `activation_bits` where none is quantized. Of layers that are not measured yet
// (SensitivityOptions::check) it chooses some widths, and throws likewise.
WidthPlan choose_widths(const Sensitivity& sensitivity, const WidthBudget& budget,
                        std::optional<int> activation_bits);

// Throws InputError for a quantized run without init.checkpoint, for which
// mixed_precision_recipe() can write nothing.
void require_float_start(const Recipe& run);

// What such a recipe begins with.
inline constexpr std::string_view kWidthsTitle = "# Widths chosen by steelyard sensitivity";

// The recipe that fine-tunes with these widths, resolved, with comments that say what was found:
// the run's recipe, its groups divided by widths, and weights from the run's checkpoint. A float
// run's recipe gets learned scales (lsq), a tenth of its learning rates, a first epoch of warmup
// and nothing that was said of its own training (train.only, batch norms in the schedule). A
// quantized run's starts where that run did, since its own checkpoint is no float model's: throws
// as require_float_start(). `overrides` are those of parse_recipe().
std::string mixed_precision_recipe(const Recipe& run, const Sensitivity& sensitivity,
                                   const WidthPlan& plan, const std::vector<std::string>& overrides,
                                   const Registries& registries);

}  // namespace steelyard
