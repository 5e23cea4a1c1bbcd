#include "steelyard/layers/catalogue.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/input_part.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/norms/rms_norm.h"
#include "steelyard/layers/output_parts.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/layers/where.h"

namespace steelyard {
namespace {

// Weights are allocated before they are read: what a file asks for is bounded.
void require_weights(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 1 || factor > kMostLayerWeights / product) {
      throw std::invalid_argument("expected sizes of at least 1 and at most " +
                                  std::to_string(kMostLayerWeights) + " weights");
    }
    product *= factor;
  }
}

void require_elements(const Shape& shape) {
  for (const std::int64_t dim : shape) require_weights({dim});
  if (!shape.empty()) require_weights({shape_size(shape)});
}

using Made = std::shared_ptr<Module>;

template <typename Layer>
LayerType plain(const char* name) {
  return {name, [](const StoredOptions&, Rng&) -> Made { return std::make_shared<Layer>(); }};
}

// A layer whose options are an S, with what stored ones that lack optional fields have.
template <typename S>
LayerType row(const char* name, Made (*make)(const S&, Rng&), const S& usual = {}) {
  return {name, [make, usual](const StoredOptions& options, Rng& rng) {
            return make(options_from<S>(options, usual), rng);
          }};
}

Made conv2d(const Conv2dOptions& o, Rng& rng) {
  require_weights({o.in_channels, o.out_channels, o.kernel_size[0], o.kernel_size[1]});
  return std::make_shared<Conv2d>(o, rng);
}

Made conv1d(const Conv1dOptions& o, Rng& rng) {
  require_weights({o.in_channels, o.out_channels, o.kernel_size});
  return std::make_shared<Conv1d>(o, rng);
}

Made conv_transpose2d(const ConvTranspose2dOptions& o, Rng& rng) {
  require_weights({o.in_channels, o.out_channels, o.kernel_size[0], o.kernel_size[1]});
  return std::make_shared<ConvTranspose2d>(o, rng);
}

Made linear(const LinearOptions& o, Rng& rng) {
  require_weights({o.in_features, o.out_features});
  return std::make_shared<Linear>(o, rng);
}

template <typename Norm>
Made batch_norm(const BatchNormOptions& o, Rng&) {
  require_weights({o.channels});
  return std::make_shared<Norm>(o);
}

Made layer_norm(const LayerNormOptions& o, Rng&) {
  require_weights({o.features});
  return std::make_shared<LayerNorm>(o);
}

Made rms_norm(const RmsNormOptions& o, Rng&) {
  require_weights({o.features});
  return std::make_shared<RMSNorm>(o);
}

Made causal_attention(const CausalAttentionOptions& o, Rng&) {
  return std::make_shared<CausalAttention>(o);
}

Made starts_of_documents(const DocumentStartsOptions& o, Rng&) {
  return std::make_shared<DocumentStarts>(o);
}

Made instance_norm(const InstanceNormOptions& o, Rng&) {
  require_weights({o.channels});
  return std::make_shared<InstanceNorm>(o);
}

Made lstm(const LstmLayerOptions& o, Rng& rng) {
  require_weights({4, o.units, o.inputs});
  require_weights({4, o.units, o.units});
  return std::make_shared<LSTM>(o, rng);
}

Made gru(const GruLayerOptions& o, Rng& rng) {
  require_weights({3, o.units, o.inputs});
  require_weights({3, o.units, o.units});
  return std::make_shared<GRU>(o, rng);
}

Made embedding(const EmbeddingOptions& o, Rng& rng) {
  require_weights({o.count, o.width});
  return std::make_shared<Embedding>(o, rng);
}

Made prelu(const PReluOptions& o, Rng&) {
  require_weights({o.slopes});
  return std::make_shared<PReLU>(o.slopes);
}

Made input_part(const SamplePart& part, Rng&) {
  require_elements(part.shape);
  return std::make_shared<InputPart>(part);
}

template <Reduction reduction>
Made reduce(const ReduceOptions& o, Rng&) {
  return std::make_shared<Reduce>(reduction, o.axes, o.keep);
}

template <Arithmetic operation>
LayerType pair_arithmetic(const char* name) {
  return {name, [](const StoredOptions&, Rng&) -> Made {
            return std::make_shared<PairArithmetic>(operation);
          }};
}

template <Arithmetic operation, bool constant_first>
Made constant_arithmetic(const StoredConstant& o, Rng&) {
  require_elements(o.shape);
  return std::make_shared<ConstantArithmetic>(
      ConstantArithmeticOptions{
          .operation = operation, .constant_first = constant_first, .trainable = o.trainable},
      Tensor::full(o.shape, 1));  // until it is loaded: it may divide
}

