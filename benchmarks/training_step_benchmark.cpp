// Times whole training steps of one model in one mode, on demand.
//
// Prints one JSON line that describes the model, then, for every line read from standard input, the
// milliseconds of each of --steps training steps as a JSON array; on a GPU their mean, since steps
// are queued and not waited for. benchmarks/training_step.py runs several of these programs, and
// PyTorch's twin, in turn.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/tensor/captured_work.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/blocks/block_layers.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {
namespace {

struct Case {
  const char* name;
  std::string model;  // the recipe's `model`
  Shape input;
  std::int64_t batch;  // --batch replaces it
};

const Case kCases[] = {
    {"cnn", "{type: cnn, channels: [32, 64], hidden: 128, classes: 10}", {28, 28, 1}, 128},
    {"resnet20", "{type: resnet, depth: 20, width: 16, classes: 10}", {32, 32, 3}, 64},
    {"mlp", "{type: mlp, hidden: [1024, 1024], classes: 10}", {28, 28, 1}, 2048},
    {"mobilenet", "{type: mobilenet, classes: 10}", {28, 28, 1}, 128},
    // Three layers of 4096 x 4096, and the classes.
    {"mlp4096", "{type: mlp, hidden: [4096, 4096, 4096], classes: 10}", {64, 64, 1}, 4096},
    {"resnet18", "{type: resnet18, classes: 10}", {224, 224, 3}, 16},
    {"resnet50", "{type: resnet50, classes: 10}", {224, 224, 3}, 32},
    {"mobilenet_v3_small", "{type: mobilenet_v3_small, classes: 10}", {224, 224, 3}, 16},
    // Sequences of tokens for the model of --gguf.
    {"language", "", {128}, 2},
};

qat::QuantizeConfig w4a4_lsq() {
  qat::QConfig config = qat::default_w8a8();
  for (std::optional<qat::QuantizerConfig>* side : {&config.weights, &config.activations}) {
    (*side)->scheme.bits = 4;
    (*side)->learning = qat::Learning::kScale;
  }
  return {.groups = {{.targets = {"re:.*"}, .config = config}}, .ignore = {}};
}

const std::vector<std::string> kModes{
    "float", "float_frozen_bn", "qat", "qat_fixed_ranges", "w4a4_lsq", "q4_0"};

class StepTimer {
 public:
  StepTimer(const Case& c, const std::string& mode, Device device) : device_(device) {
    const Registries& registries = builtin_registries();
    const Recipe recipe =
        parse_recipe("version: 1\nname: benchmark\ndata: {dataset: none}\nmodel: " + c.model +
                         "\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n",
                     "benchmark", {}, registries);
    Rng rng(1);
    if (recipe.model.file()) {
      const imports::SampleSpec sample(c.input);
      const ImportedModel imported = read_imported_model(recipe.model, sample);
      if (recipe.model.gguf) vocabulary_ = imported.graph.output_sample.back();
      // Tokens are no classes of the data.
      model_ = build_imported_model(imported.graph, recipe.model, sample,
                                    recipe.model.gguf ? 0 : kClasses, false);
      load_into(*model_, *imported.weights, *recipe.model.file());
    } else {
      model_ = build_model(recipe.model, c.input, kClasses, rng, registries.models);
    }
    if (mode == "qat" || mode == "qat_fixed_ranges") {
      model_ = qat::prepare(model_, qat::w8a8({"re:.*"})).model;
    } else if (mode == "w4a4_lsq") {
      model_ = qat::prepare(model_, w4a4_lsq()).model;
    } else if (mode == "q4_0") {
      qat::use_blocks(*model_, kernels::BlockType::kQ4_0);
    } else if (mode == "float_frozen_bn") {
      for (const NamedModule& entry : model_->named_modules()) {
        if (auto* norm = dynamic_cast<BatchNorm*>(entry.module)) norm->set_frozen(true);
      }
    }
    move_to(*model_, device);
    optimizer_ =
        std::make_unique<Sgd>(model_->named_parameters(),
                              SgdOptions{.momentum = 0.9, .nesterov = false, .weight_decay = 5e-4});
    Shape shape = c.input;
    shape.insert(shape.begin(), c.batch);
    inputs_ = Tensor::empty(shape);
    const auto token = [&] { return static_cast<std::int64_t>(rng.below(vocabulary_)); };
    for (float& x : inputs_.span<float>()) {
      x = static_cast<float>(vocabulary_ == 0 ? rng.normal() : static_cast<double>(token()));
    }
    if (vocabulary_ != 0) {
      loss_.type = Loss::Type::kTokenCrossEntropy;
      shape.push_back(1);  // a target at each position
      targets_ = Tensor::empty(shape, DType::kI64);
    } else {
      targets_ = Tensor::empty({c.batch}, DType::kI64);
    }
    for (std::int64_t& t : targets_.span<std::int64_t>()) {
      t = vocabulary_ == 0 ? static_cast<std::int64_t>(rng.below(kClasses)) : token();
    }
    inputs_ = inputs_.to(device);
    targets_ = targets_.to(device);
    for (int i = 0; i < 3; ++i) step();
    if (mode == "qat_fixed_ranges") {
      for (const qat::NamedQuantizer& entry : qat::named_quantizers(*model_)) {
        entry.quantizer->set_observing(false);
      }
    }
    saved_activation_bytes_ = count_saved_activation_bytes();
    allocator(device).reset_peak();
    if (device.kind == Device::Kind::kCuda) {
      recorded_.emplace(device, [this] {
        gradients();
        optimizer_->apply();
      });
    } else {
      step();
    }
    device_peak_bytes_ = allocator(device).stats().peak_bytes;
  }

