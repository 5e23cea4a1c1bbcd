// What undoes the normalization of a regression's targets.
#pragma once

#include <memory>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/dataset.h"

namespace steelyard {

// The model with its outputs [N, ..., columns] in the units of the data: output * stddev + mean of
// each column, two operations of f32, which exports have too. Of no normalization: the model
// itself.
std::shared_ptr<Module> in_units_of_targets(std::shared_ptr<Module> model,
                                            const Normalization& normalization);

}  // namespace steelyard
