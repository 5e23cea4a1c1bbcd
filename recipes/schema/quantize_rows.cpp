// The section `quantize`.
#include "steelyard/observers/registry.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

using kernels::Granularity;
using observers::ObserverOption;
using observers::ObserverOptions;
using observers::ObserverRow;
using observers::QScheme;
using qat::Learning;
using qat::QuantizerConfig;

constexpr std::int64_t kDefaultGroupSize = 32;

// The default for activations: 8 bits have enough codes for the outermost values, fewer bits have
// not.
std::string default_observer(int bits) { return bits >= 8 ? "min_max" : "moving_average"; }

// PACT learns the clipping of activations alone.
Learning learning_of_weights(Learning learning) {
  return learning == Learning::kClipping ? Learning::kNothing : learning;
}

std::vector<TableCase<QuantizerConfig>> observer_cases(const Registries& registries) {
  std::vector<TableCase<QuantizerConfig>> cases;
  for (const ObserverRow& row : observers::observer_rows()) {
    TableCase<QuantizerConfig>& added = cases.emplace_back(
        TableCase<QuantizerConfig>{std::string(row.name), std::string(row.help), {}});
    for (const ObserverOption& option : row.options) {
      added.rows.push_back(key(std::string(option.name), std::string(option.help),
                               &QuantizerConfig::observer, option.member)
                               .by_default()
                               .above(option.above)
                               .at_most(option.at_most));
    }
  }
  for (const auto& own : registries.own_observers) {
    TableCase<QuantizerConfig>& added =
        cases.emplace_back(TableCase<QuantizerConfig>{own.described.value, own.described.help, {}});
    for (const RecipeOption& option : own.described.options) added.rows.push_back({option});
  }
  return cases;
}

// A program's observer, where the quantizer names one.
void take_own_observer(const OptionReader& from, ObserverOptions& observer,
                       const Registries& registries) {
  const auto* own = find_row(registries.own_observers, observer.type);
  if (own == nullptr) return;
  observer.own = at_place(from.at("observer").place, [&] {
    return std::make_shared<const ObserverRow>(own->make(from.node()));
  });
}

Row<QuantizerConfig> bits_row(const std::string& help, int most) {
  return key("num_bits", help, &QuantizerConfig::scheme, &QScheme::bits)
      .by_default()
      .within(2, most);
}

Row<QuantizerConfig> symmetric_row() {
  return key("symmetric", "whether the zero point is fixed at 0", &QuantizerConfig::scheme,
             &QScheme::symmetric);
}

Row<QuantizerConfig> observer_row(const std::string& help) {
  return key("observer", help, &QuantizerConfig::observer, &ObserverOptions::type);
}

void set_group_size(const OptionReader& from, QScheme& scheme) {
  const bool groups = scheme.granularity == Granularity::kGroup;
  if (!from.has("group_size")) {
    scheme.group_size = groups ? kDefaultGroupSize : 0;
  } else if (!groups) {
    fail_at(from.at("group_size").place, "group_size needs the strategy group");
  }
}

// block_structure belongs to the strategy block alone.
void check_block(const OptionReader& from, const QScheme& scheme) {
  const bool blocks = scheme.granularity == Granularity::kBlock;
  if (blocks == from.has("block_structure")) return;
  if (blocks) fail_at(from.at("strategy").place, "the strategy block needs block_structure");
  fail_at(from.at("block_structure").place, "block_structure needs the strategy block");
}

// Dynamic scales observe nothing; they are the only ones of rows, groups and blocks.
void check_dynamic(const OptionReader& from, const QScheme& scheme) {
  const bool rows = scheme.granularity == Granularity::kToken ||
                    scheme.granularity == Granularity::kGroup ||
                    scheme.granularity == Granularity::kBlock;
  if (rows && !scheme.dynamic) {
    fail_at(from.at("strategy").place,
            "the strategy " + word_of(scheme.granularity) + " of activations needs dynamic: true");
  }
  if (scheme.dynamic && !rows) {
    fail_at(from.at("dynamic").place, "dynamic needs the strategy token, group or block");
  }
  if (scheme.dynamic && from.has("observer")) {
    fail_at(from.at("observer").place, "dynamic activations have no observer");
  }
  if (scheme.dynamic && scheme.wide()) {
    fail_at(from.at("num_bits").place, "dynamic activations have at most 8 bits");
  }
}

