// Quantized networks on a GPU: the codes of the CPU, and its state.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/export/trace.h"
#include "steelyard/framework/tensor/captured_work.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/oscillations.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "tests/export/export_support.h"
#include "tests/qat/device/device_networks.h"

namespace steelyard::qat {
namespace {

using kernels::Granularity;
using testing::all_close;
using testing::kCudaDevice;

const ForwardContext kTraining{.training = true};

std::vector<Scheme> schemes() {
  const QuantizerConfig per_channel = weight_scheme(8, Granularity::kChannel);
  const QuantizerConfig average = activation_scheme(8, "moving_average");
  std::vector<Scheme> all{
      {"w8a8", both(per_channel, average)},
      {"w8a8_per_tensor",
       both(weight_scheme(8, Granularity::kTensor), activation_scheme(8, "min_max"))},
      {"w4a8_per_channel", both(weight_scheme(4, Granularity::kChannel), average)},
      {"w8a8_symmetric",
       both(per_channel, activation_scheme(8, "min_max", Learning::kNothing, true))},
      {"lsq", both(weight_scheme(4, Granularity::kChannel, "min_max", Learning::kScale),
                   activation_scheme(4, "min_max", Learning::kScaleAndZeroPoint))},
      {"pact", both(per_channel, activation_scheme(4, "min_max", Learning::kClipping))},
      {"bn_none", both(per_channel, average, BatchNormFold::kNone), true},
      {"bn_corrected", both(per_channel, average, BatchNormFold::kBatchCorrected), true},
      {"bn_one_convolution", both(per_channel, average, BatchNormFold::kOneConvolution), true}};
  QuantizerConfig affine = weight_scheme(4, Granularity::kChannel);
  affine.scheme.symmetric = affine.scheme.narrow_range = false;
  all.push_back({"affine_weights", both(affine, average)});
  QuantizerConfig learned =
      weight_scheme(8, Granularity::kTensor, "min_max", Learning::kScaleAndZeroPoint);
  learned.scheme.symmetric = false;
  all.push_back({"affine_learned_weights", both(learned, average)});
  for (const char* observer : {"histogram", "percentile", "moving_percentile", "mse", "entropy"}) {
    all.push_back({observer, both(weight_scheme(8, Granularity::kChannel, observer),
                                  activation_scheme(8, observer))});
  }
  all.push_back({"a16", both(affine, activation_scheme(16, "moving_average"))});
  all.push_back({"a12_symmetric",
                 both(per_channel, activation_scheme(12, "histogram", Learning::kNothing, true))});
  all.push_back(
      {"a16_lsq", both(weight_scheme(4, Granularity::kChannel, "min_max", Learning::kScale),
                       activation_scheme(16, "min_max", Learning::kScaleAndZeroPoint))});
  QuantizeConfig groups = both(weight_scheme(4, Granularity::kGroup), average);
  QuantizerConfig affine_groups = weight_scheme(4, Granularity::kGroup);
  affine_groups.scheme.symmetric = affine_groups.scheme.narrow_range = false;
  all.push_back({"groups_of_codes", both(affine_groups, average)});
  groups.groups[0].config.activations.reset();
  all.push_back({"weight_groups", groups, true});
  return all;
}

// Two copies of a network: one trained on the CPU for a pass, and one of that on the GPU.
struct Twins {
  explicit Twins(const QuantizeConfig& config, bool observed = true)
      : cpu(network(config)), gpu(network(config)) {
    if (observed) {
      for (const std::uint64_t seed : {1, 2}) computed(*cpu, images(seed), kTraining);
      load_into(*gpu, saved_state(*cpu), "twin");
    }
    move_to(*gpu, kCudaDevice);
  }
  std::shared_ptr<Module> cpu;
  std::shared_ptr<Module> gpu;
};

class QatOnCuda : public ::testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    if (!testing::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};
std::string scheme_name(const ::testing::TestParamInfo<Scheme>& param) { return param.param.name; }
INSTANTIATE_TEST_SUITE_P(Schemes, QatOnCuda, ::testing::ValuesIn(schemes()), scheme_name);

TEST_P(QatOnCuda, EvaluationGivesTheSameCodes) {
  const Twins twins(GetParam().config);
  const auto expected = computed(*twins.cpu, images(3), {});
  const auto actual = computed(*twins.gpu, images(3), {});
  if (GetParam().name == "weight_groups" || GetParam().name == "bn_none") {
    EXPECT_TRUE(all_close(actual.back(), expected.back(), 1e-5, 1e-5));  // float products
  } else {
    expect_same_bits(actual, expected);
  }
  expect_same_state(*twins.gpu, *twins.cpu);
}

// Made and used by kernels alone: scales of rows, groups, blocks of rows and whole samples.
TEST(DynamicActivationsOnCuda, AreTheCpus) {
  if (!testing::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const Granularity strategy :
       {Granularity::kToken, Granularity::kGroup, Granularity::kBlock, Granularity::kTensor}) {
    const bool image = strategy == Granularity::kTensor;
    QuantizerConfig inputs = activation_scheme(8, "min_max");
    inputs.scheme.dynamic = true;
    inputs.scheme.granularity = image ? Granularity::kToken : strategy;
    if (strategy == Granularity::kGroup) inputs.scheme.group_size = 3;
    if (strategy == Granularity::kBlock) inputs.scheme.block = {2, 3};
    const bool groups = strategy == Granularity::kGroup || strategy == Granularity::kBlock;
    QuantizerConfig weights =
        weight_scheme(4, groups ? Granularity::kGroup : Granularity::kChannel);
    weights.scheme.symmetric = weights.scheme.narrow_range = false;
    QuantizeConfig config = both(weights, inputs);
    config.groups[0].targets = {image ? "Conv2d" : "Linear"};
    const auto model = [&] {
      Rng rng(7);
      std::shared_ptr<Module> layer = std::make_shared<Linear>(LinearOptions{9, 7}, rng);
      if (image) layer = conv3x3(3, 5, rng);
      return prepare(std::make_shared<Sequential>(Sequential::Children{layer}), config).model;
    };
    const auto cpu = model(), gpu = model();
    move_to(*gpu, kCudaDevice);
    const Tensor x = image ? images(3) : testing::random_tensor({5, 9}, 3, DType::kF32);
    Variable of_cpu, of_gpu;
    expect_same_bits(computed(*gpu, x, kTraining, &of_gpu), computed(*cpu, x, kTraining, &of_cpu));
    const Tensor grad = testing::random_tensor(of_cpu.shape(), 9, DType::kF32);
    of_cpu.backward(grad);
    of_gpu.backward(grad.to(kCudaDevice));
    const auto expected = cpu->named_parameters(), actual = gpu->named_parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(all_close(actual[i].variable.grad().to(Device{}), expected[i].variable.grad(),
                            2e-5, 2e-5));
    }
  }
}

// Observers, ranges and codes from the first pass on; weights after a step of plain descent.
TEST_P(QatOnCuda, TrainsAsTheCpuDoes) {
  const Twins twins(GetParam().config, /*observed=*/false);
  Variable of_cpu, of_gpu;
  const auto expected = computed(*twins.cpu, images(1), kTraining, &of_cpu);
  const auto actual = computed(*twins.gpu, images(1), kTraining, &of_gpu);
  if (GetParam().float_products) {
    EXPECT_TRUE(all_close(actual.back(), expected.back(), 0.02, 0.02));
  } else {
    expect_same_bits(actual, expected);
    expect_same_state(*twins.gpu, *twins.cpu);
  }
  const Tensor grad = testing::random_tensor(of_cpu.shape(), 9, DType::kF32);
  of_cpu.backward(grad);
  of_gpu.backward(grad.to(kCudaDevice));
  const auto cpu = twins.cpu->named_parameters(), gpu = twins.gpu->named_parameters();
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    const Tensor& expected_grad = cpu[i].variable.grad();
    ASSERT_EQ(gpu[i].variable.grad().defined(), expected_grad.defined()) << cpu[i].name;
    if (!expected_grad.defined()) continue;
    EXPECT_EQ(gpu[i].variable.grad().device(), kCudaDevice) << cpu[i].name;
    const double tolerance = GetParam().float_products ? 0.05 : 2e-5;
    EXPECT_TRUE(all_close(gpu[i].variable.grad().to(Device{}), expected_grad, tolerance, tolerance))
        << cpu[i].name;
  }
}

