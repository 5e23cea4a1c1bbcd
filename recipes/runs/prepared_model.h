// A float model prepared as a recipe's `quantize` says.
#pragma once

#include <functional>
#include <memory>

#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// The recipe has `quantize`. Throws InputError for groups that no layer could execute, and what
// qat::prepare() throws.
qat::PreparedModel prepared_model(std::shared_ptr<Module> model, const Recipe& recipe,
                                  const Registries& registries);

// Where `schedule.bits` gives more bits for a time: throws what prepare() throws with these, since
// their sums must fit int32 as well. Tried on a model that is thrown away.
void require_stages(const Recipe& recipe, const Registries& registries,
                    const std::function<std::shared_ptr<Module>()>& make_float_model);

}  // namespace steelyard
