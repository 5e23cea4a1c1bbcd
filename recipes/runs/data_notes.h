// What training data look as if they were meant otherwise.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/recipes/runs/records/run_record.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// Notes where all labels are the same or none is 0, and with `layout`, which a model's file would
// say itself, where samples look as if their channels came first.
std::vector<std::string> notes_of_samples(const Dataset& train, bool layout);
// A note where all values of all samples are the same. `statistics`, computed of them, tell most
// others without reading any.
std::optional<std::string> note_of_constant(const Dataset& train, const Normalization& statistics);
// A note where samples of floats are images only because the model asks for no sequences; nothing
// for others.
std::optional<std::string> note_of_images(const ModelSpec& model, const InputFormat& input);

}  // namespace steelyard
