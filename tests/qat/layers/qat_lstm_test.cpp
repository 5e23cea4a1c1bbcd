// The quantized LSTM: codes as computed by hand in double, gradients near those in float, weights
// alone, and what stays in float.
#include "steelyard/qat/layers/recurrent/qat_lstm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using ::testing::HasSubstr;
using testing::random_tensor;

constexpr std::int64_t kSamples = 3, kLength = 6, kInputs = 5, kUnits = 4;

ModulePtr<LSTM> float_lstm(bool reverse = false, bool return_sequences = true) {
  Rng rng(3);
  return make_module<LSTM>(LstmLayerOptions{.inputs = kInputs,
                                            .units = kUnits,
                                            .pass = {.reverse = reverse},
                                            .return_sequences = return_sequences},
                           rng);
}

PreparedModel quantized_layer(const ModulePtr<LSTM>& layer, const QConfig& config = default_w8a8(),
                              Profile profile = Profile::kOrt) {
  QuantizeConfig quantize;
  quantize.profile = profile;
  quantize.groups.push_back({{"LSTM"}, config});
  return prepare(sequential({{"lstm", layer}}), quantize);
}

Tensor sequences(std::uint64_t seed = 7) {
  return random_tensor({kSamples, kLength, kInputs}, seed, DType::kF32);
}

// The grid of a quantizer.
struct Grid {
  double scale, zero, low, high;

  double code(double value) const {
    return std::min(std::max(std::nearbyint(value / scale) + zero, low), high);
  }
  double round(double value) const { return (code(value) - zero) * scale; }
};

Grid grid_of(Module& model, const std::string& path) {
  const auto& quantizer = dynamic_cast<const FakeQuantize&>(*model.slot(path));
  const kernels::CodeRange range = quantizer.code_range();
  return {quantizer.host_scale()[0], static_cast<double>(quantizer.host_zero_point()[0]),
          static_cast<double>(range.qmin), static_cast<double>(range.qmax)};
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// The outputs of one sample x [L, I], by the definition, in double.
class ByHand {
 public:
  explicit ByHand(Module& model)
      : model_(model),
        weight_(rounded("lstm.weight", "lstm.weight_quantizer", kInputs)),
        recurrent_(rounded("lstm.recurrent_weight", "lstm.recurrent_weight_quantizer", kUnits)) {
    for (const NamedParameter& p : model.named_parameters()) {
      if (p.name == "lstm.bias") bias_ = testing::values(p.variable.value());
    }
  }

  std::vector<double> outputs(const float* x, bool reverse) const {
    const Grid input = grid("lstm.output_quantizer"),
               recurrent = grid("lstm.recurrent_output_quantizer"),
               sum = grid("lstm.sum.output_quantizer"), gates = grid("lstm.gates.output_quantizer"),
               update = grid("lstm.update.output_quantizer"),
               kept = grid("lstm.kept.output_quantizer"),
               added = grid("lstm.added.output_quantizer"),
               cell = grid("lstm.cell.output_quantizer"),
               squashed = grid("lstm.squashed.output_quantizer"),
               output = grid("lstm.output.output_quantizer");
    const Grid in = grid("input_quantizer");
    std::vector<double> h(kUnits), c(kUnits), all(kLength * kUnits);
    for (std::int64_t step = 0; step < kLength; ++step) {
      const std::int64_t t = reverse ? kLength - 1 - step : step;
      const auto sum_of = [&](std::int64_t row) {
        const auto r = static_cast<std::size_t>(row);
        double own = bias_[r];
        for (std::int64_t i = 0; i < kInputs; ++i) {
          own += weight_[r * kInputs + static_cast<std::size_t>(i)] * in.round(x[t * kInputs + i]);
        }
        own = input.round(own);
        if (step == 0) return own;
        double before = 0;
        for (std::size_t j = 0; j < kUnits; ++j) before += recurrent_[r * kUnits + j] * h[j];
        return sum.round(own + recurrent.round(before));
      };
      std::vector<double> next(kUnits);
      for (std::int64_t u = 0; u < kUnits; ++u) {
        const auto at = static_cast<std::size_t>(u);
        const double i = gates.round(sigmoid_of(sum_of(u))),
                     o = gates.round(sigmoid_of(sum_of(kUnits + u))),
                     f = gates.round(sigmoid_of(sum_of(2 * kUnits + u))),
                     g = update.round(std::tanh(sum_of(3 * kUnits + u)));
        const double more = added.round(i * g);
        c[at] = step == 0 ? more : cell.round(kept.round(f * c[at]) + more);
        next[at] = output.round(o * squashed.round(std::tanh(c[at])));
      }
      h = next;
      for (std::size_t u = 0; u < kUnits; ++u) all[static_cast<std::size_t>(t) * kUnits + u] = h[u];
    }
    return all;
  }

 private:
  Grid grid(const std::string& path) const { return grid_of(model_, path); }

  // A weight [4 H, columns] as its codes of each row stand for it.
  std::vector<double> rounded(const std::string& name, const std::string& path,
                              std::int64_t columns) const {
    const auto& quantizer = dynamic_cast<const FakeQuantize&>(*model_.slot(path));
    const std::vector<float> scales = quantizer.host_scale();
    std::vector<double> values;
    for (const NamedParameter& p : model_.named_parameters()) {
      if (p.name == name) values = testing::values(p.variable.value());
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Grid row{scales[i / static_cast<std::size_t>(columns)], 0, -127, 127};
      values[i] = row.round(values[i]);
    }
    return values;
  }

  Module& model_;
  std::vector<double> weight_, recurrent_, bias_;
};

class QuantizedLstm : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Directions, QuantizedLstm, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "reverse" : "forward"; });

