// The layers of recipes that are functions of each element or move elements.
#include <algorithm>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

using kernels::UnaryFunction;

struct UnaryHelp {
  UnaryFunction value;
  const char* help;
};
// Those without options.
constexpr UnaryHelp kUnaryHelp[] = {
    {UnaryFunction::kSqrt, "square root"},
    {UnaryFunction::kExp, "exp(x)"},
    {UnaryFunction::kLog, "natural logarithm"},
    {UnaryFunction::kAbs, "absolute value"},
    {UnaryFunction::kErf, "error function"},
    {UnaryFunction::kTanh, "hyperbolic tangent"},
    {UnaryFunction::kSin, "sine"},
    {UnaryFunction::kCos, "cosine"},
    {UnaryFunction::kSoftplus, "log(1 + exp(x))"},
    {UnaryFunction::kSign, "-1, 0 or 1; its gradient is 0, as those of the next three"},
    {UnaryFunction::kFloor, "the largest whole number that is not above x"},
    {UnaryFunction::kCeil, "the smallest whole number that is not below x"},
    {UnaryFunction::kRound, "the nearest whole number, of two the even one"},
};

void add_functions(ModelRegistry& registry) {
  for (const UnaryHelp& row : kUnaryHelp) {
    registry.add_layer(row_in(kUnaryNames, row.value).layer, row.help, {},
                       [function = row.value](const LayerSpec&, Rng&) {
                         return std::make_shared<Elementwise>(function);
                       });
  }
  registry.add_layer<EluOptions>(
      "Elu", "x, below 0 alpha * (exp(x) - 1)",
      {key("alpha", "factor below zero", &EluOptions::alpha).by_default().above(0)},
      [](EluOptions o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<Elementwise>(UnaryFunction::kElu, o.alpha);
      });
  registry.add_layer<Exponent>(
      "Pow", "x to a power",
      {key("exponent", "the power", &Exponent::exponent).required().within(-64, 64)},
      [](Exponent o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<Elementwise>(UnaryFunction::kPower, o.exponent);
      });
  registry.add_layer("TanhGELU", "GELU by tanh", {},
                     [](const LayerSpec&, Rng&) { return std::make_shared<TanhGELU>(); });
  registry.add_layer<kernels::Ramp>(
      "HardSigmoid", "slope * x + offset, within 0 and 1",
      {key("slope", "of the line", &kernels::Ramp::slope).by_default("0.16666666666666666"),
       key("offset", "its value at 0", &kernels::Ramp::offset).by_default("0.5")},
      [](kernels::Ramp o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<HardSigmoid>(o.slope, o.offset);
      });
  registry.add_layer<kernels::Ramp>(
      "Affine", "slope * x + offset",
      {key("slope", "factor of x", &kernels::Ramp::slope).by_default("1"),
       key("offset", "what is added", &kernels::Ramp::offset).by_default("0")},
      [](kernels::Ramp o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<Affine>(o.slope, o.offset);
      });
  registry.add_layer<Bounds>("Clamp", "x within two bounds",
                             {key("lo", "the lower bound", &Bounds::lo).required(),
                              key("hi", "the upper bound", &Bounds::hi).required()},
                             [](Bounds o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
                               return std::make_shared<Clamp>(o.lo, o.hi);
                             });
}

struct PReluSpec {
  bool per_channel = false;
};

std::shared_ptr<Module> make_prelu(PReluSpec options, const LayerSpec& spec, Rng&) {
  return std::make_shared<PReLU>(options.per_channel ? spec.input_shape().back() : 1);
}

// A sample's sizes after the batch's.
Shape with_batch(Shape shape) {
  shape.insert(shape.begin(), 0);  // as the input's
  return shape;
}

std::shared_ptr<Module> make_permute(AxisOrder options, const LayerSpec&, Rng&) {
  return std::make_shared<Permute>(with_batch(options.order));
}

