// Comparison of a deployed model with the trained one: every tensor, code by code.
//
// Each operation is checked on training's own inputs. If all operations are on integers, that
// checks the whole model from end to end. After an operation that adds floats, where the two may
// round differently, the integers are still compared exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/dataset.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::deploy {

// One tensor of the network, over all samples.
struct ValueComparison {
  std::string name;
  bool quantized = false;
  std::int64_t elements = 0;
  std::int64_t differing = 0;
  double largest = 0;  // difference: of codes, or of f32 values
  // Whether a difference is more than what the order of a sum of floats explains.
  bool mismatch = false;
  // The scale, zero point and range, if they are not those of training: then every code differs.
  std::string other_quantization = {};
};

struct Verification {
  std::vector<ValueComparison> values;  // in the order of the graph
  // Weights, their scales and biases that are not the trained ones, which samples may not show.
  std::vector<ValueComparison> other_parameters;
  std::int64_t samples = 0;
  Tensor inputs;           // f32, preprocessed [samples, ...]
  Tensor trained_outputs;  // f32, of training's forward
  Tensor outputs;          // f32, of the deployed model from end to end
  // Percent, for class targets.
  std::optional<double> trained_top1;
  std::optional<double> deployed_top1;

  // The first tensor that is not what training computed, else the first other parameter, or null.
  const ValueComparison* first_mismatch() const;
};

// Runs both on spread_samples() of the dataset: the model's forward in evaluation, as training
// computes it, and the interpreter. Throws InputError when they are different networks.
Verification verify(Module& model, const Interpreter& interpreter, const Dataset& dataset,
                    std::int64_t samples, std::int64_t batch_size);

// Another runtime's outputs compared with the deployed model's.
struct OutputComparison {
  std::int64_t elements = 0;
  std::int64_t differing = 0;
  double largest = 0;  // difference of two values
  // Percent of the samples whose largest output is the same, rounding aside; where the outputs
  // are no scores of classes, of the outputs that differ by at most a hundredth of the largest.
  double agreement = 0;
  // Root mean square of the differences, relative to that of the outputs; infinite if one is NaN.
  double relative_error = 0;
};
// Both f32 of one size, each row the outputs of one sample. Throws std::runtime_error on other
// sizes.
OutputComparison compare_outputs(const Tensor& expected, const Tensor& other, bool classifies);

// A line per tensor that differs, or one that says that none does.
std::string to_string(const Verification& verification);

}  // namespace steelyard::deploy