TEST_P(QuantizedLstm, ComputesTheCodesOfItsDefinition) {
  const PreparedModel model = quantized_layer(float_lstm(GetParam()));
  ForwardContext training{.training = true}, evaluation;
  const Tensor x = sequences();
  model.model->forward(Variable(x), training);
  const Variable y = model.model->forward(Variable(x), evaluation);
  ASSERT_TRUE(quantized(y));
  ASSERT_EQ(y.shape(), (Shape{kSamples, kLength, kUnits}));
  const Grid joined = grid_of(*model.model, "lstm.joined.output_quantizer");
  const ByHand by_hand(*model.model);
  const std::vector<double> values = testing::values(y.value());
  std::vector<double> expected;
  for (std::int64_t n = 0; n < kSamples; ++n) {
    for (const double v : by_hand.outputs(x.data<float>() + n * kLength * kInputs, GetParam())) {
      expected.push_back(joined.round(v));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6) << i;
}

// Outputs and gradients of the model's second pass in training beside those of the float layer.
void expect_near_float(const PreparedModel& model, LSTM& other) {
  ForwardContext training{.training = true};
  const Variable x(sequences(), true), plain(sequences(), true);
  model.model->forward(x, training);  // finds the ranges
  const Variable y = model.model->forward(x, training), expected = other.forward(plain, training);
  const Tensor grad = random_tensor(y.shape(), 9, DType::kF32);
  y.backward(grad);
  expected.backward(grad);
  const auto expect_near = [](const Tensor& a, const Tensor& b, const std::string& what) {
    double product = 0, of_a = 0, of_b = 0;
    const auto u = testing::values(a), v = testing::values(b);
    ASSERT_EQ(u.size(), v.size()) << what;
    for (std::size_t i = 0; i < u.size(); ++i) {
      product += u[i] * v[i];
      of_a += u[i] * u[i];
      of_b += v[i] * v[i];
    }
    EXPECT_GT(product / std::sqrt(of_a * of_b), 0.999) << what;
    EXPECT_NEAR(std::sqrt(of_a / of_b), 1, 0.05) << what;
  };
  expect_near(y.value(), expected.value(), "outputs");
  expect_near(x.grad(), plain.grad(), "input");
  const auto own = model.model->named_parameters(), floats = other.named_parameters("lstm");
  for (const NamedParameter& p : floats) {
    const auto found = std::find_if(own.begin(), own.end(),
                                    [&](const NamedParameter& o) { return o.name == p.name; });
    ASSERT_NE(found, own.end()) << p.name;
    expect_near(found->variable.grad(), p.variable.grad(), p.name);
  }
}

TEST_P(QuantizedLstm, IsNearTheFloatLayerAndItsGradients) {
  expect_near_float(quantized_layer(float_lstm(GetParam())), *float_lstm(GetParam()));
}

// --- in fixed point; the codes themselves: tests/export

PreparedModel fixed_layer(const ModulePtr<LSTM>& layer, const QConfig& config = default_w8a8()) {
  return quantized_layer(layer, config, Profile::kTflm);
}

TEST(FixedPointLstm, IsNearTheFloatLayerAndItsGradients) {
  const PreparedModel model = fixed_layer(float_lstm());
  expect_near_float(model, *float_lstm());
  for (const NamedQuantizer& q : named_quantizers(*model.model)) {
    EXPECT_EQ(q.quantizer->host_scale().size(), 1U) << q.name;
  }
}

TEST(FixedPointLstm, GradientsPassWhereNoCodeIsClipped) {
  const PreparedModel model = fixed_layer(float_lstm());
  ForwardContext training{.training = true};
  model.model->forward(Variable(sequences()), training);
  auto& output = dynamic_cast<ActivationQuantizer&>(*model.model->slot("lstm.output_quantizer"));
  output.set_observing(false);
  // The size of the input's gradient, from outputs whose codes are at an end or are not.
  const auto gradient_of = [&](bool at_an_end) {
    const Variable x(sequences(), true);
    const Variable y = model.model->forward(x, training);
    const Tensor grad = Tensor::zeros(y.shape(), DType::kF32);
    const Tensor& codes = quantized(y)->codes;
    for (std::int64_t i = 0; i < grad.size(); ++i) {
      const int code = codes.data<std::int8_t>()[i];
      grad.data<float>()[i] = at_an_end == (code == -128 || code == 127) ? 1 : 0;
    }
    y.backward(grad);
    double sum = 0;
    for (const double v : testing::values(x.grad())) sum += std::abs(v);
    return sum;
  };
  EXPECT_GT(gradient_of(false), 0.1);
  for (const NamedBuffer& b : output.named_buffers()) {
    if (b.name == "scale") b.tensor.data<float>()[0] /= 16;
  }
  EXPECT_EQ(gradient_of(true), 0);
}

TEST(FixedPointLstm, GivesTheLastOutput) {
  const PreparedModel all = fixed_layer(float_lstm()), last = fixed_layer(float_lstm(false, false));
  ForwardContext training{.training = true}, evaluation;
  const Tensor x = sequences();
  for (const PreparedModel* model : {&all, &last}) model->model->forward(Variable(x), training);
  const Variable y = last.model->forward(Variable(x), evaluation);
  ASSERT_EQ(y.shape(), (Shape{kSamples, kUnits}));
  const auto outputs = testing::values(all.model->forward(Variable(x), evaluation).value());
  const auto values = testing::values(y.value());
  for (std::int64_t n = 0; n < kSamples; ++n) {
    for (std::int64_t u = 0; u < kUnits; ++u) {
      EXPECT_EQ(values[static_cast<std::size_t>(n * kUnits + u)],
                outputs[static_cast<std::size_t>(((n + 1) * kLength - 1) * kUnits + u)]);
    }
  }
}

TEST(FixedPointLstm, ThePlanListsItsTensors) {
  const std::string plan = to_string(fixed_layer(float_lstm()).plan);
  for (const char* row : {"weight +int8 symmetric, per tensor",
                          "recurrent_weight +int8 symmetric, per tensor", "bias ", "output "}) {
    EXPECT_THAT(plan, ::testing::ContainsRegex(std::string("lstm +") + row)) << plan;
  }
  EXPECT_THAT(plan, ::testing::Not(::testing::ContainsRegex("lstm +cell")));
}

TEST(FixedPointLstm, LearnsItsScales) {
  QConfig learned = default_w8a8();
  learned.weights->learning = learned.activations->learning = Learning::kScale;
  const PreparedModel model = fixed_layer(float_lstm(), learned);
  ForwardContext training{.training = true};
  model.model->forward(Variable(sequences()), training);
  const Variable y = model.model->forward(Variable(sequences()), training);
  y.backward(random_tensor(y.shape(), 9, DType::kF32));
  int latents = 0;
  for (const NamedParameter& p : model.model->named_parameters()) {
    if (p.name.find(kLearnedScale) == std::string::npos) continue;
    EXPECT_TRUE(p.variable.grad().defined()) << p.name;
    ++latents;
  }
  EXPECT_EQ(latents, 4);  // of the input, both weights and the output
}

TEST(FixedPointLstm, RefusesByNameWhatItIsNot) {
  const auto refusal = [](const ModulePtr<LSTM>& layer) {
    return testing::message_of<InputError>([&] { fixed_layer(layer); });
  };
  EXPECT_EQ(refusal(float_lstm(true)),
            "lstm: the profile tflm has no such LSTM: it begins with the last step");
  Rng rng(1);
  const auto with_cell = make_module<LSTM>(
      LstmLayerOptions{.inputs = kInputs, .units = kUnits, .pass = {.final_cell = true}}, rng);
  EXPECT_EQ(refusal(with_cell), "lstm: the profile tflm has no such LSTM: its final cell is read");
  const auto begins = float_lstm();
  for (const NamedBuffer& b : begins->named_buffers()) {
    if (b.name == "first_cell") b.tensor.fill(0.5);
  }
  EXPECT_EQ(refusal(begins),
            "lstm: the profile tflm has no such LSTM: its state before the first step is not 0");
}

TEST(QuantizedLstmForm, GivesTheLastOutput) {
  const PreparedModel all = quantized_layer(float_lstm(true)),
                      last = quantized_layer(float_lstm(true, false));
  ForwardContext training{.training = true}, evaluation;
  const Tensor x = sequences();
  for (const PreparedModel* model : {&all, &last}) model->model->forward(Variable(x), training);
  const Variable y = last.model->forward(Variable(x), evaluation);
  ASSERT_EQ(y.shape(), (Shape{kSamples, kUnits}));
  const auto outputs = testing::values(all.model->forward(Variable(x), evaluation).value());
  const auto values = testing::values(y.value());
  for (std::int64_t n = 0; n < kSamples; ++n) {
    for (std::int64_t u = 0; u < kUnits; ++u) {  // position 0 is computed last
      EXPECT_NEAR(values[static_cast<std::size_t>(n * kUnits + u)],
                  outputs[static_cast<std::size_t>((n * kLength) * kUnits + u)], 1e-2);
    }
  }
}

TEST(QuantizedLstmForm, ThePlanListsItsTensors) {
  const std::string plan = to_string(quantized_layer(float_lstm()).plan);
  for (const char* row :
       {"weight ", "recurrent_weight ", "bias ", "output ", "sums ", "gates ", "cell "}) {
    EXPECT_THAT(plan, ::testing::ContainsRegex(std::string("lstm +") + row)) << plan;
  }
}

// Those of the state are of all steps, not of the first ones, in which it is near 0.
TEST(QuantizedLstmForm, LearnedScalesBeginWithAWholePass) {
  QConfig learned = default_w8a8();
  learned.weights->learning = learned.activations->learning = Learning::kScale;
  const PreparedModel observing = quantized_layer(float_lstm()),
                      learning = quantized_layer(float_lstm(), learned);
  ForwardContext training{.training = true};
  for (const PreparedModel* model : {&observing, &learning}) {
    model->model->forward(Variable(sequences()), training);
  }
  const auto scales = [](const PreparedModel& model) {
    std::map<std::string, float> all;
    for (const NamedQuantizer& q : named_quantizers(*model.model)) {
      if (dynamic_cast<ActivationQuantizer*>(q.quantizer) != nullptr) {
        all[q.name] = q.quantizer->host_scale()[0];
      }
    }
    return all;
  };
  EXPECT_EQ(scales(learning), scales(observing));
  learning.model->forward(Variable(sequences(8)), training);
  for (const NamedQuantizer& q : named_quantizers(*learning.model)) {
    EXPECT_TRUE(q.quantizer->learns(training)) << q.name;
  }
}

TEST(QuantizedLstmForm, QuantizesWeightsAlone) {
  QConfig config = default_w8a8();
  config.activations.reset();
  const PreparedModel model = quantized_layer(float_lstm(), config);
  ForwardContext training{.training = true}, evaluation;
  const Tensor x = sequences();
  model.model->forward(Variable(x), training);
  const Variable y = model.model->forward(Variable(x), evaluation);
  EXPECT_FALSE(quantized(y));
  LstmParameters rounded;
  for (const NamedParameter& p : model.model->named_parameters()) {
    const auto by_codes = [&](const std::string& quantizer) {
      auto& slot = dynamic_cast<WeightQuantizer&>(*model.model->slot(quantizer));
      return Variable(slot.forward(p.variable, evaluation).value());
    };
    if (p.name == "lstm.weight") rounded.weight = by_codes("lstm.weight_quantizer");
    if (p.name == "lstm.recurrent_weight") {
      rounded.recurrent = by_codes("lstm.recurrent_weight_quantizer");
    }
    if (p.name == "lstm.bias") rounded.bias = p.variable;
  }
  rounded.output = rounded.cell = Variable(Tensor::zeros({kUnits}));
  EXPECT_EQ(testing::values(y.value()), testing::values(lstm(Variable(x), rounded).value()));
}

TEST(QuantizedLstmForm, WhatStaysInFloat) {
  const auto plan_of = [](const ModulePtr<LSTM>& layer, const QConfig& config = default_w8a8()) {
    return to_string(quantized_layer(layer, config).plan);
  };
  const auto begins = float_lstm();
  for (const NamedBuffer& b : begins->named_buffers()) {
    if (b.name == "first_cell") b.tensor.fill(0.5);
  }
  EXPECT_THAT(plan_of(begins), HasSubstr("its state before the first step is not 0"));
  Rng rng(1);
  const auto loaded_later = make_module<LSTM>(
      LstmLayerOptions{.inputs = kInputs, .units = kUnits, .begins_at_zero = false}, rng);
  EXPECT_THAT(plan_of(loaded_later), HasSubstr("its state before the first step is not 0"))
      << "whatever it is now";
  const auto with_cell = make_module<LSTM>(
      LstmLayerOptions{.inputs = kInputs, .units = kUnits, .pass = {.final_cell = true}}, rng);
  EXPECT_THAT(plan_of(with_cell), HasSubstr("its final cell is read"));
  QConfig dynamic = default_w8a8();
  dynamic.activations->scheme.dynamic = true;
  dynamic.activations->scheme.granularity = kernels::Granularity::kToken;
  EXPECT_THAT(plan_of(float_lstm(), dynamic), HasSubstr("dynamic activations are for Linear"));
}

}  // namespace
}  // namespace steelyard::qat
