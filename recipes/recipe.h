// A training recipe: one strict YAML file, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/model_registry.h"
#include "recipes/yaml_document.h"

namespace steelyard {

// How inputs are normalised.
struct NormalizeSpec {
  std::string type = "dataset";   // dataset, none, given
  std::vector<double> mean = {};  // given: of each channel
  std::vector<double> stddev = {};
};

struct DataSpec {
  std::string dataset = {};
  std::optional<std::string> path = {};
  std::int64_t batch_size = 0;
  bool random_crop = false;
  bool flip = false;
  NormalizeSpec normalize = {};
  std::int64_t crop_padding = 0;  // pixels
  std::int64_t validation = 0;    // samples of the training set kept aside; 0: none
};

struct ModelSpec {
  std::string type = {};  // empty: the options hold `layers`
  std::optional<std::int64_t> classes = {};
  YamlNode options = {};  // the resolved `model` table, for build_model() in recipes/models.h
};

struct OptimizerSpec {
  std::string type = {};  // sgd, adamw
  double lr = 0;
  double weight_decay = 0;
  bool decay_bias_and_norm = false;
  double momentum = 0;  // sgd
  bool nesterov = false;
  double beta1 = 0;  // adamw
  double beta2 = 0;
  double eps = 0;
};

struct LrScheduleSpec {
  std::string type = {};  // constant, step, cosine
  double warmup_epochs = 0;
  std::int64_t every_epochs = 0;  // step
  double gamma = 1;               // step
  double final_lr = 0;            // cosine
};

// A float teacher of the recipe's model.
struct DistillSpec {
  std::string checkpoint = {};
  double weight = 0;
  double temperature = 1;
};

// Averages of the weights.
struct EmaSpec {
  double decay = 0;
};

struct TrainSpec {
  std::int64_t epochs = 0;
  OptimizerSpec optimizer = {};
  LrScheduleSpec lr_schedule = {};
  std::string loss = {};  // cross_entropy, mse, huber
  double huber_delta = 1;
  double label_smoothing = 0;
  std::optional<double> clip_grad_norm = {};
  std::optional<DistillSpec> distill = {};
  std::optional<EmaSpec> ema = {};
  std::vector<std::string> only = {};  // targets of what is trained; empty: everything
  std::vector<std::string> only_places = {};
  std::optional<double> divergence_limit = {};
  std::int64_t checkpoint_every_steps = 0;  // 0: only at the ends of epochs
  bool keep_step_checkpoints = false;
  std::string matmul_precision = {};  // float32, tf32, bf16
  bool cuda_graph = true;             // where the step allows it
  bool tensorboard = false;
};

struct QuantizerSpec {
  std::int64_t num_bits = 8;
  bool symmetric = false;
  std::string strategy = {};              // tensor, channel, group
  std::int64_t group_size = 0;            // group
  std::string observer = {};              // a name of observers::observer_names()
  std::optional<bool> narrow_range = {};  // absent: the algorithm's default
  double averaging_constant = 0.01;       // moving_average, mse
  double percentile = 99.99;              // percentile
  std::string place = {};                 // start of messages about it
};

struct QuantizeGroupSpec {
  std::vector<std::string> targets = {};  // checked against the model by prepare()
  std::vector<std::string> target_places = {};
  std::optional<QuantizerSpec> weights = {};
  std::optional<QuantizerSpec> activations = {};
  std::string place = {};
};

// Half a cosine from the first step to the last.
struct CosineSpec {
  double start = 0;
  double end = 0;
};

struct OscillationsSpec {
  double momentum = 0.01;
  std::optional<CosineSpec> damping = {};
  std::optional<CosineSpec> freeze_threshold = {};
};

struct QuantizeSpec {
  std::vector<QuantizeGroupSpec> groups = {};  // the first match wins
  std::vector<std::string> ignore = {};
  std::vector<std::string> ignore_places = {};
  std::string bn_fold = {};           // frozen, none, batch_corrected, one_convolution
  std::string algorithm_method = {};  // ste, lsq, lsq_plus, pact
  double scale_lr = 1;                // of learned scales, as a multiple of the learning rate
  std::optional<OscillationsSpec> oscillations = {};
};

// Before the epoch `until`, codes have at least these widths.
struct BitStageSpec {
  std::int64_t until = 0;
  std::optional<std::int64_t> weights = {};
  std::optional<std::int64_t> activations = {};
};

// Epochs count from 0; a change takes effect before the first step of its epoch.
struct ScheduleSpec {
  std::int64_t observe_from = 0;
  std::int64_t fake_quant_from = 0;
  std::optional<std::int64_t> fake_quant_activations_from = {};
  std::vector<BitStageSpec> bits = {};
  std::optional<std::int64_t> freeze_observers = {};
  std::optional<std::int64_t> freeze_bn = {};
  std::optional<std::int64_t> reestimate_bn = {};  // batches, after the last epoch
};

// Ranges from data before the first step.
struct CalibrateSpec {
  std::int64_t batches = 0;
  bool freeze = false;  // ranges stay as calibrated
};

struct ExportSpec {
  std::vector<std::string> formats = {};  // safetensors, onnx: written after training
  std::string profile = "ort";            // ort, tensorrt
  bool reduce_range = false;              // applied to the widths of `quantize` already
};

struct Recipe {
  std::string name = {};
  std::int64_t seed = 0;
  std::string device = {};
  DataSpec data = {};
  ModelSpec model = {};
  std::optional<std::string> init_checkpoint = {};
  TrainSpec train = {};
  std::optional<QuantizeSpec> quantize = {};
  std::optional<CalibrateSpec> calibrate = {};
  ScheduleSpec schedule = {};
  ExportSpec exports = {};
  // Everything above as checked text with every default written out; what resolved_yaml() prints.
  // Values from the command line belong into overrides, so that they are in here too.
  YamlNode resolved = {};
};

// Parses and checks a recipe. `source` names the text in messages; `overrides` are "key.path=value"
// (recipes/overrides.h). Throws InputError of one line: "recipe.yaml:12:7: unknown key ...".
Recipe parse_recipe(std::string_view text, const std::string& source,
                    const std::vector<std::string>& overrides, const ModelRegistry& registry);

// The same for a shipped preset's name or a file's path.
Recipe load_recipe(const std::string& path_or_preset, const std::vector<std::string>& overrides,
                   const ModelRegistry& registry);

// The recipe with every default: parsing it gives the same recipe.
std::string resolved_yaml(const Recipe& recipe);

struct Preset {
  std::string_view name;
  std::string_view description;  // one line
  std::string_view text;
};

// The recipes built into the library, by name.
std::vector<Preset> list_presets();

}  // namespace steelyard
