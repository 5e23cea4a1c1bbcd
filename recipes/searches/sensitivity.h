// Sensitivity analysis: the effect of quantizing each layer of a trained network alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/schema/derived_recipe.h"

namespace steelyard {

struct Sensitivity;

// The width of what is not quantized.
inline constexpr int kFloatBits = 32;

struct SensitivityOptions {
  std::string checkpoint = "last";
  std::vector<int> bits{8, 4, 3, 2};
  std::int64_t samples = 1000;  // at most; of the validation split, else of the test set
  std::int64_t batches = 8;     // of training data, at most, for ranges
  ObserverNames observers;
  bool flash = false;  // find Sensitivity::flash_beside_layers, too
  // Called with the layers and their sizes before the first measurement, which takes long; what it
  // throws is thrown.
  std::function<void(const Sensitivity&)> check = {};
  // Share the measurements, and end with the same; null: this process alone.
  comm::Communicator* ranks = nullptr;
};

// The network when one thing is quantized to `bits`, after calibration, compared with the float
// network.
struct QuantizationEffect {
  int bits = 0;
  // The tensor's signal to quantization noise in dB; infinite without error, nothing for all zeros.
  std::optional<double> sqnr_db = {};
  double clipped = 0;  // fraction of the tensor
  double loss_increase = 0;
  std::optional<double> top1_drop = {};  // percentage points, for class targets
  // How far outputs move, mean over samples: Kullback-Leibler divergence of the class probabilities
  // in nats, or the mean squared difference of a regression. At least 0; infinite, as the loss, and
  // without a top-1, where an output is not finite.
  double divergence = 0;
};

struct LayerSensitivity {
  std::string name = {};     // the module's path; "(input)" for the model's
  std::string type = {};     // of a layer with quantized weights: "Linear", "Conv2d"
  std::int64_t weights = 0;  // elements; 0: no weights are quantized here
  int most_bits = 8;         // of the weights: with export.reduce_range 7
  std::int64_t scales = 0;   // of the deployed weights
  bool affine = false;       // whether each scale has a zero point, of one byte
  std::int64_t biases = 0;
  std::int64_t activations = 0;  // elements a sample; 0: none are quantized here
  std::int64_t macs = 0;         // multiplications a sample
  // In the order of the widths.
  std::vector<QuantizationEffect> weight_effects = {};
  // The effects of quantizing its output, together with an input of its own; SQNR and clipping are
  // the output's.
  std::vector<QuantizationEffect> activation_effects = {};
};

struct Sensitivity {
  std::filesystem::path checkpoint;
  std::vector<std::string> notes = {};  // of load_run()
  std::string split;                    // "validation" or "test"
  std::int64_t samples = 0;
  std::int64_t split_samples = 0;  // of which they are spread_samples()
  std::int64_t batches = 0;        // that ranges were measured on
  ObserverNames observers;
  Metrics baseline;  // of the network in float
  std::vector<int> bits;
  // What all activations of the run have, dynamic ones too: 8 for a float run, 32 where none is
  // quantized; nothing where their widths differ.
  std::optional<int> activation_bits = {};
  // Bytes of constants of the program in C that no layer's width changes (device_costs.h).
  std::optional<std::int64_t> flash_beside_layers = {};
  std::vector<LayerSensitivity> layers;
};

// Measures a float run, or a quantized one on its float weights: quantized are what the run
// quantizes (Linear and Conv2d, for a float run), by its placement, signs and strategies, each
// weight tensor alone and each activation alone, with a plain observer and no training. Batch norms
// are folded as in the run (frozen, for a float run). `progress(done, all)` after each measurement.
// Throws InputError for what load_run() refuses, for widths outside 2..8 or given twice and for a
// model with nothing to quantize; SharedInputError where ranks do not measure the same.
Sensitivity measure_sensitivity(const std::filesystem::path& run, const Registries& registries,
                                const SensitivityOptions& options,
                                const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace steelyard