// Operands that are constants are ones until they are loaded.
template <Comparison comparison>
Made choice(const WhereOptions& o, Rng&) {
  std::array<Tensor, 4> constants;
  const std::array shapes{&o.x, &o.y, &o.a, &o.b};
  for (std::size_t i = 0; i < constants.size(); ++i) {
    if (!*shapes[i]) continue;
    require_elements(**shapes[i]);
    constants[i] = Tensor::full(**shapes[i], 1);
  }
  return std::make_shared<Where>(comparison, constants);
}

void require_axis(const ResizedAxis& axis, const std::string& side) {
  if (axis.repeats != 0) {
    constexpr std::int64_t kMost = 1 << 20;
    if (axis.repeats < 0 || axis.repeats > kMost) {
      throw std::invalid_argument(side + "_repeats: expected at most " + std::to_string(kMost));
    }
    return;
  }
  require_weights({axis.inputs, axis.outputs});
  if (std::ssize(axis.weights) != axis.inputs * axis.outputs) {
    throw std::invalid_argument(side + "_weights: expected " +
                                std::to_string(axis.inputs * axis.outputs) + " numbers, got " +
                                std::to_string(axis.weights.size()));
  }
}

Made resize(const ResizeOptions& o, Rng&) {
  require_axis(o.height, "height");
  require_axis(o.width, "width");
  return std::make_shared<Resize>(o.height, o.width);
}

// "Sqrt", "Pow", ...
void add_elementwise(std::vector<LayerType>& types) {
  using kernels::UnaryFunction;
  for (const auto& names : kUnaryNames) {
    types.push_back({names.layer, [function = names.value](const StoredOptions& o, Rng&) {
                       const double parameter =
                           function == UnaryFunction::kPower ? options_from<Exponent>(o).exponent
                           : function == UnaryFunction::kElu ? options_from<EluOptions>(o).alpha
                                                             : 1;
                       return std::make_shared<Elementwise>(function, parameter);
                     }});
  }
}

