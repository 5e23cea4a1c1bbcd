// A plugin outside the project: a loss with an option.
#include <steelyard/framework/ops/losses/losses.h>
#include <steelyard/recipes/runs/plugin.h>

namespace {

struct Options {
  double smoothing = 0.1;
};

void add(steelyard::Registries& registries) {
  using namespace steelyard;
  registries.add_loss<Options>(
      "of_the_consumer", "cross-entropy with smoothed labels",
      {key("smoothing", "of the labels", &Options::smoothing).by_default().within(0, 0.5)},
      [](const Options& options) {
        return LossInfo{.compute = [options](const Loss&, const Variable& logits,
                                             const Tensor& targets, const LossPart&) {
          return cross_entropy(logits, targets, options.smoothing);
        }};
      });
}

}  // namespace

extern "C" const steelyard::Plugin steelyard_plugin_v1{
    .built_for = steelyard::kPluginBuild, .name = "consumer", .add = add};
