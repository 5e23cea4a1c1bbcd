// The quantized form of a float module: what replaces it, and how prepare() connects it. The
// library's are listed in qat/layers/form_table.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/kernels/affine.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

enum class FormKind {
  kWeighted,       // a linear map, chosen by targets: its form is a QuantizedLayer
  kPassesThrough,  // moves values: its output has its input's quantizer
  kComputes,       // one input, an output with a quantizer of its own
  kJoins           // several inputs, an output with a quantizer of its own: a JoinModule
};

// The profiles that have a form.
enum class FormProfiles {
  kRoundingFloats,  // those that round integers as floats
  kFixedPoint,      // those of fixed point (is_fixed_point())
  kAll
};

// The arguments from which a form is made.
struct FormRequest {
  QConfig config{};          // kWeighted: of the layer's group
  QuantizerConfig output{};  // kComputes, kJoins: of the output
  // kWeighted: the parameters "weight" and "bias" of the float module (bias may be undefined), or
  // what they are with a batch norm folded in.
  Tensor weight{};
  Tensor bias{};
  // kWeighted and, where `fuses_activation` says so, kJoins: computed before the quantizer.
  kernels::Activation activation = kernels::Activation::kNone;
};

// One row of the table. Names of parameters and buffers must be those of the float module.
struct QuantizedForm {
  std::string type;  // the float module's, for messages
  FormKind kind = FormKind::kPassesThrough;
  std::function<bool(const Module&)> matches;
  std::function<std::shared_ptr<Module>(const Module&, const FormRequest&)> make;

  // The widest codes that it reads and writes: 16 where it knows those held as int32
  // (qat/forms/wide_codes.h).
  int most_bits = 8;
  std::string note{};  // kComputes, kJoins: of the output in the plan
  // kWeighted: the weights by output channel, [O, ...], of a parameter of another layout; it is its
  // own inverse. None where the parameter has that layout.
  std::function<Tensor(const Module&, const Tensor& parameter)> by_output_channel{};
  // kWeighted: into how many groups its channels fall, each output reading the inputs of its group;
  // without it, equalize() leaves the layer alone.
  std::function<std::int64_t(const Module&)> groups{};
  // Whether channels that are multiplied by positive factors come out multiplied by them.
  bool passes_factors = false;
  // kWeighted: a linear map, which also computes a batch norm and an activation after it, and whose
  // output may stay in float.
  bool is_linear = true;
  // kWeighted: neither what it reads nor its output has codes; with a group without weights it
  // stays in float.
  bool weights_alone = false;
  // kWeighted: further tensors with the quantizers of its group, for the plan.
  std::vector<std::string> more_weights{}, more_activations{};
  // kPassesThrough: what it computes, where the node before it may compute that instead.
  kernels::Activation activation = kernels::Activation::kNone;
  FormProfiles profiles = FormProfiles::kRoundingFloats;
  // kComputes, kWeighted: why this module stays in float although its output would have such a
  // quantizer; "" where it does not. In profiles of fixed point also kPassesThrough: why there is
  // no such form of it.
  std::function<std::string(const Module&, const QuantizerConfig& output)> refusal{};
  // kComputes, kJoins: what the output's quantizer has otherwise than the group's activations.
  std::function<void(QuantizerConfig& output)> output{};
  // kWeighted: what the quantizers of its weights have otherwise than the group's weights.
  std::function<void(QuantizerConfig& weights)> weights{};
  // kComputes: before another of its kind, its only reader, the output stays in float, and the last
  // of them has the quantizer.
  bool continues = false;
  bool fuses_activation = false;  // kJoins: takes along a ReLU or ReLU6 after it
  // kJoins, profile tensorrt: so many of the first operands stay in float, `reader` tells their
  // producers why.
  std::size_t float_operands = 0;
  std::string reader{};
};

using QuantizedForms = std::vector<QuantizedForm>;

// A row for modules of type Float and those derived from it.
template <typename Float>
QuantizedForm form_of(std::string type, FormKind kind,
                      std::shared_ptr<Module> (*make)(const Float&, const FormRequest&)) {
  return {.type = std::move(type),
          .kind = kind,
          .matches =
              [](const Module& module) { return dynamic_cast<const Float*>(&module) != nullptr; },
          .make =
              [make](const Module& module, const FormRequest& request) {
                return make(dynamic_cast<const Float&>(module), request);
              }};
}

}  // namespace steelyard::qat
