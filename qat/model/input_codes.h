// Whether the codes of a model's input fit bytes.
#pragma once

#include <optional>
#include <string>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/dataset.h"

namespace steelyard::qat {

// What to say where the 256 normalized bytes lie half-way between the codes of the model's input
// (its "input_quantizer"): every value then loses half a code, and which one a byte becomes depends
// on how the normalization rounds; the note counts the bytes whose code changes if it is computed
// in f32. Bytes span [-1, 1] with mean and deviation 0.5, for example, whose zero point would be
// 127.5. Nothing where they lie better, or the input has no quantizer.
std::optional<std::string> note_of_bytes_between_codes(Module& model,
                                                       const Normalization& normalization);

}  // namespace steelyard::qat
