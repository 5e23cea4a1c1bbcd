// A training recipe: one strict YAML file, as the options of what it configures.
//
// Each key is declared once, by a row that names the member that takes its value: in *_rows.cpp and
// recipe_options.cpp here, in recipes/models/ and in observers/registry.cpp; a program's own parts
// have rows of their own (registries.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/export/stream_options.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/images/transforms.h"
#include "steelyard/framework/data/tables/table_options.h"
#include "steelyard/framework/tensor/words.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/trainer.h"
#include "steelyard/kernels/matmul_precision.h"
#include "steelyard/qat/blocks/block_config.h"
#include "steelyard/qat/model/oscillations.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/ptq/adaround.h"
#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/recipes/language/yaml_document.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

// How inputs are normalized.
enum class Normalize { kDataset, kNone, kGiven };

inline constexpr Word<Normalize> kNormalizeWords[] = {
    {Normalize::kDataset, "dataset"},
    {Normalize::kNone, "none"},
    {Normalize::kGiven, "given"},  // in a recipe: the numbers
};
static_assert(is_complete<Normalize>(kNormalizeWords, Normalize::kGiven));
constexpr std::span<const Word<Normalize>> words_of(Normalize) { return kNormalizeWords; }

struct NormalizeSpec {
  Normalize type = Normalize::kDataset;
  std::vector<double> mean = {};  // kGiven: of each channel
  std::vector<double> stddev = {};
};

struct DataSpec {
  std::string dataset = {};
  std::optional<std::string> path = {};
  std::optional<std::string> made_by = {};  // a command, for messages
  LoaderOptions loader = {};                // the run adds the normalization
  NormalizeSpec normalize = {};
  std::optional<bool> normalize_targets = {};  // absent: as Experiment chooses
  // Samples of the training set kept aside; 0: none; absent: validation_samples().
  std::optional<std::int64_t> validation = {};
  std::optional<std::int64_t> test = {};  // the same as the test set
  bool stratified = false;                // each class keeps its share in both
  std::optional<ImageTransforms> transforms = {};
  std::optional<TableOptions> table = {};
  std::optional<TokenOptions> tokens = {};
  bool labels = true;  // whether samples have targets
  std::string label_separator = {};
  std::optional<std::string> class_names = {};  // a file
  std::vector<std::string> inputs = {};         // of a sample; empty: it is one
  std::any dataset_options = {};                // of a program's own dataset

  // Of so many training samples: by default a tenth of them, at most 5000.
  std::int64_t validation_samples(std::int64_t training) const {
    return validation.value_or(std::min<std::int64_t>(training / 10, 5000));
  }
};

enum class OptimizerType { kSgd, kAdamW };

inline constexpr Word<OptimizerType> kOptimizerWords[] = {
    {OptimizerType::kSgd, "sgd", "stochastic gradient descent"},
    {OptimizerType::kAdamW, "adamw", "Adam with decoupled weight decay"},
};
static_assert(is_complete<OptimizerType>(kOptimizerWords, OptimizerType::kAdamW));
constexpr std::span<const Word<OptimizerType>> words_of(OptimizerType) { return kOptimizerWords; }

struct OptimizerSpec {
  OptimizerType type = OptimizerType::kSgd;
  bool decay_bias_and_norm = false;
  SgdOptions sgd = {};
  AdamWOptions adamw = {};
};

// Weights in a loss: given, or computed from the class frequencies of the training set.
struct WeightSpec {
  bool balanced = false;
  std::vector<double> values = {};

  bool given() const { return balanced || !values.empty(); }
};

struct TrainSpec {
  // The run fills in the teacher, the weights of the loss, the numbers of steps, the averaged
  // tensors and the output folder.
  TrainerOptions trainer = {};
  WeightSpec class_weights = {};                // of trainer.loss
  WeightSpec positive_weights = {};             // of trainer.loss
  std::vector<std::string> own_loss_keys = {};  // the options of a program's own loss
  OptimizerSpec optimizer = {};
  double warmup_epochs = 0;  // of trainer.lr_schedule, which counts steps
  std::int64_t warmup_steps(std::int64_t steps_per_epoch) const {
    return std::llround(warmup_epochs * static_cast<double>(steps_per_epoch));
  }
  std::int64_t step_every_epochs = 0;
  std::optional<std::string> teacher_checkpoint = {};  // of trainer.distillation
  bool teaches_itself = false;  // likewise: the teacher is the model that the run begins with
  std::vector<std::string> only = {};  // targets of what is trained; empty: everything
  std::vector<std::string> only_places = {};
  kernels::MatmulPrecision matmul_precision = kernels::MatmulPrecision::kFloat32;
  bool tensorboard = false;
};

