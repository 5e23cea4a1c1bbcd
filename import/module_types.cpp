#include "steelyard/import/module_types.h"

#include <array>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/input_part.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/layers/where.h"

namespace steelyard::imports {
namespace {

constexpr std::int64_t kMostWeights = std::int64_t{1} << 28;

// Weights are allocated before they are read: what a file asks for is bounded.
void require_weights(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 1 || factor > kMostWeights / product) {
      throw std::invalid_argument("expected sizes of at least 1 and at most " +
                                  std::to_string(kMostWeights) + " weights");
    }
    product *= factor;
  }
}

template <typename T>
std::shared_ptr<Module> plain(const OptionsReader&, Rng&) {
  return std::make_shared<T>();
}

std::shared_ptr<Module> conv2d(const OptionsReader& o, Rng& rng) {
  const Conv2dOptions options{.in_channels = o.integer("in_channels"),
                              .out_channels = o.integer("out_channels"),
                              .kernel_size = o.pair("kernel"),
                              .stride = o.pair("stride"),
                              .padding = o.pair("padding"),
                              .dilation = o.pair("dilation"),
                              .groups = o.integer("groups"),
                              .bias = o.flag("bias")};
  require_weights(
      {options.in_channels, options.out_channels, options.kernel_size[0], options.kernel_size[1]});
  return std::make_shared<Conv2d>(options, rng);
}

std::shared_ptr<Module> conv1d(const OptionsReader& o, Rng& rng) {
  const Conv1dOptions options{.in_channels = o.integer("in_channels"),
                              .out_channels = o.integer("out_channels"),
                              .kernel_size = o.integer("kernel"),
                              .stride = o.integer("stride"),
                              .padding = o.integer("padding"),
                              .dilation = o.integer("dilation"),
                              .groups = o.integer("groups"),
                              .bias = o.flag("bias")};
  require_weights({options.in_channels, options.out_channels, options.kernel_size});
  return std::make_shared<Conv1d>(options, rng);
}

std::shared_ptr<Module> conv_transpose2d(const OptionsReader& o, Rng& rng) {
  const ConvTranspose2dOptions options{.in_channels = o.integer("in_channels"),
                                       .out_channels = o.integer("out_channels"),
                                       .kernel_size = o.pair("kernel"),
                                       .stride = o.pair("stride"),
                                       .padding = o.pair("padding"),
                                       .output_padding = o.pair("output_padding"),
                                       .dilation = o.pair("dilation"),
                                       .groups = o.integer("groups"),
                                       .bias = o.flag("bias")};
  require_weights(
      {options.in_channels, options.out_channels, options.kernel_size[0], options.kernel_size[1]});
  return std::make_shared<ConvTranspose2d>(options, rng);
}

std::shared_ptr<Module> linear(const OptionsReader& o, Rng& rng) {
  const LinearOptions options{.in_features = o.integer("in_features"),
                              .out_features = o.integer("out_features"),
                              .bias = o.flag("bias")};
  require_weights({options.in_features, options.out_features});
  return std::make_shared<Linear>(options, rng);
}

std::shared_ptr<Module> batch_norm(const OptionsReader& o, Rng&) {
  require_weights({o.integer("channels")});
  return std::make_shared<BatchNorm2d>(BatchNorm2dOptions{
      .channels = o.integer("channels"), .eps = o.real("eps"), .momentum = o.real("momentum")});
}

std::shared_ptr<Module> layer_norm(const OptionsReader& o, Rng&) {
  require_weights({o.integer("features")});
  return std::make_shared<LayerNorm>(
      LayerNormOptions{.features = o.integer("features"), .eps = o.real("eps")});
}

std::shared_ptr<Module> instance_norm(const OptionsReader& o, Rng&) {
  require_weights({o.integer("channels")});
  return std::make_shared<InstanceNorm>(
      InstanceNormOptions{.channels = o.integer("channels"), .eps = o.real("eps")});
}

std::shared_ptr<Module> lstm(const OptionsReader& o, Rng& rng) {
  const LstmLayerOptions options{
      .inputs = o.integer("inputs"),
      .units = o.integer("units"),
      .pass = {.reverse = o.flag("reverse"), .final_cell = o.flag("final_cell")},
      // Files of earlier versions do not say it.
      .begins_at_zero = o.has("begins_at_zero") && o.flag("begins_at_zero")};
  require_weights({4, options.units, options.inputs});
  require_weights({4, options.units, options.units});
  return std::make_shared<LSTM>(options, rng);
}

std::shared_ptr<Module> embedding(const OptionsReader& o, Rng& rng) {
  require_weights({o.integer("count"), o.integer("width")});
  return std::make_shared<Embedding>(
      EmbeddingOptions{.count = o.integer("count"), .width = o.integer("width")}, rng);
}

