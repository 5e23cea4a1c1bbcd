// What the tests of batch-norm folding share: the modes, and conv-bn-relu chains in float and
// prepared.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/qat/forms/folded_norm.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat::testing_fold {

using testing::random_tensor;
using testing::values;

inline constexpr std::int64_t kChannels = 5;

struct Case {
  std::string name;
  BatchNormFold mode;
  bool bias = false;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline const Case kFolding[] = {
    {"batch_corrected", BatchNormFold::kBatchCorrected},
    {"batch_corrected_bias", BatchNormFold::kBatchCorrected, true},
    {"one_convolution", BatchNormFold::kOneConvolution},
    {"one_convolution_bias", BatchNormFold::kOneConvolution, true},
};
inline const Case kUnfolded[] = {{"none", BatchNormFold::kNone},
                                 {"none_bias", BatchNormFold::kNone, true}};

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

inline std::shared_ptr<Conv2d> conv3x3(std::int64_t in, bool bias) {
  Rng rng(3);
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = kChannels;
  options.kernel_size = {3, 3};
  options.padding = {1, 1};
  options.bias = bias;
  return std::make_shared<Conv2d>(options, rng);
}

// gamma of both signs and tiny, statistics away from their first values.
inline std::shared_ptr<BatchNorm2d> norm() {
  auto bn = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = kChannels});
  bn->weight().value().copy_from(Tensor::from({1.2F, -0.8F, 0.05F, 1e-5F, 0.6F}, {kChannels}));
  bn->bias().value().copy_from(random_tensor({kChannels}, 5, DType::kF32));
  bn->running_mean().copy_from(random_tensor({kChannels}, 6, DType::kF32));
  bn->running_var().copy_from(Tensor::from({0.2F, 0.9F, 2.0F, 0.5F, 1.5F}, {kChannels}));
  return bn;
}

inline std::shared_ptr<Sequential> chain(bool bias) {
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", conv3x3(2, bias)}, {"bn", norm()}, {"relu", std::make_shared<ReLU>()}});
}

inline QuantizeConfig config_for(BatchNormFold mode) {
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  config.bn_fold = mode;
  return config;
}

inline std::shared_ptr<Module> prepared(std::shared_ptr<Module> model, BatchNormFold mode) {
  return prepare(std::move(model), config_for(mode)).model;
}

inline BatchNorm& norm_of(Module& model, const std::string& path = "bn") {
  return dynamic_cast<FoldedNorm&>(*model.slot(path)).norm();
}

inline void set_quantizing(Module& model, bool on) {
  for (const auto& q : named_quantizers(model)) q.quantizer->set_quantizing(on);
}

inline Variable input(std::uint64_t seed = 1) {
  return Variable(random_tensor({4, 6, 6, 2}, seed, DType::kF32), true);
}

inline std::map<std::string, Tensor> state_of(const Module& model) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& t : module_state(model)) state[t.name] = t.tensor.clone();
  return state;
}

inline void expect_finite(const std::string& what, const Tensor& tensor) {
  for (const double v : values(tensor)) ASSERT_TRUE(std::isfinite(v)) << what;
}

// Output, input gradient, then gradients and buffers by name.
inline std::map<std::string, Tensor> training_step(Module& model, const Variable& x) {
  ForwardContext training{.training = true};
  const Variable y = model.forward(x, training);
  y.backward(random_tensor(y.shape(), 9, DType::kF32));
  std::map<std::string, Tensor> results{{"output", y.value()}, {"input", x.grad().clone()}};
  for (const auto& p : model.named_parameters()) {
    if (p.variable.grad().defined()) results["grad " + p.name] = p.variable.grad().clone();
  }
  for (const auto& b : model.named_buffers()) results[b.name] = b.tensor.clone();
  return results;
}

}  // namespace steelyard::qat::testing_fold
