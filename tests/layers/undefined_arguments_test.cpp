// Every public function of the engine and its layers, called with undefined variables and tensors
// and null modules: each throws, and says that it got one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/rotary.h"
#include "steelyard/framework/ops/elementwise/swiglu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/choose.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/moves/gather.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/attention.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/ops/reductions/rms_norm.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/framework/tensor/float_range.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/gradient_clipping.h"
#include "steelyard/framework/train/loss.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/input_part.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/output_parts.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/where.h"
#include "tests/support/tensors.h"

namespace steelyard::undefined_arguments_test {
namespace {

const Variable kNone;

Variable ones(Shape shape) { return Variable(Tensor::full(std::move(shape), 1), true); }

Rng& rng() {
  static Rng generator(1);
  return generator;
}

struct Call {
  std::string name;
  std::function<void()> call;
};

void PrintTo(const Call& c, std::ostream* out) { *out << c.name; }

// The message of what the call throws; "" if it returns.
std::string message_of(const Call& c) {
  try {
    c.call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class Undefined : public ::testing::TestWithParam<Call> {};

TEST_P(Undefined, IsAnErrorThatSaysSo) {
  EXPECT_THAT(message_of(GetParam()),
              ::testing::AnyOf(::testing::HasSubstr("undefined"), ::testing::HasSubstr("null")));
}

std::vector<Call> accesses() {
  return {
      {"shape", [] { kNone.shape(); }},
      {"dim", [] { kNone.dim(0); }},
      {"dtype", [] { kNone.dtype(); }},
      {"value", [] { kNone.value(); }},
      {"grad", [] { kNone.grad(); }},
      {"node", [] { kNone.node(); }},
      {"set_grad", [] { Variable().set_grad(Tensor::zeros({1})); }},
      {"clear_grad", [] { Variable().clear_grad(); }},
      {"set_value", [] { Variable().set_value(Tensor::zeros({1})); }},
      {"set_requires_grad", [] { Variable().set_requires_grad(true); }},
      {"backward", [] { kNone.backward(); }},
      {"backward_of", [] { kNone.backward(Tensor::zeros({1})); }},
      {"backward_by", [] { (ones({}) * ones({})).backward(Tensor()); }},
      {"variable_of", [] { Variable variable{Tensor()}; }},
      {"set_value_to", [] { ones({1}).set_value(Tensor()); }},
      {"saved_bytes", [] { saved_bytes(kNone, {}); }},
      {"tensor_dim", [] { Tensor().dim(0); }},
      {"tensor_data", [] { Tensor().data<float>(); }},
      {"tensor_span", [] { Tensor().span<float>(); }},
      {"tensor_item", [] { Tensor().item(); }},
      {"tensor_reshape", [] { Tensor().reshape({0}); }},
      {"tensor_to_f32", [] { Tensor().to(DType::kF32); }},
      {"tensor_to_f64", [] { Tensor().to(DType::kF64); }},
      {"tensor_fill", [] { Tensor().fill(1); }},
      {"tensor_copy_from", [] { Tensor().copy_from(Tensor::zeros({1})); }},
      {"tensor_copy_from_none", [] { Tensor::zeros({1}).copy_from(Tensor()); }},
  };
}

std::vector<Call> operations() {
  const auto one = [](const char* name, Variable (*op)(const Variable&)) {
    return Call{name, [op] { op(kNone); }};
  };
  std::vector<Call> calls{
      one("sigmoid", sigmoid),
      one("gelu", gelu),
      one("tanh_gelu", tanh_gelu),
      one("silu", silu),
      one("hardswish", hardswish),
      one("relu", relu),
      one("relu6", relu6),
      one("flatten", flatten),
      one("cumulative_sum", [](const Variable& x) { return cumulative_sum(x); }),
      one("log_softmax", log_softmax),
      one("softmax", softmax),
      one("sqrt", sqrt),
      one("exp", exp),
      one("log", log),
      one("abs", abs),
      one("erf", erf),
      one("tanh", tanh),
      one("sin", sin),
      one("cos", cos),
      one("softplus", softplus),
      one("sign", sign),
      one("floor", floor),
      one("ceil", ceil),
      one("round", round),
      one("sum", sum),
      one("mean", mean),
      one("negative", operator-),
      one("global_avg_pool", global_avg_pool),
      {"elu", [] { elu(kNone, 1); }},
      {"pow", [] { pow(kNone, 2); }},
      {"hard_sigmoid", [] { hard_sigmoid(kNone, 0.2, 0.5); }},
      {"leaky_relu", [] { leaky_relu(kNone); }},
      {"affine", [] { affine(kNone, 1, 0); }},
      {"clamp", [] { clamp(kNone, 0, 1); }},
      {"constant", [] { constant(1, kNone); }},
      {"sum_axes", [] { sum(kNone, {0}); }},
      {"mean_axes", [] { mean(kNone, {0}); }},
      {"amax", [] { amax(kNone, {0}); }},
      {"amin", [] { amin(kNone, {0}); }},
      {"where", [] { where(Tensor(), ones({1}), ones({1})); }},
      {"where_of", [] { where(Tensor::zeros({1}, DType::kBool), kNone, ones({1})); }},
      {"batch_norm", [] { batch_norm(kNone, ones({2}), ones({2}), {}); }},
      {"batch_norm_gamma",
       [] {
         batch_norm(ones({3, 2}), kNone, ones({2}), {});
       }},
      {"choose", [] { choose(Comparison::kGreater, kNone, ones({1}), ones({1}), ones({1})); }},
      {"choose_last", [] { choose(Comparison::kGreater, ones({1}), ones({1}), ones({1}), kNone); }},
      {"concat", [] { concat({kNone}); }},
      {"concat_second",
       [] {
         concat({ones({1}), kNone});
       }},
      {"split", [] { split(Tensor(), {1}); }},
      {"conv2d",
       [] {
         conv2d(kNone, ones({1, 1, 1, 1}), {});
       }},
      {"conv2d_weight",
       [] {
         conv2d(ones({1, 1, 1, 1}), kNone, {});
       }},
      {"conv_transpose2d",
       [] {
         conv_transpose2d(kNone, ones({1, 1, 1, 1}), {});
       }},
      {"conv_transpose2d_weight",
       [] {
         conv_transpose2d(ones({1, 1, 1, 1}), kNone, {});
       }},
      {"dropout", [] { dropout(kNone, 0.5, rng()); }},
      {"apply_dropout", [] { apply_dropout(Tensor(), Tensor(), 0.5); }},
      {"embedding",
       [] {
         embedding(Tensor(), ones({2, 2}));
       }},
      {"embedding_of",
       [] {
         embedding(kNone, ones({2, 2}));
       }},
      {"embedding_table", [] { embedding(Tensor::zeros({1}, DType::kI64), kNone); }},
      {"causal_attention",
       [] {
         causal_attention(kNone, ones({1, 1, 2}), ones({1, 1, 2}), {});
       }},
      {"causal_attention_keys",
       [] {
         causal_attention(ones({1, 1, 2}), kNone, ones({1, 1, 2}), {});
       }},
      {"causal_attention_values",
       [] {
         causal_attention(ones({1, 1, 2}), ones({1, 1, 2}), kNone, {});
       }},
      {"rms_norm", [] { rms_norm(kNone, ones({2})); }},
      {"rms_norm_gamma",
       [] {
         rms_norm(ones({1, 2}), kNone);
       }},
      {"rotary", [] { rotary(kNone, {.width = 2}); }},
      {"document_starts", [] { document_starts(Tensor(), 1); }},
      {"swiglu", [] { swiglu(kNone, ones({2})); }},
      {"swiglu_up", [] { swiglu(ones({2}), kNone); }},
      {"expand", [] { expand(kNone, {2}); }},
      {"gather", [] { gather(kNone, Tensor::zeros({1}, DType::kI64)); }},
      {"gather_indices", [] { gather(ones({2}), Tensor()); }},
      {"input_part",
       [] {
         input_part(kNone, {0, {1}});
       }},
      {"output_parts",
       [] {
         output_parts({ones({1, 2}), kNone});
       }},
      {"layer_norm", [] { layer_norm(kNone, ones({2}), ones({2})); }},
      {"layer_norm_beta",
       [] {
         layer_norm(ones({1, 2}), ones({2}), kNone);
       }},
      {"linear",
       [] {
         linear(kNone, ones({1, 1}), {});
       }},
      {"linear_weight",
       [] {
         linear(ones({1, 1}), kNone, {});
       }},
      {"lstm", [] { lstm(kNone, {}); }},
      {"lstm_weights",
       [] {
         lstm(ones({1, 2, 3}), {});
       }},
      {"gru", [] { gru(kNone, {}); }},
      {"gru_weights",
       [] {
         gru(ones({1, 2, 3}), {});
       }},
      {"permute", [] { permute(kNone, {0}); }},
      {"transpose", [] { transpose(kNone, 0, 1); }},
      {"reshape", [] { reshape(kNone, {1}); }},
      {"max_pool2d", [] { max_pool2d(kNone, {}); }},
      {"avg_pool2d", [] { avg_pool2d(kNone, {}); }},
      {"resize", [] { resize(kNone, {.repeats = 2}, {.repeats = 2}); }},
      {"repeated", [] { repeated(Tensor(), 2, 2); }},
      {"repeated_gradient", [] { repeated_gradient(Tensor(), 2, 2); }},
      {"slice",
       [] {
         slice(kNone, {{0, 1, 1}});
       }},
      {"pad", [] { pad(kNone, {1}, {1}); }},
  };
  using Pair = Variable (*)(const Variable&, const Variable&);
  for (const auto& [name, op] :
       std::initializer_list<std::pair<const char*, Pair>>{{"add", add},
                                                           {"broadcast_add", broadcast_add},
                                                           {"subtract", subtract},
                                                           {"multiply", multiply},
                                                           {"divide", divide},
                                                           {"divide_no_nan", divide_no_nan},
                                                           {"maximum", maximum},
                                                           {"minimum", minimum},
                                                           {"matmul", matmul}}) {
    calls.push_back({name, [op = op] { op(kNone, ones({1, 1})); }});
    calls.push_back({std::string(name) + "_second", [op = op] { op(ones({1, 1}), kNone); }});
  }
  calls.push_back({"greater", [] { kNone > ones({1}); }});
  calls.push_back({"greater_equal", [] { ones({1}) >= kNone; }});
  return calls;
}

std::vector<Call> losses() {
  const auto labels = [] { return Tensor::zeros({1}, DType::kI64); };
  std::vector<Call> calls{
      {"cross_entropy", [=] { cross_entropy(kNone, labels()); }},
      {"cross_entropy_targets",
       [] {
         cross_entropy(ones({1, 2}), Tensor());
       }},
      {"sum_of_label_weights", [] { sum_of_label_weights(Tensor(), Tensor()); }},
      {"distillation_loss",
       [] {
         distillation_loss(kNone, Tensor::zeros({1, 2}));
       }},
      {"distillation_loss_teacher",
       [] {
         distillation_loss(ones({1, 2}), Tensor());
       }},
      {"mix_losses", [] { mix_losses(kNone, ones({}), 0.5); }},
      {"mix_losses_second", [] { mix_losses(ones({}), kNone, 0.5); }},
      {"mse_loss", [] { mse_loss(kNone, Tensor::zeros({1})); }},
      {"mse_loss_target", [] { mse_loss(ones({1}), Tensor()); }},
      {"huber_loss_target", [] { huber_loss(ones({1}), Tensor()); }},
      {"binary_cross_entropy", [] { binary_cross_entropy(kNone, Tensor()); }},
      {"binary_cross_entropy_targets",
       [] {
         binary_cross_entropy(ones({1, 2}), Tensor());
       }},
      {"cosine_loss",
       [] {
         cosine_loss(kNone, Tensor::zeros({1, 2}));
       }},
      {"cosine_loss_target",
       [] {
         cosine_loss(ones({1, 2}), Tensor());
       }},
      {"ctc_loss", [] { ctc_loss(kNone, Tensor()); }},
      {"ctc_loss_targets",
       [] {
         ctc_loss(ones({1, 2, 3}), Tensor());
       }},
      {"compute_loss", [=] { compute_loss({}, kNone, labels()); }},
      {"compute_loss_targets",
       [] {
         compute_loss({}, ones({1, 2}), Tensor());
       }},
      {"rows_of", [] { rows_of({}, kNone); }},
      {"frames_of", [] { frames_of(kNone, 2); }},
      {"add_weighted", [] { add_weighted(Tensor(), 1, Tensor()); }},
      {"count_correct", [] { count_correct(Tensor(), Tensor()); }},
      {"normalized", [] { normalized(Tensor(), {}); }},
      {"sgd",
       [] {
         Sgd optimizer({{"x", kNone}}, {});
       }},
      {"adamw",
       [] {
         AdamW optimizer({{"x", kNone}}, {});
       }},
      {"is_bias_or_norm",
       [] {
         is_bias_or_norm({"x", kNone});
       }},
      {"clip_grad_norm",
       [] {
         clip_grad_norm({{"x", kNone}}, 1);
       }},
      {"first_non_finite_gradient",
       [] {
         first_non_finite_gradient({{"x", kNone}});
       }},
  };
  return calls;
}

std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules() {
  return {
      {"Linear", linear(1, 1, rng())},
      {"Conv1d", conv1d({.in_channels = 1, .out_channels = 1}, rng())},
      {"Conv2d", conv2d(1, 1, 1, rng())},
      {"ConvTranspose2d", conv_transpose2d({.in_channels = 1, .out_channels = 1}, rng())},
      {"BatchNorm1d", batch_norm1d(1)},
      {"BatchNorm2d", batch_norm2d(1)},
      {"LayerNorm", layer_norm(1)},
      {"InstanceNorm", make_module<InstanceNorm>(InstanceNormOptions{.channels = 1})},
      {"Embedding", embedding(2, 1, rng())},
      {"LSTM", lstm(1, 1, rng())},
      {"GRU", gru(1, 1, rng())},
      {"Dropout", dropout(0.5)},
      {"Flatten", flatten()},
      {"Identity", make_module<Identity>()},
      {"ReLU", relu()},
      {"LeakyReLU", leaky_relu()},
      {"PReLU", make_module<PReLU>(2)},
      {"Sigmoid", sigmoid()},
      {"HardSigmoid", hard_sigmoid()},
      {"Softmax", softmax()},
      {"LogSoftmax", make_module<LogSoftmax>()},
      {"CumulativeSum", make_module<CumulativeSum>(CumulativeSumOptions{})},
      {"Elementwise", make_module<Elementwise>(kernels::UnaryFunction::kExp)},
      {"Clamp", make_module<Clamp>(0, 1)},
      {"Permute", make_module<Permute>(std::vector<std::int64_t>{1, 2})},
      {"Reshape", make_module<Reshape>(Shape{1})},
      {"Pad", make_module<Pad>(std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1}, 0)},
      {"Expand", make_module<Expand>(Shape{1, -1})},
      {"Reduce", make_module<Reduce>(Reduction::kSum, std::vector<std::int64_t>{1}, true)},
      {"InputPart", make_module<InputPart>(SamplePart{0, {1}})},
      {"MaxPool1d", max_pool1d(2)},
      {"AvgPool1d", avg_pool1d(2)},
      {"MaxPool2d", max_pool2d(2)},
      {"GlobalAvgPool", global_avg_pool()},
      {"Sequential", sequential({})},
      {"Chain", sequential({{"relu", relu()}})},
      {"Residual", residual(relu())},
      {"Concat", concat(Concat::NamedBranches{{"a", relu()}, {"b", relu()}})},
      {"PairArithmetic", make_module<PairArithmetic>(Arithmetic::kMultiply)},
      {"Cat", make_module<Cat>()},
      {"OutputParts", make_module<OutputParts>()},
  };
}

std::vector<Call> layers() {
  std::vector<Call> calls{
      {"null_pointer", [] { ModulePtr<>()(ones({1}), {}); }},
      {"null_child",
       [] {
         sequential({{"a", nullptr}});
       }},
      {"null_main", [] { residual(nullptr); }},
      {"null_branch",
       [] {
         concat(Concat::NamedBranches{{"a", nullptr}});
       }},
      {"null_node",
       [] {
         Graph graph({{"a", nullptr}});
       }},
      {"null_in_a_slot", [] { Slot slot("a", nullptr); }},
      {"join",
       [] {
         ForwardContext context;
         Add().join({ones({1}), kNone}, context);
       }},
      {"constant_value",
       [] { make_module<ConstantArithmetic>(ConstantArithmeticOptions{}, Tensor()); }},
  };
  for (auto& [name, module] : modules()) {
    calls.push_back({name + "_call", [module = module] { (*module)(kNone, {}); }});
    calls.push_back({name + "_slot", [module = module] { Slot("s", module)(kNone, {}); }});
  }
  return calls;
}

std::string name_of(const ::testing::TestParamInfo<Call>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Accesses, Undefined, ::testing::ValuesIn(accesses()), name_of);
INSTANTIATE_TEST_SUITE_P(Operations, Undefined, ::testing::ValuesIn(operations()), name_of);
INSTANTIATE_TEST_SUITE_P(Losses, Undefined, ::testing::ValuesIn(losses()), name_of);
INSTANTIATE_TEST_SUITE_P(Layers, Undefined, ::testing::ValuesIn(layers()), name_of);

// A layer that hands its input on has nothing to complain about: called by forward() it may.
TEST(UndefinedArguments, ForwardOfNothingDoesNotCrash) {
  for (const auto& [name, module] : modules()) {
    try {
      module->forward(kNone, {.training = true});
    } catch (const std::exception& error) {
      EXPECT_STRNE(error.what(), "") << name;
    }
  }
}

}  // namespace
}  // namespace steelyard::undefined_arguments_test