// "Sqrt", "Pow", ...
std::vector<ModuleType> with_elementwise(std::vector<ModuleType> types) {
  using kernels::UnaryFunction;
  for (const auto& names : kUnaryNames) {
    types.push_back({names.layer, [function = names.value](const OptionsReader& o, Rng&) {
                       const double parameter = function == UnaryFunction::kPower
                                                    ? o.real("exponent")
                                                : function == UnaryFunction::kElu ? o.real("alpha")
                                                                                  : 1;
                       return std::make_shared<Elementwise>(function, parameter);
                     }});
  }
  return types;
}

Pool2dGeometry pool_of(const OptionsReader& o) {
  return {.kernel = o.pair("kernel"), .stride = o.pair("stride"), .padding = o.pair("padding")};
}

template <Arithmetic operation>
std::shared_ptr<Module> pair_arithmetic(const OptionsReader&, Rng&) {
  return std::make_shared<PairArithmetic>(operation);
}

template <Arithmetic operation, bool constant_first>
std::shared_ptr<Module> constant_arithmetic(const OptionsReader& o, Rng&) {
  const Shape& shape = o.integers("shape");
  for (const std::int64_t dim : shape) require_weights({dim});
  if (!shape.empty()) require_weights({shape_size(shape)});
  return std::make_shared<ConstantArithmetic>(
      ConstantArithmeticOptions{.operation = operation,
                                .constant_first = constant_first,
                                .trainable = o.flag("trainable")},
      Tensor::full(shape, 1));  // until it is loaded: it may divide
}

// Constants of which an option has the shape are operands, until they are loaded of ones.
template <Comparison comparison>
std::shared_ptr<Module> choice(const OptionsReader& o, Rng&) {
  std::array<Tensor, 4> constants;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    const std::string name = std::string(Where::kOperands[i]) + "_shape";
    if (!o.has(name)) continue;
    const Shape& shape = o.integers(name);
    for (const std::int64_t dim : shape) require_weights({dim});
    if (!shape.empty()) require_weights({shape_size(shape)});
    constants[i] = Tensor::full(shape, 1);
  }
  return std::make_shared<Where>(comparison, constants);
}

ResizedAxis resized_axis(const OptionsReader& o, const std::string& prefix) {
  ResizedAxis axis{.repeats = o.integer(prefix + "_repeats")};
  if (axis.repeats != 0) {
    constexpr std::int64_t kMost = 1 << 20;
    if (axis.repeats < 0 || axis.repeats > kMost) {
      throw std::invalid_argument(prefix + "_repeats: expected at most " + std::to_string(kMost));
    }
    return axis;
  }
  axis.inputs = o.integer(prefix + "_in");
  axis.outputs = o.integer(prefix + "_out");
  require_weights({axis.inputs, axis.outputs});
  axis.weights = o.reals(prefix + "_weights");
  if (std::ssize(axis.weights) != axis.inputs * axis.outputs) {
    throw std::invalid_argument(prefix + "_weights: expected " +
                                std::to_string(axis.inputs * axis.outputs) + " numbers, got " +
                                std::to_string(axis.weights.size()));
  }
  return axis;
}

std::shared_ptr<Module> input_part(const OptionsReader& o, Rng&) {
  const Shape& shape = o.integers("shape");
  for (const std::int64_t dim : shape) require_weights({dim});
  if (!shape.empty()) require_weights({shape_size(shape)});
  return std::make_shared<InputPart>(SamplePart{o.integer("first"), shape});
}

std::shared_ptr<Module> reduce(Reduction reduction, const OptionsReader& o) {
  return std::make_shared<Reduce>(reduction, o.integers("axes"), o.flag("keep"));
}

}  // namespace

template <typename T>
const T& OptionsReader::get(const std::string& name) const {
  const auto found = options_.find(name);
  if (found == options_.end()) throw std::invalid_argument("the option '" + name + "' is missing");
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    throw std::invalid_argument("the option '" + name + "' is of another kind");
  }
  return *value;
}

std::array<std::int64_t, 2> OptionsReader::pair(const std::string& name) const {
  const auto& values = integers(name);
  if (values.size() != 2) throw std::invalid_argument("expected two integers for '" + name + "'");
  return {values[0], values[1]};
}

