// A plugin without a name.
#include "steelyard/recipes/runs/plugin.h"

namespace {

void add(steelyard::Registries&) {}

}  // namespace

extern "C" const steelyard::Plugin steelyard_plugin_v1{
    .built_for = steelyard::kPluginBuild, .name = "", .add = add};