Table<QuantizerConfig> weights_table(const Registries& registries) {
  const auto scheme = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &QuantizerConfig::scheme, member);
  };
  std::vector<Row<QuantizerConfig>> rows{
      bits_row("bit width", 8),
      symmetric_row().by_default(),
      scheme("strategy",
             "granularity of the scales. `channel`: one for each output channel; `tensor`: "
             "one for all; `group`: one for each group of consecutive weights of an output "
             "channel (with `activations`, codes are multiplied as integers and each "
             "group's sum is scaled; without, weights are multiplied in float)",
             &QScheme::granularity)
          .only({Granularity::kChannel, Granularity::kTensor, Granularity::kGroup})
          .by_default("channel"),
      scheme("group_size",
             "with strategy group: number of weights that share a scale, in the order of "
             "PyTorch's layout; must divide the number of weights of an output channel or "
             "exceed it; absent: 32",
             &QScheme::group_size)
          .within(1, kMaxCount),
      scheme("narrow_range",
             "whether the lowest code is left unused (with 8 bits: -127 to 127 instead of "
             "-128 to 127); absent: yes, except with learned scales or `symmetric: false`",
             &QScheme::narrow_range),
      observer_row("how the range is found").by_default()};
  const std::vector<RecipeOption> of_blocks = block_weight_options();
  for (const RecipeOption& option : of_blocks) rows.push_back({option});
  return Table<QuantizerConfig>("Quantization of weights.", std::move(rows))
      .cases("observer", observer_cases(registries))
      .check([&registries, of_blocks](const OptionReader& from, QuantizerConfig& weights) {
        for (const RecipeOption& option : of_blocks) {
          if (!from.has(option.name)) continue;
          fail_at(from.at(option.name).place, option.name + ": needs export.target");
        }
        take_own_observer(from, weights.observer, registries);
        set_group_size(from, weights.scheme);
      });
}

Table<QuantizerConfig> activations_table(const Registries& registries) {
  return Table<QuantizerConfig>(
             "Quantization of activations.",
             {bits_row("bit width; at most 8 with `dynamic`, the observer entropy or the profile "
                       "tensorrt, 8 with the profile tflm",
                       16),
              symmetric_row().by_default("false"),
              key("strategy",
                  "granularity of the scales. `tensor`: one for the whole tensor; the others need "
                  "`dynamic`. `token`: one for each row that a Linear reads or each sample that a "
                  "Conv2d reads; `group`, `block` (Linear only): one for each group of consecutive "
                  "features of a row, or for each block of rows and features",
                  &QuantizerConfig::scheme, &QScheme::granularity)
                  .only({Granularity::kTensor, Granularity::kToken, Granularity::kGroup,
                         Granularity::kBlock})
                  .by_default(),
              key("group_size",
                  "with strategy group: number of features that share a scale; must divide the "
                  "number of features of a row or exceed it; absent: 32",
                  &QuantizerConfig::scheme, &QScheme::group_size)
                  .within(1, kMaxCount),
              key("block_structure",
                  "with strategy block: numbers of rows (samples, or their positions) and of "
                  "features that share a scale; the number of features must divide that of a row "
                  "or exceed it",
                  &QuantizerConfig::scheme, &QScheme::block)
                  .within(1, kMaxCount),
              key("dynamic",
                  "whether scales and zero points are computed from the values themselves, in "
                  "every pass; needs the strategy token, group or block, and no observer; absent: "
                  "no",
                  &QuantizerConfig::scheme, &QScheme::dynamic),
              observer_row("how the range is found; absent: min_max with 8 bits and more, "
                           "moving_average with fewer (docs/numerics.md says why)")})
      .cases("observer", observer_cases(registries))
      .check([&registries](const OptionReader& from, QuantizerConfig& activations) {
        take_own_observer(from, activations.observer, registries);
        activations.scheme.is_signed = activations.scheme.symmetric;
        activations.scheme.narrow_range = false;
        set_group_size(from, activations.scheme);
        check_block(from, activations.scheme);
        check_dynamic(from, activations.scheme);
        if (from.has("observer")) {
          if (activations.scheme.wide() && activations.observer.type == "entropy") {
            fail_at(from.at("observer").place, "the observer entropy is for at most 8 bits");
          }
          return;
        }
        activations.observer.type = default_observer(activations.scheme.bits);
      });
}

