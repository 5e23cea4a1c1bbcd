// What no quantizer ever has is refused before it is loaded.
#include "steelyard/qat/model/saved_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;

// A quantizer with each of five observers, having observed.
std::shared_ptr<Sequential> quantizers() {
  Sequential::Children children;
  for (const char* observer : {"min_max", "moving_average", "mse", "histogram", "percentile"}) {
    const bool learns = std::string(observer) == "min_max";
    children.push_back(std::make_shared<ActivationQuantizer>(
        QuantizerConfig{.scheme = {.is_signed = false, .symmetric = false, .narrow_range = false},
                        .observer = {.type = observer},
                        .learning = learns ? Learning::kScaleAndZeroPoint : Learning::kNothing}));
  }
  auto model = std::make_shared<Sequential>(children);
  ForwardContext context{.training = true};
  model->forward(Variable(random_tensor({4, 8}, 1, DType::kF32)), context);
  return model;
}

Checkpoint state_of(const Module& model) {
  Checkpoint checkpoint;
  for (const NamedTensor& t : module_state(model)) {
    checkpoint.tensors.push_back({t.name, t.tensor.clone()});
    checkpoint.tensors.push_back({t.name + "/trained", t.tensor.clone()});
  }
  return checkpoint;
}

std::string refusal(Module& model, const Checkpoint& checkpoint) {
  try {
    require_quantizer_state(model, checkpoint, "c");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SavedState, IsAcceptedAsItWasSaved) {
  const auto model = quantizers();
  EXPECT_EQ(refusal(*model, state_of(*model)), "accepted");
  const auto fresh = quantizers();
  for (const NamedTensor& t : module_state(*fresh)) t.tensor.fill(0);  // not what is checked
  EXPECT_EQ(refusal(*fresh, state_of(*model)), "accepted");
}

TEST(SavedState, IsRefusedWhereNoQuantizerHasIt) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Case {
    std::string name;
    std::vector<double> values;
    std::string what;
  };
  const std::vector<Case> cases{
      {"0.switches", {0, 1, 9, 200}, "expected a width of 2 to 8 bits"},
      {"0.scale", {0, -1, kNan, kInfinity, 1e-45}, "expected a scale"},
      {"4.zero_point", {-1, 256, 2147483647}, "expected a zero point"},
      {"0.initial_scale", {0, kNan, kInfinity}, "expected a finite scale above 0"},
      {"0.scale_floor", {-1, kNan, kInfinity}, "expected a finite scale"},
      {"0.observer_min", {kNan, -kInfinity}, "expected a lower end"},
      {"1.observer_max", {kNan, kInfinity}, "expected an upper end"},
      {"2.observer_lo", {kNan, -kInfinity}, "expected a lower end"},
      {"3.observer_counts", {-1, 1e18, 0x1p58}, "expected a count, all together at most 2^59"},
      {"3.observer_exponent", {-2147483648.0, -151, 151}, "expected the exponent"},
      {"4.observer_first_hi", {kNan, kInfinity}, "expected an upper end"},
      {"4.observer_steps", {-1}, "expected a count"}};
  const auto model = quantizers();
  for (const auto& [name, values, what] : cases) {
    for (const std::string suffix : {"", "/trained"}) {
      for (const double value : values) {
        Checkpoint damaged = state_of(*model);
        for (NamedTensor& t : damaged.tensors) {
          if (t.name == name + suffix) t.tensor.fill(value);
        }
        const std::string message = refusal(*model, damaged);
        EXPECT_TRUE(message.starts_with("c: " + name.substr(0, 1))) << name << " " << value;
        EXPECT_THAT(message, ::testing::HasSubstr(what)) << name << " " << value;
      }
    }
  }
}

// Other shapes and types are what loading complains about.
TEST(SavedState, LeavesWhatDoesNotFitToTheLoader) {
  const auto model = quantizers();
  Checkpoint other = state_of(*model);
  for (NamedTensor& t : other.tensors) t.tensor = Tensor::full({7}, -1, DType::kI64);
  EXPECT_EQ(refusal(*model, other), "accepted");
}

}  // namespace
}  // namespace steelyard::qat
