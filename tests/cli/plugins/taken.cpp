// A plugin with a loss whose name is the library's.
#include "steelyard/recipes/runs/plugin.h"

namespace {

struct NoOptions {};

void add(steelyard::Registries& registries) {
  registries.add_loss<NoOptions>("mse", "", {},
                                 [](const NoOptions&) { return steelyard::LossInfo{}; });
}

}  // namespace

extern "C" const steelyard::Plugin steelyard_plugin_v1{
    .built_for = steelyard::kPluginBuild, .name = "taken", .add = add};
