// Optimizers, averages and the limit on gradients on a GPU against the CPU.
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "steelyard/framework/train/gradient_clipping.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/weight_average.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

// More parameters than one launch lists; sizes of a part of a block, several blocks, one, none.
std::vector<NamedParameter> parameters_on(Device device, DType dtype) {
  std::vector<NamedParameter> all;
  std::uint64_t seed = 1;
  for (const std::int64_t size : {3, 5000, 1, 0, 2048, 300}) {
    all.push_back({"p" + std::to_string(seed) + ".weight",
                   Variable(random_tensor({size, 1}, seed, dtype).to(device), true)});
    ++seed;
  }
  while (seed <= 70) {
    all.push_back({"p" + std::to_string(seed) + ".bias",
                   Variable(random_tensor({7}, seed, dtype).to(device), true)});
    ++seed;
  }
  return all;
}

// Number 4 never has a gradient, number 5 not in the first step.
void give_gradients(const std::vector<NamedParameter>& parameters, std::uint64_t step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Variable v = parameters[i].variable;
    v.clear_grad();
    if (i == 4 || (i == 5 && step == 0)) continue;
    v.set_grad(random_tensor(v.shape(), 1000 * step + i, v.dtype()).to(v.value().device()));
  }
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<NamedParameter>)>;

void expect_equal_states(const Optimizer& actual, const Optimizer& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
    EXPECT_TRUE(all_close(actual.parameters()[i].variable.value().to(kCpuDevice),
                          expected.parameters()[i].variable.value(), tolerance, tolerance))
        << expected.parameters()[i].name;
  }
  const auto states = expected.named_state();
  const auto found = actual.named_state();
  ASSERT_EQ(found.size(), states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(found[i].name, states[i].name);
    EXPECT_TRUE(all_close(found[i].tensor.to(kCpuDevice), states[i].tensor, tolerance, tolerance))
        << states[i].name;
  }
}

void expect_same_steps(const Make& make) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto on_cpu = make(parameters_on(kCpuDevice, dtype));
    const auto on_gpu = make(parameters_on(kCudaDevice, dtype));
    for (std::uint64_t step = 0; step < 4; ++step) {
      give_gradients(on_cpu->parameters(), step);
      give_gradients(on_gpu->parameters(), step);
      const double lr = 0.1 / static_cast<double>(step + 1);
      on_cpu->step(lr);
      on_gpu->step(lr);
    }
    expect_equal_states(*on_gpu, *on_cpu, dtype == DType::kF64 ? 1e-13 : 1e-5);
  }
}

const LrFactor kFasterBiases = [](const NamedParameter& p) {
  return p.name.ends_with(".bias") ? 2.0 : 1.0;
};

const StepUnits kUnitsOfBiases = [](const NamedParameter& p) {
  if (!p.name.ends_with(".bias")) return StepUnit();
  const Tensor& value = p.variable.value();
  return StepUnit{Tensor::full(value.shape(), 0.1, value.dtype(), value.device()), 2};
};

using OptimizerOnCuda = WithCudaDevice;

TEST_F(OptimizerOnCuda, SgdTakesTheStepsOfTheCpu) {
  for (const auto& [momentum, nesterov] :
       std::vector<std::pair<double, bool>>{{0.0, false}, {0.9, false}, {0.9, true}}) {
    expect_same_steps([m = momentum, n = nesterov](std::vector<NamedParameter> parameters) {
      return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.momentum = m,
                                                                     .nesterov = n,
                                                                     .weight_decay = 0.01,
                                                                     .lr_factor = kFasterBiases,
                                                                     .step_units = kUnitsOfBiases});
    });
  }
}

TEST_F(OptimizerOnCuda, AdamWTakesTheStepsOfTheCpu) {
  expect_same_steps([](std::vector<NamedParameter> parameters) {
    return std::make_unique<AdamW>(
        std::move(parameters),
        AdamWOptions{
            .weight_decay = 0.1, .lr_factor = kFasterBiases, .step_units = kUnitsOfBiases});
  });
}

