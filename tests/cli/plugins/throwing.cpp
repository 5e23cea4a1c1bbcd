// A plugin that throws what the environment says: when it is loaded, or later.
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "steelyard/recipes/runs/plugin.h"

namespace {

struct NoOptions {};

steelyard::DatasetSplits load(const NoOptions&, const steelyard::DatasetRequest&) {
  throw std::runtime_error("no\nhorses");
}

double measure(const steelyard::Predictions&, const steelyard::Dataset&) {
  throw std::logic_error("no ruler");
}

struct Stumbles : steelyard::Module {
  steelyard::Variable forward(const steelyard::Variable& x,
                              steelyard::ForwardContext& context) override {
    if (context.training) throw 7;
    return x;
  }
  std::string type_name() const override { return "Stumbles"; }
};

std::shared_ptr<steelyard::Module> make_stumbles(const NoOptions&, const steelyard::LayerSpec&,
                                                 steelyard::Rng&) {
  return std::make_shared<Stumbles>();
}

void add(steelyard::Registries& registries) {
  const char* const text = std::getenv("THROWS");
  const std::string what = text == nullptr ? "" : text;
  if (what == "exception") throw std::runtime_error("out of\nhorses");
  if (what == "number") throw 7;
  registries.add_dataset<NoOptions>("horses", "", {}, "nowhere", load);
  registries.add_layer<NoOptions>("Stumbles", "", {}, make_stumbles);
  if (what == "later") registries.add_metric({.name = "ruler", .label = "ruler", .value = measure});
}

}  // namespace

extern "C" const steelyard::Plugin steelyard_plugin_v1{
    .built_for = steelyard::kPluginBuild, .name = "throwing", .add = add};
