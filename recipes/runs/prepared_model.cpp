#include "steelyard/recipes/runs/prepared_model.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

// Throws InputError for groups that no layer could execute.
void require_executable(const QuantizeSpec& spec) {
  for (std::size_t i = 0; i < spec.config.groups.size(); ++i) {
    try {
      qat::validate(spec.config.groups[i].config, spec.config.profile);
    } catch (const std::invalid_argument& error) {
      throw InputError(spec.group_places[i] + ": " + error.what());
    }
  }
}

// With the most bits that any stage of the schedule gives.
qat::QuantizeConfig widest_stage(qat::QuantizeConfig config, const qat::QatSchedule& schedule) {
  const auto widen = [](std::optional<qat::QuantizerConfig>& side, int bits) {
    if (side) side->scheme.bits = std::max(side->scheme.bits, bits);
  };
  for (const qat::BitStage& stage : schedule.stages) {
    for (qat::QuantizeGroup& group : config.groups) {
      widen(group.config.weights, stage.weights);
      widen(group.config.activations, stage.activations);
    }
  }
  return config;
}

std::string note_of_reduced_range(const std::vector<qat::QuantizeGroup>& groups) {
  const bool keeps_any = std::any_of(groups.begin(), groups.end(), [](const auto& group) {
    return group.config.weights &&
           group.config.weights->scheme.granularity == kernels::Granularity::kGroup;
  });
  return std::string("weights have at most 7 bits") +
         (keeps_any ? ", those of the strategy group 8" : "") + " (export.reduce_range)";
}

}  // namespace

qat::PreparedModel prepared_model(std::shared_ptr<Module> model, const Recipe& recipe,
                                  const Registries& registries) {
  require_executable(*recipe.quantize);
  qat::PreparedModel result =
      qat::prepare(std::move(model), recipe.quantize->config, registries.own_forms);
  if (recipe.exports.reduce_range) {
    result.plan.notes.push_back(note_of_reduced_range(recipe.quantize->config.groups));
  }
  return result;
}

void require_stages(const Recipe& recipe, const Registries& registries,
                    const std::function<std::shared_ptr<Module>()>& make_float_model) {
  if (!recipe.quantize || recipe.schedule.stages.empty()) return;
  qat::prepare(make_float_model(), widest_stage(recipe.quantize->config, recipe.schedule),
               registries.own_forms);
}

}  // namespace steelyard