Table<qat::QuantizeGroup> group_table(const Registries& registries) {
  return Table<qat::QuantizeGroup>(
             "At least one of `weights` and `activations` is given.",
             {key("targets",
                  "modules to quantize: type names, exact module paths (that of a container stands "
                  "for what is in it), or `re:` and a regular expression that matches the whole "
                  "path, in RE2's syntax (no lookaround, no backreferences)",
                  &qat::QuantizeGroup::targets)
                  .required()
                  .items(1)
                  .places(&qat::QuantizeGroup::target_places),
              nested<qat::QuantizeGroup>("weights", weights_table(registries),
                                         &qat::QuantizeGroup::config, &qat::QConfig::weights),
              nested<qat::QuantizeGroup>("activations", activations_table(registries),
                                         &qat::QuantizeGroup::config, &qat::QConfig::activations)})
      .check([](const OptionReader& from, qat::QuantizeGroup& group) {
        if (group.config.weights || group.config.activations) return;
        fail_at(from.place(), "expected 'weights', 'activations' or both in the group");
      });
}

Table<QuantizeSpec> algorithm_table() {
  const std::vector<Row<QuantizeSpec>> learned{
      key("scale_lr",
          "learning rate of scales and offsets, as a multiple of the optimizer's; absent: steps "
          "are relative to the first scale (docs/numerics.md)",
          &QuantizeSpec::scale_lr)
          .above(0)
          .at_most(1e6)};
  return Table<QuantizeSpec>(
             "The gradient estimator of the quantizers, and which quantization parameters are "
             "learned.",
             {key("method", "the method", &QuantizeSpec::algorithm).by_default()})
      .cases("method",
             {when<Learning, QuantizeSpec>(Learning::kNothing, {}), when(Learning::kScale, learned),
              when(Learning::kScaleAndZeroPoint, learned), when(Learning::kClipping, learned)});
}

// The two ends of a cosine schedule.
Table<qat::CosineSchedule> cosine_table(const std::string& help, const std::string& what,
                                        const std::string& start, const std::string& end,
                                        double max) {
  return {
      help,
      {key("start", what + " in the first step", &qat::CosineSchedule::start)
           .by_default(start)
           .within(0, max),
       key("end", what + " at the end", &qat::CosineSchedule::end).by_default(end).within(0, max)}};
}

Table<qat::OscillationOptions> oscillations_table() {
  using qat::OscillationOptions;
  return {
      "Oscillations of the weights' codes: the percentage of oscillating weights is reported at "
      "the end of each epoch; damping and freezing reduce it (Nagel et al., arXiv:2203.11086). A "
      "schedule goes from `start` to `end` along half a cosine over all steps of training. Needs "
      "`bn_fold` frozen or none.",
      {key("momentum", "weight of the newest step in the averages", &OscillationOptions::momentum)
           .by_default()
           .above(0)
           .at_most(1),
       nested<OscillationOptions>(
           "damping",
           cosine_table("Adds lambda times the sum of squared distances between weights and their "
                        "quantized values to the loss.",
                        "lambda", "0", "0.1", 1e6),
           &OscillationOptions::damping),
       nested<OscillationOptions>(
           "freeze_threshold",
           cosine_table("Freezes a weight at its mean code, rounded, when the frequency of its "
                        "oscillations (changes of direction per step) exceeds the threshold.",
                        "threshold", "0.1", "0.01", 1),
           &OscillationOptions::freeze_threshold)}};
}