struct QuantizeSpec {
  qat::QuantizeConfig config = {};
  std::vector<std::string> group_places = {};         // start of messages about a group
  qat::Learning algorithm = qat::Learning::kNothing;  // the groups have what follows from it
  // The learning rate of learned scales and offsets, as a multiple of that of the rest; absent: it
  // is relative to their first values (docs/numerics.md).
  std::optional<double> scale_lr = {};
  std::optional<bool> delayed_ranges = {};  // absent: where a batch has several shards
  std::optional<qat::OscillationOptions> oscillations = {};
};

// How the tensors of init.checkpoint are assigned to the model.
struct InitSpec {
  struct Rename {
    std::string from;  // a regular expression
    std::string to;
  };
  std::vector<Rename> rename = {};     // one after the other
  std::vector<std::string> skip = {};  // modules and tensors that keep their initial values
};

// Of a microcontroller, for the program in C.
struct DeviceLimits {
  std::optional<std::int64_t> flash = {};  // bytes of constants
  std::optional<std::int64_t> ram = {};    // bytes of values
  std::optional<std::int64_t> macs = {};   // multiplications for a sample
};

// A file of llama.cpp's, whose arithmetic training computes.
enum class GgufTarget { kQ4_0, kQ8_0, kIq4Nl, kMxfp4 };

inline constexpr Word<GgufTarget> kGgufTargetWords[] = {
    {GgufTarget::kQ4_0, "gguf-q4_0"},
    {GgufTarget::kQ8_0, "gguf-q8_0"},
    {GgufTarget::kIq4Nl, "gguf-iq4_nl"},
    {GgufTarget::kMxfp4, "gguf-mxfp4"},
};
static_assert(is_complete<GgufTarget>(kGgufTargetWords, GgufTarget::kMxfp4));
constexpr std::span<const Word<GgufTarget>> words_of(GgufTarget) { return kGgufTargetWords; }

// The type of weights that a target names.
kernels::BlockType block_type_of(GgufTarget target);

struct ExportSpec {
  std::vector<std::string> formats = {};  // names of deploy::export_formats(), for after training
  qat::Profile profile = qat::Profile::kOrt;
  bool reduce_range = false;  // applied to the widths of `quantize` already
  std::optional<DeviceLimits> limits = {};
  std::optional<deploy::StreamOptions> stream = {};  // of programs in C and TFLite files
  std::optional<GgufTarget> target = {};
  qat::BlockConfig blocks = {};  // with a target: what `quantize` says beside it
};

struct Recipe {
  std::string name = {};
  std::int64_t seed = 0;
  std::string device = {};
  DataSpec data = {};
  ModelSpec model = {};
  std::optional<std::string> init_checkpoint = {};
  InitSpec init = {};
  TrainSpec train = {};
  std::optional<QuantizeSpec> quantize = {};
  bool calibrates = false;  // ranges from data before the first step
  std::optional<std::int64_t> calibrate_batches = {};
  std::optional<qat::AdaRoundOptions> adaround = {};  // learned rounding of weights, after that
  std::optional<std::int64_t> correct_biases = {};    // samples, after that
  bool equalize = false;                              // float weights, before all
  // Epochs count from 0; a change takes effect before the first step of its epoch.
  qat::QatSchedule schedule = {};
  std::optional<std::int64_t> reestimate_bn = {};  // batches, after the last epoch
  ExportSpec exports = {};
  std::vector<OwnPart> needs = {};  // what it names that is not the library's
  // The text with its overrides and without defaults.
  YamlNode given = {};
  // Everything above as checked text with every default written out; what resolved_yaml() prints.
  // Values from the command line belong into overrides, so that they are in here too.
  YamlNode resolved = {};
};

// The default of `narrow_range`: true unless scales of weights are learned.
bool narrow_range_by_default(const QuantizeSpec& spec);

// The most bits that weights have with export.reduce_range.
int most_bits_of_reduced(kernels::Granularity weights);

// Parses and checks a recipe. `source` names the text in messages; `overrides` are "key.path=value"
// (recipes/language/overrides.h). Throws InputError of one line: "recipe.yaml:12:7: unknown key
// ...".
Recipe parse_recipe(std::string_view text, const std::string& source,
                    const std::vector<std::string>& overrides,
                    const Registries& registries = builtin_registries());

// Checks a recipe whose text was read: Recipe::given of another recipe, for example.
Recipe read_recipe(YamlNode document, const Registries& registries = builtin_registries());

// The text of a shipped preset's name or a file's path, parsed, with the overrides.
YamlNode load_document(const std::string& path_or_preset,
                       const std::vector<std::string>& overrides);

// Parses and checks the recipe of that.
Recipe load_recipe(const std::string& path_or_preset, const std::vector<std::string>& overrides,
                   const Registries& registries = builtin_registries());

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