// Forward and backward wait for nothing, so that they can be recorded, and run again they are the
// same step.
TEST_P(QatOnCuda, AStepCanBeRecorded) {
  const Twins twins(GetParam().config), others(GetParam().config);
  const Tensor x = images(4).to(kCudaDevice);
  const auto step = [&](Module& model) {
    clear_gradients(model);
    ForwardContext context = kTraining;
    const Variable y = model.forward(Variable(x), context);
    y.backward(Tensor::full(y.shape(), 1, DType::kF32, kCudaDevice));
  };
  for (int i = 0; i < 2; ++i) {
    step(*twins.gpu);
    step(*others.gpu);
  }
  const CapturedWork recorded(kCudaDevice, [&] { step(*twins.gpu); });
  for (int i = 0; i < 2; ++i) {
    recorded.run();
    step(*others.gpu);
  }
  expect_same_state(*twins.gpu, *others.gpu);
  const auto a = twins.gpu->named_parameters(), b = others.gpu->named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(a[i].name);
    ASSERT_EQ(a[i].variable.grad().defined(), b[i].variable.grad().defined());
    if (!b[i].variable.grad().defined()) continue;
    expect_same_bits({a[i].variable.grad().to(Device{})}, {b[i].variable.grad().to(Device{})});
  }
}

