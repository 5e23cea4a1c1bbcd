// Cross-layer equalization: channels of two layers in a row get weights of one range. Source: Nagel
// et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
// arXiv:1906.04721, section 4.1.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/forms/quantized_form.h"

namespace steelyard::qat {

// Changes the weights of a float model on the CPU, which computes what it did up to rounding. A
// pair is a weighted layer whose form says its groups (convolutions, transposed ones, Linear), with
// its batch norm, and the only reader of its output, another such layer; between them may be what
// passes factors: ReLU, poolings, Flatten, Dropout, Identity. With r1 the largest weight that makes
// a channel and r2 the largest that reads it (batch norms folded in), what makes the channel is
// divided by s = sqrt(r1 r2) / r2 and what reads it multiplied by s (equation 11 of the paper);
// over all pairs, again until nothing moves. Gives the paths of the pairs.
std::vector<std::pair<std::string, std::string>> equalize(const std::shared_ptr<Module>& model,
                                                          const QuantizedForms& own_forms = {});

}  // namespace steelyard::qat
