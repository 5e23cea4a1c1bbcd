// Biases that undo the shift of quantized layers' means. Source: Nagel et al., "Data-Free
// Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721, section 4.2 and
// appendix D.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/qat/ptq/calibrate.h"

namespace steelyard::qat {

class QuantizedLayer;

// Paths of the layers with quantized weights that have no bias to correct.
std::vector<std::string> layers_without_bias(Module& model);

// For each layer with quantized weights, what the float network has in front of the activation: the
// mean over all samples and pixels for each output channel.
using FloatMeans = std::map<const QuantizedLayer*, std::vector<double>>;

// Means of `inputs`, which all pass at once, in evaluation, with all quantizers off. To be taken
// before learned rounding (qat/ptq/adaround.h) moves the weights that the float network has.
FloatMeans float_means(Module& model, const Tensor& inputs);

// For each layer with quantized weights, in the order in which they compute, with those before it
// corrected: bias += E[y] - E[y~] for each output channel, where y is what the float network has in
// front of the activation (`wanted`, of the same inputs), y~ what the quantized one has there, and
// the mean is over all samples and pixels of `inputs`. The bias is that of a batch norm after the
// layer if there is one. All inputs pass at once, in evaluation. Ranges must be known
// (qat/ptq/calibrate.h) and stay; the scales of weights that follow are found anew, since they
// leave room for the bias. Gives the number of layers whose biases were changed. Throws
// TrainingDiverged for values that are not finite.
std::int64_t correct_biases(Module& model, const Tensor& inputs, FloatMeans wanted,
                            WeightScales scales = WeightScales::kFollow);

}  // namespace steelyard::qat