// A checkpoint of one device continues on the other: switches, widths and what has begun included.
TEST_P(QatOnCuda, CheckpointsCrossDevices) {
  const Twins twins(GetParam().config, /*observed=*/false);
  computed(*twins.gpu, images(1), kTraining);
  for (const NamedQuantizer& q : named_quantizers(*twins.gpu)) {
    q.quantizer->set_bits(5);
    q.quantizer->set_observing(false);
  }
  load_into(*twins.cpu, saved_state(*twins.gpu), "checkpoint");
  for (const NamedQuantizer& q : named_quantizers(*twins.cpu)) {
    EXPECT_EQ(q.quantizer->scheme().bits, 5) << q.name;
    EXPECT_FALSE(q.quantizer->observing()) << q.name;
  }
  const auto expected = computed(*twins.cpu, images(3), {});
  const auto actual = computed(*twins.gpu, images(3), {});
  EXPECT_TRUE(all_close(actual.back(), expected.back(), 1e-5, 1e-5));
  const Twins later(GetParam().config);
  load_into(*later.gpu, saved_state(*twins.cpu), "checkpoint");
  expect_same_state(*later.gpu, *twins.gpu);
  expect_same_bits(computed(*later.gpu, images(3), {}), actual);
}

class QuantizersOnCuda : public testing::WithCudaDevice {
 protected:
  const QuantizeConfig config_ =
      both(weight_scheme(8, Granularity::kChannel), activation_scheme(8, "moving_average"));
};

TEST_F(QuantizersOnCuda, FollowTheirSwitches) {
  const Twins twins(config_);
  for (Module* model : {twins.cpu.get(), twins.gpu.get()}) {
    for (const NamedQuantizer& q : named_quantizers(*model)) q.quantizer->set_bits(4);
  }
  expect_same_bits(computed(*twins.gpu, images(3), {}), computed(*twins.cpu, images(3), {}));
  expect_same_state(*twins.gpu, *twins.cpu);
  const auto before = saved_state(*twins.gpu);
  for (const NamedQuantizer& q : named_quantizers(*twins.gpu)) q.quantizer->set_observing(false);
  computed(*twins.gpu, images(4), kTraining);
  for (const NamedQuantizer& q : named_quantizers(*twins.gpu)) q.quantizer->set_observing(true);
  const auto after = saved_state(*twins.gpu);
  for (std::size_t i = 0; i < before.size(); ++i) {
    SCOPED_TRACE(before[i].name);
    expect_same_bits({after[i].tensor}, {before[i].tensor});
  }
  for (Module* model : {twins.cpu.get(), twins.gpu.get()}) {
    for (const NamedQuantizer& q : named_quantizers(*model)) q.quantizer->set_quantizing(false);
  }
  EXPECT_TRUE(all_close(computed(*twins.gpu, images(3), {}).back(),
                        computed(*twins.cpu, images(3), {}).back(), 1e-5, 1e-5));
}

// What a tape holds stays as it was when later passes move the quantizers.
TEST_F(QuantizersOnCuda, LeaveTheTapeAlone) {
  const Twins twins(config_);
  Variable once, again;
  computed(*twins.gpu, images(3), kTraining, &once);
  const Tensor grad = Tensor::full(once.shape(), 1, DType::kF32, kCudaDevice);
  const auto gradients = [&](const Variable& y) {
    clear_gradients(*twins.gpu);
    y.backward(grad);
    std::vector<Tensor> all;
    for (const NamedParameter& p : twins.gpu->named_parameters()) {
      all.push_back(p.variable.grad().to(Device{}).clone());
    }
    return all;
  };
  const auto before = gradients(once);
  computed(*twins.gpu, testing::random_tensor({4, 8, 8, 3}, 8, DType::kF32), kTraining, &again);
  expect_same_bits(gradients(once), before);
}