// Sets in the groups what the algorithm decides.
void set_learning(const OptionReader& from, QuantizeSpec& quantize) {
  const std::vector<YamlNode>& nodes = from.at("groups").items;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const OptionReader node(nodes[i]);
    quantize.group_places.push_back(node.place());
    qat::QConfig& config = quantize.config.groups[i].config;
    if (config.activations && !config.activations->scheme.dynamic) {
      config.activations->learning = quantize.algorithm;
    }
    if (!config.weights) continue;
    config.weights->learning = learning_of_weights(quantize.algorithm);
    bool& narrow = config.weights->scheme.narrow_range;
    const bool symmetric = config.weights->scheme.symmetric;
    const OptionReader weights = node.table("weights");
    if (!weights.has("narrow_range")) {
      narrow = symmetric && narrow_range_by_default(quantize);
    } else if (narrow && !symmetric) {
      fail_at(weights.at("narrow_range").place, "narrow_range needs symmetric weights");
    }
  }
}

void check_quantize(const OptionReader& from, QuantizeSpec& quantize) {
  set_learning(from, quantize);
  const qat::BatchNormFold fold = quantize.config.bn_fold;
  const bool keeps_weights =
      fold == qat::BatchNormFold::kFrozen || fold == qat::BatchNormFold::kNone;
  if (quantize.oscillations && !keeps_weights) {
    fail_at(from.table("oscillations").place(),
            "oscillations needs bn_fold frozen or none, got " + word_of(fold));
  }
}

}  // namespace

int most_bits_of_reduced(Granularity weights) { return weights == Granularity::kGroup ? 8 : 7; }

bool narrow_range_by_default(const QuantizeSpec& spec) {
  return learning_of_weights(spec.algorithm) == Learning::kNothing;
}

Table<QuantizeSpec> quantize_table(const Registries& registries) {
  const auto config = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &QuantizeSpec::config, member);
  };
  return Table<QuantizeSpec>(
             "Quantization-aware training; float training without it.",
             {list_of<qat::QuantizeGroup, QuantizeSpec>(
                  "groups",
                  "modules and how they are quantized; the first match wins. What has no weights "
                  "(sums, products, concatenations, averages, sigmoid, ...) has the "
                  "`activations` of the group that names its exact path, else of the first group "
                  "with some that are not dynamic",
                  group_table(registries), &QuantizeSpec::config, &qat::QuantizeConfig::groups)
                  .required()
                  .items(1),
              config("ignore",
                     "modules left in float, written like targets; a container is left in float "
                     "with everything in it",
                     &qat::QuantizeConfig::ignore)
                  .by_default()
                  .places(&QuantizeSpec::config, &qat::QuantizeConfig::ignore_places),
              config("bn_fold",
                     "batch norm after a quantized layer: `frozen` folds it once and drops it, "
                     "`none` keeps it in float, `batch_corrected` and `one_convolution` fold it in "
                     "every step",
                     &qat::QuantizeConfig::bn_fold)
                  .by_default(),
              words_key<QuantizeSpec>(
                  "ranges",
                  "the range with which a step quantizes its activations: the range updated with "
                  "these activations (`current`), or the range left by the steps before "
                  "(`delayed`), which several `train.shards` need; absent: `current` with one "
                  "shard, `delayed` with several",
                  {{"current", false}, {"delayed", true}}, &QuantizeSpec::delayed_ranges),
              nested<QuantizeSpec>("algorithm", algorithm_table()).by_default("{}"),
              nested<QuantizeSpec>("oscillations", oscillations_table(),
                                   &QuantizeSpec::oscillations)})
      .check(check_quantize);
}

}  // namespace steelyard
