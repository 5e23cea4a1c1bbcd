// The section `init`: loads a file's tensors under the model's names.
#pragma once

#include <string>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/train/trained_weights.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// Copies a file of read_weights() into a model on the CPU, renamed and without what is skipped.
// Gives what the file holds. Throws InputError, naming the file, where names, shapes or values do
// not fit; the message says how to go on where only the shapes of a layer or two differ. Entries
// of `init` that change nothing are errors, too.
WeightsFile load_initial_weights(Module& model, const std::string& file, const InitSpec& init);

}  // namespace steelyard