// On a GPU the run asks at the end of the epoch, and every kGpuCheckSteps, and before a checkpoint.
TEST_F(QuantizersOnCuda, StopARunThatMetNan) {
  const Twins twins(config_);
  ScheduleCallback schedule(*twins.gpu, {});
  schedule.on_epoch_begin(0);
  Tensor x = images(3);
  x.data<float>()[5] = std::nanf("");
  computed(*twins.gpu, x, kTraining);
  StepReport report;
  report.step = 1;
  schedule.on_step_end(report);
  EXPECT_THROW(schedule.on_steps_done(0), TrainingDiverged);
  computed(*twins.gpu, x, kTraining);
  report.step = kGpuCheckSteps;
  EXPECT_THROW(schedule.on_step_end(report), TrainingDiverged);
  EXPECT_NO_THROW(schedule.on_steps_done(0)) << "counted from anew";
  computed(*twins.gpu, x, kTraining);
  report.step = kGpuCheckSteps + 1;
  EXPECT_NO_THROW(schedule.on_step_end(report));
  EXPECT_THROW(schedule.on_checkpoint(), TrainingDiverged);
}

// A program that asks nobody: no pass but an evaluation waits for the GPU to be told.
TEST_F(QuantizersOnCuda, TellAProgramOfNanWhereItMayWait) {
  const Twins twins(config_);
  Tensor x = images(3);
  x.data<float>()[5] = std::nanf("");
  const Variable there(x.to(kCudaDevice));
  EXPECT_THROW((*twins.gpu)(there, {}), TrainingDiverged);
  EXPECT_NO_THROW((*twins.gpu)(Variable(images(3).to(kCudaDevice)), {}));
  Sgd optimizer(*twins.gpu);
  const auto train = [&] {
    const Variable y = (*twins.gpu)(there, {.training = true});
    y.backward(Tensor::full(y.shape(), 0, DType::kF32, kCudaDevice));
    optimizer.step(0);
  };
  for (std::int64_t step = 1; step < kGpuCheckSteps; ++step) EXPECT_NO_THROW(train()) << step;
  EXPECT_THROW(train(), TrainingDiverged);
  const NoGradGuard no_grad;
  const CapturedWork recorded(kCudaDevice, [&] { (*twins.gpu)(there, {}); });
  recorded.run();
  EXPECT_THROW((*twins.gpu)(there, {}), TrainingDiverged);
}

// Beside 40,000 products int32 has room for a bias of 26,313 here.
TEST_F(QuantizersOnCuda, TellABiasThatLacksRoomAsTheCpuDoes) {
  QuantizeConfig config = config_;
  config.groups[0].targets = {"Linear"};
  const auto wide = [&] {
    Rng rng(1);
    const auto linear = std::make_shared<Linear>(LinearOptions{40000, 3}, rng);
    linear->weight().value().fill(1);
    linear->bias().value().copy_from(Tensor::from({26000.0F, -27000.0F, 30000.0F}, {3}));
    return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
        .model;
  };
  const auto cpu = wide(), gpu = wide();
  move_to(*gpu, kCudaDevice);
  const Tensor x = Tensor::full({1, 40000}, 1);
  expect_same_bits(computed(*gpu, x, kTraining), computed(*cpu, x, kTraining));
  const auto expected = take_fault(named_quantizers(*cpu));
  ASSERT_TRUE(expected);
  EXPECT_EQ(expected->substr(0, 30), "fc, channel 1: the bias -27000");
  EXPECT_EQ(take_fault(named_quantizers(*gpu)), expected);
  EXPECT_FALSE(take_fault(named_quantizers(*gpu))) << "counted from anew";
}

// Every channel's extremes, and one count of what was left out of them.
TEST_F(QuantizersOnCuda, CountWhatIsNotFiniteInAllChannels) {
  for (const std::int64_t channels : {1, 3, 255, 1000}) {
    for (const std::int64_t inner : {0, 1, 7}) {
      const kernels::ChannelLayout layout{1, channels, inner};
      const Tensor x = testing::random_tensor({layout.size()}, 3, DType::kF32);
      std::int64_t bad = 0;
      for (std::int64_t i = 0; i < x.size(); i += 3, ++bad) {
        x.data<float>()[i] = i % 2 == 0 ? std::nanf("") : -INFINITY;
      }
      const Tensor cpu = Tensor::full({1}, 5, DType::kI64), gpu = cpu.to(kCudaDevice);
      const auto expected = observers::extremes_of(layout, x, cpu);
      const auto actual = observers::extremes_of(layout, x.to(kCudaDevice), gpu);
      EXPECT_EQ(cpu.item(), static_cast<double>(5 + bad)) << channels << ' ' << inner;
      EXPECT_EQ(gpu.item(), cpu.item()) << channels << ' ' << inner;
      expect_same_bits({actual.lo.to(Device{}), actual.hi.to(Device{})},
                       {expected.lo, expected.hi});
    }
  }
}

