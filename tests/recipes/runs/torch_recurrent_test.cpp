#include "steelyard/recipes/runs/torch_recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/lstm.h"

namespace steelyard {
namespace {

constexpr std::int64_t kInputs = 3, kUnits = 5, kSteps = 7;

Tensor random(const Shape& shape, Rng& rng) {
  Tensor values = Tensor::empty(shape);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values.data<float>()[i] = static_cast<float>(2 * rng.uniform() - 1);
  }
  return values;
}

std::vector<NamedTensor> torch_weights(std::int64_t gates, Rng& rng) {
  return {{"weight_ih_l0", random({gates * kUnits, kInputs}, rng)},
          {"weight_hh_l0", random({gates * kUnits, kUnits}, rng)},
          {"bias_ih_l0", random({gates * kUnits}, rng)},
          {"bias_hh_l0", random({gates * kUnits}, rng)}};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// W x + b of a row, of the parameters that torch.nn.LSTM and torch.nn.GRU document.
double affine(const Tensor& weight, const Tensor& bias, std::int64_t row, const double* x) {
  double sum = static_cast<double>(bias.data<float>()[row]);
  const std::int64_t columns = weight.dim(1);
  for (std::int64_t i = 0; i < columns; ++i) {
    sum += static_cast<double>(weight.data<float>()[row * columns + i]) * x[i];
  }
  return sum;
}

using State = std::vector<double>;

State lstm_step(const std::vector<NamedTensor>& w, const double* x, const State& h, State& c) {
  State next(kUnits);
  for (std::int64_t u = 0; u < kUnits; ++u) {
    const auto gate = [&](std::int64_t g) {
      const std::int64_t row = g * kUnits + u;
      return affine(w[0].tensor, w[2].tensor, row, x) +
             affine(w[1].tensor, w[3].tensor, row, h.data());
    };
    const auto at = static_cast<std::size_t>(u);
    c[at] = sigmoid(gate(1)) * c[at] + sigmoid(gate(0)) * std::tanh(gate(2));
    next[at] = sigmoid(gate(3)) * std::tanh(c[at]);
  }
  return next;
}

State gru_step(const std::vector<NamedTensor>& w, const double* x, const State& h, State&) {
  State next(kUnits);
  for (std::int64_t u = 0; u < kUnits; ++u) {
    const auto of_input = [&](std::int64_t g) {
      return affine(w[0].tensor, w[2].tensor, g * kUnits + u, x);
    };
    const auto of_state = [&](std::int64_t g) {
      return affine(w[1].tensor, w[3].tensor, g * kUnits + u, h.data());
    };
    const double reset = sigmoid(of_input(0) + of_state(0));
    const double update = sigmoid(of_input(1) + of_state(1));
    const double fresh = std::tanh(of_input(2) + reset * of_state(2));
    const auto at = static_cast<std::size_t>(u);
    next[at] = (1 - update) * fresh + update * h[at];
  }
  return next;
}

template <typename Step>
void expect_outputs(Module& model, const std::vector<NamedTensor>& weights, const Step& step,
                    Rng& rng) {
  std::vector<NamedTensor> tensors = weights;
  from_torch_recurrent(tensors, model);
  load_into(model, tensors, "weights.pt");
  const Tensor x = random({1, kSteps, kInputs}, rng);
  ForwardContext context;
  const Tensor outputs = model.forward(Variable(x), context).value();
  State h(kUnits), c(kUnits);
  for (std::int64_t t = 0; t < kSteps; ++t) {
    double row[kInputs];
    for (std::int64_t i = 0; i < kInputs; ++i) {
      row[i] = static_cast<double>(x.data<float>()[t * kInputs + i]);
    }
    h = step(weights, row, h, c);
    for (std::int64_t u = 0; u < kUnits; ++u) {
      EXPECT_NEAR(static_cast<double>(outputs.data<float>()[t * kUnits + u]),
                  h[static_cast<std::size_t>(u)], 1e-5)
          << t << " " << u;
    }
  }
}

TEST(TorchRecurrent, LstmsComputeWhatPytorchDocuments) {
  Rng rng(1);
  LSTM model({.inputs = kInputs, .units = kUnits}, rng);
  expect_outputs(model, torch_weights(4, rng), lstm_step, rng);
}

TEST(TorchRecurrent, GrusComputeWhatPytorchDocuments) {
  Rng rng(2);
  GRU model({.inputs = kInputs, .units = kUnits}, rng);
  expect_outputs(model, torch_weights(3, rng), gru_step, rng);
}

TEST(TorchRecurrent, BiasesMayBeAbsent) {
  Rng rng(3);
  GRU model({.inputs = kInputs, .units = kUnits}, rng);
  std::vector<NamedTensor> weights = torch_weights(3, rng);
  weights.resize(2);
  from_torch_recurrent(weights, model);
  load_into(model, weights, "weights.pt");
  for (const NamedParameter& p : model.named_parameters()) {
    if (p.name.find("bias") == std::string::npos) continue;
    for (const float value : p.variable.value().span<float>()) EXPECT_EQ(value, 0) << p.name;
  }
}

TEST(TorchRecurrent, OtherSizesAreErrorsOfLoading) {
  Rng rng(4);
  LSTM model({.inputs = kInputs, .units = kUnits + 1}, rng);
  std::vector<NamedTensor> weights = torch_weights(4, rng);
  from_torch_recurrent(weights, model);
  EXPECT_THROW(load_into(model, weights, "weights.pt"), InputError);
  std::vector<NamedTensor> own = torch_weights(4, rng);
  for (NamedTensor& tensor : own) tensor.name = "other." + tensor.name;
  const auto before = own.size();
  from_torch_recurrent(own, model);
  EXPECT_EQ(own.size(), before) << "of another layer";
}

}  // namespace
}  // namespace steelyard