std::shared_ptr<Module> make_reshape(NewShape options, const LayerSpec& spec, Rng&) {
  if (std::count(options.shape.begin(), options.shape.end(), 0) > 0) {
    fail_at(spec.at("shape").place, "expected sizes of at least 1, or -1 once, got 0");
  }
  return std::make_shared<Reshape>(with_batch(options.shape));
}

template <Reduction reduction>
std::shared_ptr<Module> make_reduce(ReduceOptions options, const LayerSpec&, Rng&) {
  return std::make_shared<Reduce>(reduction, options.axes, options.keep);
}

struct UpsampleSpec {
  std::array<std::int64_t, 2> factor{2, 2};
};

std::shared_ptr<Module> make_upsample(UpsampleSpec options, const LayerSpec& spec, Rng&) {
  spec.channels();
  return std::make_shared<Resize>(ResizedAxis{.repeats = options.factor[0]},
                                  ResizedAxis{.repeats = options.factor[1]});
}

void add_moves(ModelRegistry& registry) {
  constexpr double kMostDims = 7;
  registry.add_layer<AxisOrder>(
      "Permute", "dimensions in another order",
      {key("order", "dimensions of the input, from 1 on: [2, 1] swaps those of a sequence",
           &AxisOrder::order)
           .required()
           .within(1, kMostDims)
           .items(1)},
      make_permute);
  registry.add_layer<NewShape>(
      "Reshape", "the same elements under another shape; an image is [height, width, channels]",
      {key("shape", "sizes without the batch's; -1, once, is what is left", &NewShape::shape)
           .required()
           .within(-1, 1 << 30)},
      make_reshape);
  registry.add_layer<SliceOptions>(
      "Slice", "a part of one dimension",
      {key("axis", "the dimension, from 1 on", &SliceOptions::axis).required().within(1, kMostDims),
       key("first", "its first position, from 0 on", &SliceOptions::taken, &TakenAxis::first)
           .by_default("0")
           .at_least(0),
       key("count", "how many positions", &SliceOptions::taken, &TakenAxis::count)
           .required()
           .at_least(1),
       key("step", "from one to the next; negative: backwards", &SliceOptions::taken,
           &TakenAxis::step)
           .by_default("1")},
      [](SliceOptions o, const LayerSpec&, Rng&) -> std::shared_ptr<Module> {
        return std::make_shared<Slice>(o.axis, o.taken);
      });
  const std::vector<Row<ReduceOptions>> reduced{
      key("axes", "the dimensions, from 1 on", &ReduceOptions::axes)
          .required()
          .within(1, kMostDims)
          .items(1),
      key("keep", "whether they stay with size 1", &ReduceOptions::keep).by_default()};
  registry.add_layer<ReduceOptions>("ReduceMean", "mean over dimensions", reduced,
                                    make_reduce<Reduction::kMean>);
  registry.add_layer<ReduceOptions>("ReduceSum", "sum over dimensions", reduced,
                                    make_reduce<Reduction::kSum>);
  registry.add_layer<ReduceOptions>("ReduceMax", "largest value over dimensions", reduced,
                                    make_reduce<Reduction::kMax>);
  registry.add_layer<ReduceOptions>("ReduceMin", "smallest value over dimensions", reduced,
                                    make_reduce<Reduction::kMin>);
  registry.add_layer<UpsampleSpec>(
      "Upsample", "every row and column of an image so often",
      {key("factor", "of rows and columns", &UpsampleSpec::factor).by_default().within(1, 64)},
      make_upsample);
}

}  // namespace

void add_function_layers(ModelRegistry& registry) {
  add_functions(registry);
  registry.add_layer<PReluSpec>(
      "PReLU", "max(x, 0) + slope * min(x, 0) with a slope that is learned",
      {key("per_channel", "whether each channel has a slope of its own", &PReluSpec::per_channel)
           .by_default()},
      make_prelu);
  add_moves(registry);
}

}  // namespace steelyard
