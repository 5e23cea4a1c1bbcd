// Every preset trains on a GPU as on the CPU, and evaluates to the same bits.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "steelyard/recipes/runs/experiment/experiment.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using testing::all_close;
using testing::kCpuDevice;
using testing::kCudaDevice;
using testing::values;

// Images of ten kinds of stripes with noise.
Dataset stripes(std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  Dataset dataset;
  dataset.inputs = Tensor::empty({count, 28, 28, 1}, DType::kU8);
  dataset.targets = Tensor::empty({count}, DType::kI64);
  dataset.classes = 10;
  std::uint8_t* pixel = dataset.inputs.data<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int64_t>(rng.below(10));
    dataset.targets.data<std::int64_t>()[i] = label;
    for (std::int64_t p = 0; p < 28 * 28; ++p) {
      const std::int64_t stripe = (p % 28 + label * (p / 28)) % 10;
      *pixel++ = static_cast<std::uint8_t>(20 * stripe + static_cast<std::int64_t>(rng.below(50)));
    }
  }
  return dataset;
}

Registries registries() {
  Registries all;
  all.datasets = DatasetRegistry();
  all.datasets.add("fashion_mnist", "generated", [](const DatasetRequest&) {
    return DatasetSplits{stripes(26, 1), stripes(6, 2)};
  });
  return all;
}

// A run of four steps: two before recording, the recorded one, and one on a smaller batch.
struct TrainedRun {
  TrainedRun(const std::string& preset, Device device) {
    const Registries all = registries();
    Recipe recipe = load_recipe(
        preset, {"data.batch_size=6", "data.validation=4", "train.optimizer.lr=0.001"}, all);
    recipe.train.trainer.epochs = 1;
    recipe.schedule.freeze_observers.reset();
    recipe.schedule.stages.clear();
    recipe.init_checkpoint.reset();  // random weights do
    experiment = std::make_unique<Experiment>(std::move(recipe), all, InitialWeights::kRecipe);
    experiment->move_to(device);
    const auto optimizer = experiment->make_optimizer();
    const auto schedule = experiment->make_schedule();
    std::vector<TrainerCallback*> callbacks;
    if (schedule) callbacks.push_back(schedule.get());
    Trainer trainer(experiment->model(), *optimizer, experiment->train(), experiment->validation(),
                    experiment->loader_options(), experiment->trainer_options(), callbacks);
    const std::atomic<bool> stop = false;
    trainer.run(stop);
  }

  Tensor logits() const {
    const NoGradGuard no_grad;
    ForwardContext context;
    const Tensor images = make_batch(experiment->test(), experiment->loader_options(), 0, 0).inputs;
    Module& model = experiment->model();
    return model.forward(Variable(images.to(device_of(model))), context).value().to(kCpuDevice);
  }

  std::unique_ptr<Experiment> experiment;
};

class PresetOnCuda : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!testing::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(PresetOnCuda, TrainsAsOnTheCpu) {
  const TrainedRun cpu(GetParam(), kCpuDevice);
  const TrainedRun gpu(GetParam(), kCudaDevice);
  const auto expected = module_state(cpu.experiment->model());
  const auto actual = module_state(gpu.experiment->model());
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].tensor.device(), actual[i].on_host ? kCpuDevice : kCudaDevice)
        << actual[i].name;
    EXPECT_TRUE(all_close(actual[i].tensor.to(kCpuDevice), expected[i].tensor, 1e-3, 1e-3))
        << actual[i].name;
  }
}

// The trained weights, scales and statistics of the GPU give the same codes on the CPU.
TEST_P(PresetOnCuda, EvaluatesToTheCpusBits) {
  const TrainedRun gpu(GetParam(), kCudaDevice);
  const Tensor there = gpu.logits();
  const bool quantized = gpu.experiment->plan().has_value();
  gpu.experiment->move_to_cpu();
  const Tensor here = gpu.logits();
  if (quantized) {
    EXPECT_EQ(values(there), values(here));
  } else {
    EXPECT_TRUE(all_close(there, here, 1e-4, 1e-4));
  }
}

// Of the images that registries() makes.
std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) names.emplace_back(preset.name);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("fashion-mnist-"); });
  return names;
}

using FloatPresetOnCuda = PresetOnCuda;

std::vector<std::string> float_preset_names() {
  std::vector<std::string> names = preset_names();
  std::erase_if(names, [](const std::string& name) { return !name.ends_with("-float"); });
  return names;
}

// Gradients of a preset's first step in `dtype`, on the CPU afterwards.
std::vector<NamedTensor> first_gradients(const std::string& preset, Device device, DType dtype) {
  const Registries all = registries();
  Recipe recipe = load_recipe(preset, {"data.batch_size=6", "data.validation=4"}, all);
  recipe.init_checkpoint.reset();
  Experiment experiment(std::move(recipe), all, InitialWeights::kRecipe);
  Module& model = experiment.model();
  for (NamedParameter& p : model.named_parameters()) {
    p.variable.set_value(p.variable.value().to(dtype));
  }
  experiment.move_to(device);
  const Batch batch = make_batch(experiment.train(), experiment.loader_options(), 0, 0);
  Rng rng(1);
  ForwardContext context{.training = true, .rng = &rng};
  const Variable inputs(batch.inputs.to(dtype).to(device));
  compute_loss({}, model.forward(inputs, context), batch.targets.to(device)).backward();
  std::vector<NamedTensor> gradients;
  for (const NamedParameter& p : model.named_parameters()) {
    gradients.push_back({p.name, p.variable.grad().to(kCpuDevice).to(DType::kF64)});
  }
  return gradients;
}

double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

// A sum of k products in float is off by at most k u times the sum of their magnitudes (Higham,
// "Accuracy and Stability of Numerical Algorithms", 3.1); here k is the number of pixels of a
// batch, and there is such a sum forward and backward for every layer.
TEST_P(FloatPresetOnCuda, GradientsMatchTheCpuInDouble) {
  const auto expected = first_gradients(GetParam(), kCpuDevice, DType::kF64);
  const auto doubles = first_gradients(GetParam(), kCudaDevice, DType::kF64);
  const auto floats = first_gradients(GetParam(), kCudaDevice, DType::kF32);
  const double of_sum = 6 * 28 * 28 * std::numeric_limits<float>::epsilon() / 2;
  const double bound = 2 * static_cast<double>(expected.size()) * of_sum;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto exact = values(expected[i].tensor);
    const auto off = [&](const NamedTensor& gradient) {
      std::vector<double> difference = values(gradient.tensor);
      for (std::size_t j = 0; j < exact.size(); ++j) difference[j] -= exact[j];
      return norm(difference) / norm(exact);
    };
    EXPECT_GT(norm(exact), 0) << expected[i].name;
    EXPECT_LE(off(floats[i]), bound) << expected[i].name;
    EXPECT_LE(off(doubles[i]), 1e-9) << expected[i].name;
  }
}

std::string preset_word(const ::testing::TestParamInfo<std::string>& info) {
  std::string word = info.param;
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

INSTANTIATE_TEST_SUITE_P(Presets, PresetOnCuda, ::testing::ValuesIn(preset_names()), preset_word);
INSTANTIATE_TEST_SUITE_P(Presets, FloatPresetOnCuda, ::testing::ValuesIn(float_preset_names()),
                         preset_word);

}  // namespace
}  // namespace steelyard