// Weights of 0 and +-0.5, which 8-bit codes hold exactly, and images in eighths: no float sum
// rounds, so that the order of summation, which differs between devices and instruction sets, does
// not show.
void make_sums_exact(const Module& model) {
  for (const NamedParameter& parameter : model.named_parameters()) {
    Tensor value = parameter.variable.value();
    std::int64_t i = 0;
    for (float& v : value.span<float>()) {
      v = i % 7 == 0 ? (i % 2 == 0 ? 0.5F : -0.5F) : 0.0F;
      ++i;
    }
  }
}

Tensor images_in_eighths(std::uint64_t seed) {
  Tensor x = images(seed);
  for (float& v : x.span<float>()) v = std::round(v * 8) / 8;
  return x;
}

TEST_F(QuantizersOnCuda, AreCalibrated) {
  Twins twins(config_, /*observed=*/false);
  make_sums_exact(*twins.cpu);
  load_into(*twins.gpu, saved_state(*twins.cpu), "twin");
  const auto inputs = [](std::int64_t i) {
    return images_in_eighths(static_cast<std::uint64_t>(i + 1));
  };
  calibrate(*twins.cpu, 2, inputs);
  calibrate(*twins.gpu, 2, inputs);
  expect_same_state(*twins.gpu, *twins.cpu);
}

TEST_F(QuantizersOnCuda, AreExportedAsFromTheCpu) {
  const Twins twins(config_);
  const auto cpu = deploy::trace(*twins.cpu, images(3), "net").graph;
  const auto gpu = deploy::trace(*twins.gpu, images(3), "net").graph;
  ASSERT_EQ(gpu.nodes.size(), cpu.nodes.size());
  for (std::size_t i = 0; i < cpu.values.size(); ++i) {
    EXPECT_EQ(gpu.values[i].quantization, cpu.values[i].quantization) << cpu.values[i].name;
  }
  for (std::size_t i = 0; i < cpu.nodes.size(); ++i) {
    if (!cpu.nodes[i].weights) continue;
    EXPECT_EQ(gpu.nodes[i].weights->scales, cpu.nodes[i].weights->scales);
    expect_same_bits({gpu.nodes[i].weights->weight, gpu.nodes[i].weights->bias},
                     {cpu.nodes[i].weights->weight, cpu.nodes[i].weights->bias});
  }
}

TEST_F(QuantizersOnCuda, HoldOscillatingWeights) {
  const Twins twins(config_);
  const OscillationOptions options{.momentum = 0.5,
                                   .damping = CosineSchedule{1e-3, 1e-3},
                                   .freeze_threshold = CosineSchedule{0.2, 0.2}};
  OscillationCallback cpu(*twins.cpu, options), gpu(*twins.gpu, options);
  for (std::int64_t step = 0; step < 6; ++step) {
    // Both have the same weights, which turn in every step.
    for (Module* model : {twins.cpu.get(), twins.gpu.get()}) {
      for (const NamedParameter& p : model->named_parameters()) {
        const Tensor moved = p.variable.value().to(Device{}).clone();
        for (float& w : moved.span<float>()) w += step % 2 == 0 ? 4e-3F : -4e-3F;
        p.variable.value().copy_from(moved);
        Variable parameter = p.variable;
        parameter.set_grad(Tensor::full(moved.shape(), 0.25, DType::kF32, device_of(*model)));
      }
    }
    for (OscillationCallback* callback : {&cpu, &gpu}) {
      callback->on_step_begin(step, 6);
      EXPECT_EQ(callback->repeats_last_step(), step > 1) << step;
      callback->on_gradients();
      callback->on_update();
      callback->on_step_end({});
    }
  }
  expect_same_state(*twins.gpu, *twins.cpu);
  const auto of_cpu = cpu.named_state(), of_gpu = gpu.named_state();
  for (std::size_t i = 0; i < of_cpu.size(); ++i) {
    SCOPED_TRACE(of_cpu[i].name);
    expect_same_bits({of_gpu[i].tensor.to(Device{})}, {of_cpu[i].tensor});
  }
  const auto metrics = gpu.metrics();
  EXPECT_GT(metrics[1].value, 0) << "percent frozen";
  EXPECT_EQ(metrics[1].value, cpu.metrics()[1].value);
  EXPECT_EQ(metrics[0].value, cpu.metrics()[0].value);
}

}  // namespace
}  // namespace steelyard::qat