  // Milliseconds of each step.
  std::vector<double> time(int steps) {
    std::vector<double> times;
    const auto begin = Clock::now();
    if (recorded_) {
      for (int i = 0; i < steps; ++i) {
        optimizer_->prepare(kRate);
        recorded_->run();
      }
      kernels::cuda_synchronize(cuda_queue(device_));
      return {milliseconds_since(begin) / steps};
    }
    for (int i = 0; i < steps; ++i) {
      const auto one = Clock::now();
      step();
      times.push_back(milliseconds_since(one));
    }
    return times;
  }

  // How many nodes the graph of a recorded step has; 0 on the CPU.
  std::size_t graph_nodes() const { return recorded_ ? recorded_->nodes() : 0; }

  std::int64_t saved_activation_bytes() const { return saved_activation_bytes_; }
  // The most that tensors took on the device within one step, parameters and inputs included.
  std::int64_t device_peak_bytes() const { return device_peak_bytes_; }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr double kRate = 1e-3;
  static constexpr std::int64_t kClasses = 10;

  static double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  // Called before a step is recorded, which then takes the memory that this gives back.
  std::int64_t count_saved_activation_bytes() {
    std::vector<Tensor> parameters;
    for (const NamedParameter& p : model_->named_parameters()) {
      parameters.push_back(p.variable.value());
    }
    Rng rng(1);
    ForwardContext context{.training = true, .rng = &rng};
    return saved_bytes(compute_loss(loss_, model_->forward(Variable(inputs_), context), targets_),
                       parameters);
  }

  void gradients() {
    Rng rng(1);
    ForwardContext context{.training = true, .rng = &rng};
    clear_gradients(*model_);
    const Variable loss =
        compute_loss(loss_, model_->forward(Variable(inputs_), context), targets_);
    loss.backward();
  }

  void step() {
    gradients();
    optimizer_->step(kRate);
  }

  Device device_;
  std::int64_t vocabulary_ = 0;  // of a language model
  Loss loss_;
  std::shared_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor inputs_, targets_;
  std::int64_t saved_activation_bytes_ = 0, device_peak_bytes_ = 0;
  std::optional<CapturedWork> recorded_;
};

// The most memory that the process held.
std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} << 10;
}

int serve(int argc, char** argv) {
  CLI::App app("Times training steps on demand; see benchmarks/training_step.py.");
  std::string name, mode, onnx, gguf, device = "cpu", precision = "float32";
  int threads = 0, steps = 5;
  std::int64_t batch = 0, length = 0;
  std::vector<std::string> names;
  for (const Case& c : kCases) names.emplace_back(c.name);
  app.add_option("model", name)->required()->check(CLI::IsMember(names));
  app.add_option(
         "mode", mode,
         "float_frozen_bn: with the running statistics of batch norms; qat: 8 bits, ranges "
         "observed in every step; qat_fixed_ranges: 8 bits, ranges no longer move; w4a4_lsq: "
         "4 bits, learned scales; q4_0: ggml's blocks, of a language model")
      ->required()
      ->check(CLI::IsMember(kModes));
  app.add_option("--onnx", onnx, "a file with the model, in place of the one that is built")
      ->check(CLI::ExistingFile);
  app.add_option("--gguf", gguf, "the file of the model 'language'")->check(CLI::ExistingFile);
  app.add_option("--length", length, "of its sequences")->check(CLI::PositiveNumber);
  app.add_option("--threads", threads);
  app.add_option("--steps", steps);
  app.add_option("--batch", batch, "default: the model's own")->check(CLI::PositiveNumber);
  app.add_option("--device", device, "cpu or cuda");
  app.add_option("--precision", precision, "products: float32, bf16, on a GPU also tf32")
      ->check(CLI::IsMember({"float32", "tf32", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) kernels::set_num_threads(threads);
  Case c = *std::ranges::find(kCases, name, &Case::name);
  if (batch > 0) c.batch = batch;
  if (!onnx.empty()) c.model = "{onnx: " + nlohmann::json(onnx).dump() + "}";
  if (!gguf.empty()) c.model = "{gguf: " + nlohmann::json(gguf).dump() + "}";
  if (length > 0) c.input = {length};
  const Device place = resolve_device(device);
  const MatmulPrecisionGuard products(place, precision);
  StepTimer timer(c, mode, place);
  const std::int64_t peak = peak_bytes();
  std::cout << nlohmann::json{{"peak_bytes", peak},
                              {"device_peak_bytes", timer.device_peak_bytes()},
                              {"saved_activation_bytes", timer.saved_activation_bytes()},
                              {"graph_nodes", timer.graph_nodes()},
                              {"batch", c.batch},
                              {"threads", kernels::num_threads()}}
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << nlohmann::json(timer.time(steps)) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace steelyard

int main(int argc, char** argv) { return steelyard::serve(argc, argv); }
