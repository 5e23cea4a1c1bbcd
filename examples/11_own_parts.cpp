// A plugin: a dataset, a loss, a metric, a layer with its quantized form, and an observer, which
// recipes name like the library's (own_parts.yaml). `steelyard --plugin` loads it, and
// 11_own_parts_in_a_program.cpp adds the same parts without a shared object. docs/own_parts.md
// explains each.

#include <algorithm>
#include <memory>
#include <vector>

#include "made_up_images.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/layers/init.h"
#include "steelyard/observers/moving_average.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/recipes/runs/plugin.h"

using namespace steelyard;

// A dataset.
struct BarsOptions {
  std::int64_t samples = 2048;
};

DatasetSplits load_bars(const BarsOptions& options, const DatasetRequest&) {
  DatasetSplits splits{made_up_images(options.samples, 1), made_up_images(512, 2)};
  for (Dataset* dataset : {&splits.train, &splits.test}) {
    dataset->names.classes = {"upright", "level", "rising", "falling"};
  }
  return splits;
}

// A loss: cross-entropy that keeps logits small. Its shards weigh by their rows, as a mean does.
struct RestrainedOptions {
  double restraint = 0.01;
};

LossInfo restrained_cross_entropy(const RestrainedOptions& options) {
  return {.targets = TargetKind::kClass,
          .compute = [restraint = options.restraint](const Loss&, const Variable& logits,
                                                     const Tensor& targets, const LossPart&) {
            return cross_entropy(logits, targets) + restraint * mean(logits * logits);
          }};
}

// A metric: the recall of the class that is recognized worst.
double worst_recall(const Predictions& predictions, const Dataset& dataset) {
  double worst = 1;
  for (const ClassScores& scores : class_scores(predictions, dataset)) {
    if (scores.samples > 0) worst = std::min(worst, scores.recall());
  }
  return 100 * worst;
}

// A layer: a filter for each channel. Parameters: weight [C, 1, K, K], bias.
struct FilterOptions {
  std::int64_t kernel_size = 3;
};

class Filter : public Module {
 public:
  Filter(std::int64_t channels, std::int64_t size, Rng& rng)
      : geometry_{.padding = {size / 2, size / 2}, .groups = channels} {
    weight_ =
        register_parameter("weight", fan_in_uniform({channels, 1, size, size}, size * size, rng));
    bias_ = register_parameter("bias", Tensor::zeros({channels}, DType::kF32));
  }
  const Conv2dGeometry& geometry() const { return geometry_; }
  Variable forward(const Variable& x, ForwardContext&) override {
    return conv2d(x, weight_, bias_, geometry_);
  }
  std::string type_name() const override { return "Filter"; }

 private:
  Conv2dGeometry geometry_;
  Variable weight_;
  Variable bias_;
};

std::shared_ptr<Module> make_filter(const FilterOptions& options, const LayerSpec& spec, Rng& rng) {
  if (options.kernel_size % 2 == 0) {
    fail_at(spec.at("kernel_size").place,
            "expected an odd number, got " + spec.text("kernel_size"));
  }
  return std::make_shared<Filter>(spec.channels(), options.kernel_size, rng);
}

// Its quantized form: the library's integer convolution, which has a deployed operation, with the
// filter's weights.
class QatFilter : public qat::QuantizedLayer {
 public:
  QatFilter(const Filter& filter, const qat::FormRequest& request)
      : QuantizedLayer(qat::conv2d_product(filter.geometry()), request.weight, request.bias,
                       request.activation, request.config) {}
  std::string type_name() const override { return "QatFilter"; }
};

std::shared_ptr<Module> make_qat_filter(const Filter& filter, const qat::FormRequest& request) {
  return std::make_shared<QatFilter>(filter, request);
}

// An observer: a moving average of each step's extremes, shrunk.
struct ShrunkOptions {
  double factor = 0.95;
};

class ShrunkObserver : public observers::MovingAverageObserver {
 public:
  ShrunkObserver(std::int64_t channels, double factor)
      : MovingAverageObserver(channels, 0.1), factor_(factor) {}
  std::string name() const override { return "shrunk"; }
  // Kernels that know the average would update it without the factor.
  std::optional<observers::RunningRange> running_range() const override { return std::nullopt; }

 protected:
  void update(const observers::Extremes& step) override {
    const NoGradGuard no_grad;
    MovingAverageObserver::update(
        {(factor_ * Variable(step.lo)).value(), (factor_ * Variable(step.hi)).value()});
  }

 private:
  double factor_;
};

std::unique_ptr<observers::Observer> make_shrunk(const ShrunkOptions& options,
                                                 const observers::QScheme&, std::int64_t channels) {
  return std::make_unique<ShrunkObserver>(channels, options.factor);
}

// The names under which recipes know them, with their options.
void add_own_parts(Registries& registries) {
  registries.add_dataset<BarsOptions>(
      "bars", "made-up images of bars in four directions",
      {key("samples", "training samples", &BarsOptions::samples).by_default().within(64, 1e6)},
      "made-up", load_bars);
  registries.add_loss<RestrainedOptions>(
      "restrained", "cross-entropy that keeps logits small",
      {key("restraint", "weight of the mean square of logits", &RestrainedOptions::restraint)
           .by_default()
           .within(0, 10)},
      restrained_cross_entropy);
  registries.add_metric({.name = "worst_recall",
                         .label = "worst recall",
                         .percent = true,
                         .value = worst_recall,
                         .losses = {Loss::Type::kCrossEntropy}});
  registries.add_layer<FilterOptions>(
      "Filter", "a filter for each channel",
      {key("kernel_size", "height and width, odd", &FilterOptions::kernel_size)
           .by_default()
           .within(1, 31)},
      make_filter);
  registries.add_form(qat::form_of("Filter", qat::FormKind::kWeighted, make_qat_filter));
  registries.add_observer<ShrunkOptions>(
      "shrunk", "a moving average of each step's extremes, shrunk",
      {key("factor", "by which they are multiplied", &ShrunkOptions::factor)
           .by_default()
           .above(0)
           .at_most(1)},
      /*over_shards=*/true, make_shrunk);
}

extern "C" const Plugin steelyard_plugin_v1{
    .built_for = kPluginBuild, .name = "own_parts", .add = add_own_parts};
