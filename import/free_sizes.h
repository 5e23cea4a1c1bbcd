// Sizes of images and sequences that a file leaves free, and on which nothing in the network
// depends.
#pragma once

#include <functional>

#include "steelyard/import/translate.h"

namespace steelyard::imports {

// A translation for samples of another shape.
using Translate = std::function<Imported(const Shape&)>;

// Enters the free sizes in the ports of `imported`, which is a translation of the model for samples
// of one shape: those that leave every module and weight as it is where they are doubled, so much
// larger that windows are left with other rests and, where the file reads shapes, many times as
// large. The notes say what depends on the others.
void find_free_sizes(Imported& imported, const OnnxModel& model, const Translate& translated);

// Notes that a model with several inputs has fixed sizes in exports where the file leaves some
// free.
void note_fixed_inputs(Imported& imported, const OnnxModel& model);

// Whether the file has one input and leaves a size of it besides the batch free.
bool has_free_sizes(const OnnxModel& model);

}  // namespace steelyard::imports