// What a checkpoint does: state by name, through the CPU.
TEST_F(OptimizerOnCuda, StateMovesBetweenDevices) {
  AdamW on_cpu(parameters_on(kCpuDevice, DType::kF64), {});
  AdamW on_gpu(parameters_on(kCudaDevice, DType::kF64), {});
  give_gradients(on_cpu.parameters(), 1);
  on_cpu.step(0.1);
  const auto from = on_cpu.named_state();
  const auto to = on_gpu.named_state();
  for (std::size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_from(from[i].tensor);
  for (std::size_t i = 0; i < on_cpu.parameters().size(); ++i) {
    on_gpu.parameters()[i].variable.value().copy_from(on_cpu.parameters()[i].variable.value());
  }
  give_gradients(on_cpu.parameters(), 2);
  give_gradients(on_gpu.parameters(), 2);
  on_cpu.step(0.2);
  on_gpu.step(0.2);
  expect_equal_states(on_gpu, on_cpu, 1e-13);
}

// A recorded graph runs apply() again: the rate and the counts are those of the last prepare().
TEST_F(OptimizerOnCuda, ApplyReadsWhatPrepareSent) {
  AdamW stepped(parameters_on(kCudaDevice, DType::kF64), {});
  AdamW halves(parameters_on(kCudaDevice, DType::kF64), {});
  give_gradients(stepped.parameters(), 1);
  give_gradients(halves.parameters(), 1);
  for (const double lr : {0.1, 0.05, 0.02}) {
    stepped.step(lr);
    halves.prepare(lr);
    halves.apply();
  }
  for (std::size_t i = 0; i < stepped.parameters().size(); ++i) {
    EXPECT_EQ(values(halves.parameters()[i].variable.value().to(kCpuDevice)),
              values(stepped.parameters()[i].variable.value().to(kCpuDevice)));
  }
}

TEST_F(OptimizerOnCuda, ParametersStayOnOneDevice) {
  auto mixed = parameters_on(kCpuDevice, DType::kF32);
  mixed[1].variable.value().move_to(kCudaDevice);
  EXPECT_THROW(Sgd(mixed, {}), std::invalid_argument);
  const auto moved = parameters_on(kCpuDevice, DType::kF32);
  Sgd sgd(moved, {});
  give_gradients(moved, 1);
  moved[0].variable.value().move_to(kCudaDevice);
  EXPECT_THROW(sgd.step(0.1), std::invalid_argument);
}

using ClipOnCuda = WithCudaDevice;

TEST_F(ClipOnCuda, ScalesAsTheCpuDoes) {
  for (const double max_norm : {1.0, 1e6}) {
    auto on_cpu = parameters_on(kCpuDevice, DType::kF32);
    auto on_gpu = parameters_on(kCudaDevice, DType::kF32);
    on_cpu.push_back({"wide", Variable(random_tensor({3000}, 8), true)});
    on_gpu.push_back({"wide", Variable(random_tensor({3000}, 8).to(kCudaDevice), true)});
    give_gradients(on_cpu, 1);
    give_gradients(on_gpu, 1);
    const Tensor norm = clip_grad_norm(on_gpu, max_norm);
    EXPECT_EQ(norm.device(), kCudaDevice);
    EXPECT_NEAR(norm.item(), clip_grad_norm(on_cpu, max_norm).item(), 1e-9);
    for (std::size_t i = 0; i < on_cpu.size(); ++i) {
      const Tensor& expected = on_cpu[i].variable.grad();
      if (!expected.defined()) continue;
      EXPECT_TRUE(all_close(on_gpu[i].variable.grad().to(kCpuDevice), expected, 1e-6, 1e-12))
          << on_cpu[i].name;
    }
  }
}

TEST_F(ClipOnCuda, ANormThatIsNotFiniteIsReturnedAndChangesNothing) {
  auto all = parameters_on(kCudaDevice, DType::kF32);
  give_gradients(all, 1);
  const auto before = values(all[0].variable.grad().to(kCpuDevice));
  Tensor bad = random_tensor(all[1].variable.shape(), 3, DType::kF32);
  bad.data<float>()[4999] = std::numeric_limits<float>::quiet_NaN();
  all[1].variable.set_grad(bad.to(kCudaDevice));
  EXPECT_EQ(first_non_finite_gradient(all), all[1].name);
  EXPECT_TRUE(std::isnan(clip_grad_norm(all, 1e-3).item()));
  EXPECT_EQ(values(all[0].variable.grad().to(kCpuDevice)), before);
}

// Two parameters, a buffer that is averaged and one of an odd number of bytes that is not.
class Model : public Module {
 public:
  Model() {
    weight = register_parameter("weight", random_tensor({3000}, 1));
    scale = register_parameter("scale", random_tensor({5}, 2, DType::kF32));
    register_buffer("running_mean", random_tensor({9}, 3, DType::kF32));
    register_buffer("flags", Tensor::full({11}, 1, DType::kU8));
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Model"; }

  Variable weight, scale;
};

std::vector<std::vector<double>> contents(const Module& model) {
  std::vector<std::vector<double>> all;
  for (const auto& p : model.named_parameters())
    all.push_back(values(p.variable.value().to(kCpuDevice)));
  for (const auto& b : model.named_buffers()) all.push_back(values(b.tensor.to(kCpuDevice)));
  return all;
}

// What the model holds with the averages in it, and after.
std::vector<std::vector<double>> averages_on(Device device) {
  Model model;
  move_to(model, device);
  WeightAverage average(model, {.decay = 0.9, .averages_buffer = [](const std::string& name) {
                                  return name == "running_mean";
                                }});
  for (std::uint64_t step = 0; step < 5; ++step) {
    std::uint64_t seed = 10 * step;
    for (NamedParameter& p : model.named_parameters()) {
      const Tensor& value = p.variable.value();
      value.copy_from(random_tensor(value.shape(), ++seed, value.dtype()));
      if (step > 1 || p.name == "weight") p.variable.set_grad(value.clone());
    }
    for (const NamedBuffer& b : model.named_buffers()) b.tensor.fill(static_cast<double>(step));
    average.update();
  }
  average.enter();
  auto all = contents(model);
  model.named_buffers()[1].tensor.fill(200);
  average.leave();
  for (auto& each : contents(model)) all.push_back(std::move(each));
  average.enter();
  for (auto& each : contents(model)) all.push_back(std::move(each));
  return all;
}

using WeightAverageOnCuda = WithCudaDevice;

TEST_F(WeightAverageOnCuda, FollowsTheCpu) {
  const auto expected = averages_on(kCpuDevice);
  const auto actual = averages_on(kCudaDevice);
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_NE(expected[0], expected[4]);  // the averaged weight is not the trained one
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << i;
}

}  // namespace
}  // namespace steelyard::testing
