// Quantized networks on the CPU and, the same, on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {

struct Scheme {
  std::string name;
  QuantizeConfig config;
  bool float_products = false;  // codes in training depend on the rounding of float sums
};

inline void PrintTo(const Scheme& s, std::ostream* out) { *out << s.name; }

inline QuantizerConfig weight_scheme(int bits, kernels::Granularity granularity,
                                     const std::string& observer = "min_max",
                                     Learning learning = Learning::kNothing) {
  const bool learns = learning != Learning::kNothing;
  QuantizerConfig config{
      .scheme = {.bits = bits, .narrow_range = !learns, .granularity = granularity},
      .observer = {.type = observer},
      .learning = learning};
  if (granularity == kernels::Granularity::kGroup) config.scheme.group_size = 3;
  return config;
}

inline QuantizerConfig activation_scheme(int bits, const std::string& observer,
                                         Learning learning = Learning::kNothing,
                                         bool symmetric = false) {
  return {.scheme = {.bits = bits,
                     .is_signed = symmetric,
                     .symmetric = symmetric,
                     .narrow_range = false},
          .observer = {.type = observer},
          .learning = learning};
}

inline QuantizeConfig both(const QuantizerConfig& weights, const QuantizerConfig& activations,
                           BatchNormFold fold = BatchNormFold::kFrozen) {
  return {.groups = {{.targets = {"Linear", "Conv2d"}, .config = {weights, activations}}},
          .ignore = {},
          .bn_fold = fold};
}

inline std::shared_ptr<Conv2d> conv3x3(std::int64_t in, std::int64_t out, Rng& rng) {
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = out;
  options.kernel_size = {3, 3};
  options.padding = {1, 1};
  return std::make_shared<Conv2d>(options, rng);
}

// conv, batch norm, ReLU, pools, a residual sum, linear: for inputs [N, 8, 8, 3].
inline std::shared_ptr<Module> network(const QuantizeConfig& config, std::int64_t width = 6) {
  Rng rng(7);
  const auto norm = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = width});
  norm->bias().value().copy_from(testing::random_tensor({width}, 5, DType::kF32));
  norm->running_mean().copy_from(testing::random_tensor({width}, 6, DType::kF32));
  const auto block = std::make_shared<Sequential>(Sequential::Children{
      conv3x3(width, width, rng), std::make_shared<ReLU6>(), conv3x3(width, width, rng)});
  return prepare(std::make_shared<Sequential>(Sequential::Children{
                     conv3x3(3, width, rng), norm, std::make_shared<ReLU>(),
                     std::make_shared<MaxPool2d>(Pool2dGeometry{}),
                     std::make_shared<Residual>(block, nullptr, std::make_shared<ReLU>()),
                     std::make_shared<AvgPool2d>(AvgPool2dOptions{}), std::make_shared<Flatten>(),
                     std::make_shared<Linear>(LinearOptions{4 * width, 5}, rng)}),
                 config)
      .model;
}

// Two branches joined, ReLU6 on the codes, dropout, a global average, activations by table.
inline std::shared_ptr<Module> branches(const QuantizeConfig& config) {
  Rng rng(8);
  const auto joined = std::make_shared<Concat>(
      std::vector<std::shared_ptr<Module>>{conv3x3(3, 5, rng), conv3x3(3, 4, rng)});
  return prepare(
             std::make_shared<Sequential>(Sequential::Children{
                 joined, std::make_shared<ReLU6>(), std::make_shared<Dropout>(0.25),
                 std::make_shared<GlobalAvgPool>(), std::make_shared<Hardswish>(),
                 std::make_shared<Linear>(LinearOptions{9, 3}, rng), std::make_shared<Sigmoid>()}),
             config)
      .model;
}

inline Tensor images(std::uint64_t seed) {
  return testing::random_tensor({4, 8, 8, 3}, seed, DType::kF32);
}

// Everything that a pass computed: codes with their scale and zero point, floats where there are
// none. The last is the output.
inline std::vector<Tensor> computed(Module& model, const Tensor& x, ForwardContext context,
                                    Variable* output = nullptr) {
  const Device device = device_of(model);
  const Variable input(x.to(device), /*requires_grad=*/true);
  const TapeTrace tape;
  const Variable y = model.forward(input, context);
  if (output != nullptr) *output = y;
  std::vector<Tensor> all;
  const auto keep = [&](const Tensor& tensor) {
    EXPECT_EQ(tensor.device(), device);
    all.push_back(tensor.to(Device{}));
  };
  for (const TracedOperation& operation : tape.operations()) {
    if (const auto codes = quantized(operation.output)) {
      keep(codes->codes);
      keep(codes->qparams.scale);
      keep(codes->qparams.zero_point);
    } else {
      keep(operation.output.value());
    }
  }
  keep(y.value());
  return all;
}

inline void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape(), b[i].shape()) << i;
    ASSERT_EQ(a[i].dtype(), b[i].dtype()) << i;
    EXPECT_EQ(std::memcmp(a[i].raw(), b[i].raw(), static_cast<std::size_t>(a[i].bytes())), 0)
        << "tensor " << i << " of " << a.size() << ", " << dtype_name(a[i].dtype()) << ' '
        << shape_string(a[i].shape());
  }
}

// The state on the CPU, as a checkpoint has it.
inline std::vector<NamedTensor> saved_state(const Module& model) {
  std::vector<NamedTensor> state;
  for (const NamedTensor& t : module_state(model)) {
    state.push_back({t.name, t.tensor.to(Device{}).clone()});
  }
  return state;
}

inline void expect_same_state(const Module& a, const Module& b) {
  const auto of_a = saved_state(a), of_b = saved_state(b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    SCOPED_TRACE(of_a[i].name);
    expect_same_bits({of_a[i].tensor}, {of_b[i].tensor});
  }
}

}  // namespace steelyard::qat