const std::vector<ModuleType>& module_types() {
  static const std::vector<ModuleType> kTypes = with_elementwise({
      {"Conv2d", conv2d},
      {"Conv1d", conv1d},
      {"ConvTranspose2d", conv_transpose2d},
      {"Linear", linear},
      {"BatchNorm2d", batch_norm},
      {"LayerNorm", layer_norm},
      {"InstanceNorm", instance_norm},
      {"LSTM", lstm},
      {"ReLU", plain<ReLU>},
      {"ReLU6", plain<ReLU6>},
      {"LeakyReLU",
       [](const OptionsReader& o, Rng&) { return std::make_shared<LeakyReLU>(o.real("slope")); }},
      {"PReLU",
       [](const OptionsReader& o, Rng&) {
         require_weights({o.integer("slopes")});
         return std::make_shared<PReLU>(o.integer("slopes"));
       }},
      {"Clamp", [](const OptionsReader& o,
                   Rng&) { return std::make_shared<Clamp>(o.real("lo"), o.real("hi")); }},
      {"Sigmoid", plain<Sigmoid>},
      {"HardSigmoid",
       [](const OptionsReader& o, Rng&) {
         return std::make_shared<HardSigmoid>(o.real("slope"), o.real("offset"));
       }},
      {"Affine", [](const OptionsReader& o,
                    Rng&) { return std::make_shared<Affine>(o.real("slope"), o.real("offset")); }},
      {"Hardswish", plain<Hardswish>},
      {"SiLU", plain<SiLU>},
      {"GELU", plain<GELU>},
      {"TanhGELU", plain<TanhGELU>},
      {"Softmax", plain<Softmax>},
      {"LogSoftmax", plain<LogSoftmax>},
      {"Embedding", embedding},
      {"InputPart", input_part},
      {"MaxPool2d",
       [](const OptionsReader& o, Rng&) { return std::make_shared<MaxPool2d>(pool_of(o)); }},
      {"AvgPool2d",
       [](const OptionsReader& o, Rng&) {
         return std::make_shared<AvgPool2d>(
             AvgPool2dOptions{pool_of(o), o.flag("count_include_pad")});
       }},
      {"GlobalAvgPool", plain<GlobalAvgPool>},
      {"Flatten", plain<Flatten>},
      {"Permute",
       [](const OptionsReader& o, Rng&) { return std::make_shared<Permute>(o.integers("order")); }},
      {"Reshape",
       [](const OptionsReader& o, Rng&) { return std::make_shared<Reshape>(o.integers("shape")); }},
      {"Slice",
       [](const OptionsReader& o, Rng&) {
         return std::make_shared<Slice>(
             o.integer("axis"),
             TakenAxis{o.integer("first"), o.integer("count"), o.integer("step")});
       }},
      {"Pad",
       [](const OptionsReader& o, Rng&) {
         return std::make_shared<Pad>(o.integers("before"), o.integers("after"), o.real("value"));
       }},
      {"Expand",
       [](const OptionsReader& o, Rng&) { return std::make_shared<Expand>(o.integers("shape")); }},
      {"ReduceMax", [](const OptionsReader& o, Rng&) { return reduce(Reduction::kMax, o); }},
      {"ReduceMin", [](const OptionsReader& o, Rng&) { return reduce(Reduction::kMin, o); }},
      {"ReduceMean", [](const OptionsReader& o, Rng&) { return reduce(Reduction::kMean, o); }},
      {"ReduceSum", [](const OptionsReader& o, Rng&) { return reduce(Reduction::kSum, o); }},
      {"Resize",
       [](const OptionsReader& o, Rng&) {
         return std::make_shared<Resize>(resized_axis(o, "height"), resized_axis(o, "width"));
       }},
      {"Add", plain<Add>},
      {"BroadcastAdd", pair_arithmetic<Arithmetic::kAdd>},
      {"Sub", pair_arithmetic<Arithmetic::kSubtract>},
      {"Mul", pair_arithmetic<Arithmetic::kMultiply>},
      {"Div", pair_arithmetic<Arithmetic::kDivide>},
      {"DivNoNan", pair_arithmetic<Arithmetic::kDivideNoNan>},
      {"Max", pair_arithmetic<Arithmetic::kMaximum>},
      {"Min", pair_arithmetic<Arithmetic::kMinimum>},
      {"MaxConstant", constant_arithmetic<Arithmetic::kMaximum, false>},
      {"MinConstant", constant_arithmetic<Arithmetic::kMinimum, false>},
      {"AddConstant", constant_arithmetic<Arithmetic::kAdd, false>},
      {"SubConstant", constant_arithmetic<Arithmetic::kSubtract, false>},
      {"MulConstant", constant_arithmetic<Arithmetic::kMultiply, false>},
      {"DivConstant", constant_arithmetic<Arithmetic::kDivide, false>},
      {"ConstantSub", constant_arithmetic<Arithmetic::kSubtract, true>},
      {"ConstantDiv", constant_arithmetic<Arithmetic::kDivide, true>},
      {"WhereGreater", choice<Comparison::kGreater>},
      {"WhereGreaterEqual", choice<Comparison::kGreaterEqual>},
      {"WhereEqual", choice<Comparison::kEqual>},
      {"MatMul", plain<MatMul>},
      {"Cat", plain<Cat>},
      {"CatAxis",
       [](const OptionsReader& o, Rng&) { return std::make_shared<CatAxis>(o.integer("axis")); }},
  });
  return kTypes;
}

}  // namespace steelyard::imports