std::vector<LayerType> rows() {
  return {
      row<Conv2dOptions>("Conv2d", conv2d),
      row<Conv1dOptions>("Conv1d", conv1d),
      row<ConvTranspose2dOptions>("ConvTranspose2d", conv_transpose2d),
      row<LinearOptions>("Linear", linear),
      row<BatchNormOptions>("BatchNorm2d", batch_norm<BatchNorm2d>),
      row<BatchNormOptions>("BatchNorm1d", batch_norm<BatchNorm1d>),
      row<LayerNormOptions>("LayerNorm", layer_norm),
      row<RmsNormOptions>("RMSNorm", rms_norm),
      row<CausalAttentionOptions>("CausalAttention", causal_attention),
      row<DocumentStartsOptions>("DocumentStarts", starts_of_documents),
      plain<SwiGLU>("SwiGLU"),
      row<InstanceNormOptions>("InstanceNorm", instance_norm),
      row<LstmLayerOptions>("LSTM", lstm, kStoredLstm),
      row<GruLayerOptions>("GRU", gru),
      row<EmbeddingOptions>("Embedding", embedding),
      row<SamplePart>("InputPart", input_part),
      plain<ReLU>("ReLU"),
      plain<ReLU6>("ReLU6"),
      row<NegativeSlope>("LeakyReLU",
                         [](const NegativeSlope& o, Rng&) -> Made {
                           return std::make_shared<LeakyReLU>(o.slope);
                         }),
      row<PReluOptions>("PReLU", prelu),
      row<Bounds>(
          "Clamp",
          [](const Bounds& o, Rng&) -> Made { return std::make_shared<Clamp>(o.lo, o.hi); }),
      plain<Sigmoid>("Sigmoid"),
      row<kernels::Ramp>("HardSigmoid",
                         [](const kernels::Ramp& o, Rng&) -> Made {
                           return std::make_shared<HardSigmoid>(o.slope, o.offset);
                         }),
      row<kernels::Ramp>("Affine",
                         [](const kernels::Ramp& o, Rng&) -> Made {
                           return std::make_shared<Affine>(o.slope, o.offset);
                         }),
      plain<Hardswish>("Hardswish"),
      plain<SiLU>("SiLU"),
      plain<GELU>("GELU"),
      plain<TanhGELU>("TanhGELU"),
      plain<Softmax>("Softmax"),
      plain<LogSoftmax>("LogSoftmax"),
      row<Pool2dGeometry>(
          "MaxPool2d",
          [](const Pool2dGeometry& o, Rng&) -> Made { return std::make_shared<MaxPool2d>(o); }),
      row<AvgPool2dOptions>(
          "AvgPool2d",
          [](const AvgPool2dOptions& o, Rng&) -> Made { return std::make_shared<AvgPool2d>(o); }),
      plain<GlobalAvgPool>("GlobalAvgPool"),
      plain<Flatten>("Flatten"),
      row<AxisOrder>(
          "Permute",
          [](const AxisOrder& o, Rng&) -> Made { return std::make_shared<Permute>(o.order); }),
      row<NewShape>(
          "Reshape",
          [](const NewShape& o, Rng&) -> Made { return std::make_shared<Reshape>(o.shape); }),
      row<SliceOptions>("Slice",
                        [](const SliceOptions& o, Rng&) -> Made {
                          return std::make_shared<Slice>(o.axis, o.taken);
                        }),
      row<PadOptions>("Pad",
                      [](const PadOptions& o, Rng&) -> Made {
                        return std::make_shared<Pad>(o.before, o.after, o.value);
                      }),
      row<NewShape>(
          "Expand",
          [](const NewShape& o, Rng&) -> Made { return std::make_shared<Expand>(o.shape); }),
      row<ReduceOptions>("ReduceMax", reduce<Reduction::kMax>),
      row<ReduceOptions>("ReduceMin", reduce<Reduction::kMin>),
      row<ReduceOptions>("ReduceMean", reduce<Reduction::kMean>),
      row<ReduceOptions>("ReduceSum", reduce<Reduction::kSum>),
      row<CumulativeSumOptions>("CumulativeSum",
                                [](const CumulativeSumOptions& o, Rng&) -> Made {
                                  return std::make_shared<CumulativeSum>(o);
                                }),
      row<ResizeOptions>("Resize", resize),
      plain<Add>("Add"),
      pair_arithmetic<Arithmetic::kAdd>("BroadcastAdd"),
      pair_arithmetic<Arithmetic::kSubtract>("Sub"),
      pair_arithmetic<Arithmetic::kMultiply>("Mul"),
      pair_arithmetic<Arithmetic::kDivide>("Div"),
      pair_arithmetic<Arithmetic::kDivideNoNan>("DivNoNan"),
      pair_arithmetic<Arithmetic::kMaximum>("Max"),
      pair_arithmetic<Arithmetic::kMinimum>("Min"),
      row<StoredConstant>("MaxConstant", constant_arithmetic<Arithmetic::kMaximum, false>),
      row<StoredConstant>("MinConstant", constant_arithmetic<Arithmetic::kMinimum, false>),
      row<StoredConstant>("AddConstant", constant_arithmetic<Arithmetic::kAdd, false>),
      row<StoredConstant>("SubConstant", constant_arithmetic<Arithmetic::kSubtract, false>),
      row<StoredConstant>("MulConstant", constant_arithmetic<Arithmetic::kMultiply, false>),
      row<StoredConstant>("DivConstant", constant_arithmetic<Arithmetic::kDivide, false>),
      row<StoredConstant>("ConstantSub", constant_arithmetic<Arithmetic::kSubtract, true>),
      row<StoredConstant>("ConstantDiv", constant_arithmetic<Arithmetic::kDivide, true>),
      row<WhereOptions>("WhereGreater", choice<Comparison::kGreater>),
      row<WhereOptions>("WhereGreaterEqual", choice<Comparison::kGreaterEqual>),
      row<WhereOptions>("WhereEqual", choice<Comparison::kEqual>),
      plain<MatMul>("MatMul"),
      plain<Cat>("Cat"),
      row<JoinedAxis>(
          "CatAxis",
          [](const JoinedAxis& o, Rng&) -> Made { return std::make_shared<CatAxis>(o.axis); }),
      plain<OutputParts>("OutputParts"),
      row<DropoutOptions>(
          "Dropout",
          [](const DropoutOptions& o, Rng&) -> Made { return std::make_shared<Dropout>(o); }),
  };
}

}  // namespace

const std::vector<LayerType>& layer_catalogue() {
  static const std::vector<LayerType> kTypes = [] {
    std::vector<LayerType> types = rows();
    add_elementwise(types);
    return types;
  }();
  return kTypes;
}

const LayerType* find_layer_type(std::string_view name) {
  const auto& types = layer_catalogue();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const LayerType& type) { return type.name == name; });
  return found == types.end() ? nullptr : &*found;
}

}  // namespace steelyard
