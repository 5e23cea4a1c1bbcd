// Counts what one training step queues on a GPU: kernels, matrix products and copies, as nodes of
// the step's graph. Needs no GPU: it is linked with the tests' emulated one, where steps are
// recorded without being run. benchmarks/training_launches.py makes tables of it.
//
// Prints a JSON object: "anchor" is the address of main(), and every case has, for "products",
// "copies" and "kernels", these by the addresses of their functions, how many there are and the
// bytes of the arrays that they read or write: every array of a launch once, however often it is
// read, from where a pointer points to the end of its memory.
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/queued_work.h"

int main();

namespace steelyard {
namespace {

struct Model {
  const char* name;
  const char* model;  // the recipe's `model`
  Shape input;
  // Of the recorded step, which nobody computes, if it is another.
  Shape recorded = {};
  std::int64_t batch = 2;
};

// The first four are small: no size changes a count. The others are for bytes. Sides of a power of
// two, because memory for others is rounded up.
const Model kModels[] = {
    {"cnn", "{type: cnn, channels: [8, 8], hidden: 16, classes: 10}", {8, 8, 1}},
    {"resnet20", "{type: resnet, depth: 20, width: 8, classes: 10}", {8, 8, 3}},
    {"mobilenet", "{type: mobilenet, classes: 10}", {12, 12, 1}},
    {"mlp", "{type: mlp, hidden: [16, 16], classes: 10}", {4, 4, 1}},
    {"resnet18, 256 x 256, 32", "{type: resnet18, classes: 10}", {32, 32, 3}, {256, 256, 3}, 32},
    {"resnet18, 256 x 256, 64", "{type: resnet18, classes: 10}", {32, 32, 3}, {256, 256, 3}, 64},
};

enum class Frozen { kNothing, kBatchNorms, kObservers };

struct Mode {
  const char* name;
  const char* quantize;  // the recipe's lines, empty for float
  Frozen frozen;
};

constexpr const char* kW8A8 = R"(
quantize:
  groups:
    - targets: ["re:.*"]
      weights: {num_bits: 8, symmetric: true, strategy: channel, observer: min_max}
      activations: {num_bits: 8, symmetric: false, strategy: tensor, observer: moving_average}
)";
constexpr const char* kW4A4 = R"(
quantize:
  groups:
    - targets: ["re:.*"]
      weights: {num_bits: 4, observer: mse}
      activations: {num_bits: 4, observer: mse}
  algorithm: {method: lsq}
)";

const Mode kModes[] = {
    {"float", "", Frozen::kNothing},
    {"float, frozen batch norms", "", Frozen::kBatchNorms},
    {"W8A8, observing", kW8A8, Frozen::kNothing},
    {"W8A8, frozen observers", kW8A8, Frozen::kObservers},
    {"W4A4, learned scales", kW4A4, Frozen::kNothing},
};

Registries registries_with_noise(const Shape& image) {
  Registries all;
  all.datasets = DatasetRegistry();
  all.datasets.add("noise", "generated", [image](const DatasetRequest&) {
    Shape shape = image;
    shape.insert(shape.begin(), 256);
    Dataset dataset{.inputs = Tensor::full(shape, 1.0, DType::kU8),
                    .targets = Tensor::zeros({256}, DType::kI64),
                    .classes = 10};
    return DatasetSplits{dataset, dataset};
  });
  return all;
}

// A model that trains on the emulated GPU.
class Steps {
 public:
  Steps(const Model& model, const Mode& mode, const std::string& precision)
      : registries_(registries_with_noise(model.input)),
        experiment_(
            parse_recipe(
                std::string("version: 1\nname: launches\n"
                            "data: {dataset: noise, batch_size: 128, validation: 0}\nmodel: ") +
                    model.model +
                    "\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01, "
                    "momentum: 0.9, weight_decay: 5.0e-4}, matmul_precision: " +
                    precision + "}\n" + mode.quantize,
                "training_launches", {}, registries_),
            registries_, InitialWeights::kRecipe) {
    const Device device = resolve_device("cuda");
    experiment_.move_to(device);
    optimizer_ = experiment_.make_optimizer();
    inputs_ = Tensor::full(batch_of(2, model.input), 1.0, DType::kF32, device);
    targets_ = Tensor::zeros({2}, DType::kI64, device);
    optimizer_->prepare(0);
    step();  // observes for the first time and lets learning begin
    freeze(mode.frozen);
    if (model.recorded.empty()) return;
    inputs_ = Tensor::empty(batch_of(model.batch, model.recorded), DType::kF32, device);
    targets_ = Tensor::zeros({model.batch}, DType::kI64, device);
  }

  emulation::Work record() {
    emulation::begin_recording(cuda_queue(Device{Device::Kind::kCuda, 0}).stream);
    step();
    return emulation::end_recording();
  }

 private:
  static Shape batch_of(std::int64_t samples, Shape sample) {
    sample.insert(sample.begin(), samples);
    return sample;
  }

  void step() {
    Rng rng(1);
    ForwardContext context{.training = true, .rng = &rng};
    clear_gradients(experiment_.model());
    compute_loss({}, experiment_.model().forward(Variable(inputs_), context), targets_).backward();
    optimizer_->apply();
  }

  void freeze(Frozen frozen) {
    if (frozen == Frozen::kObservers) {
      for (const auto& entry : qat::named_quantizers(experiment_.model())) {
        entry.quantizer->set_observing(false);
      }
    }
    if (frozen == Frozen::kBatchNorms) {
      for (const NamedModule& entry : experiment_.model().named_modules()) {
        if (auto* norm = dynamic_cast<BatchNorm*>(entry.module)) norm->set_frozen(true);
      }
    }
  }

  Registries registries_;
  Experiment experiment_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor inputs_, targets_;
};

// The bytes of what work reads or writes. Of several places in one allocation, those from the
// first to the last, or to its end.
std::size_t bytes_of(const emulation::QueuedWork& work) {
  struct Reach {
    std::size_t begin = std::numeric_limits<std::size_t>::max(), end = 0;
  };
  std::map<const void*, Reach> reached;
  for (const emulation::WorkMemory& memory : work.memory) {
    const emulation::Place place = emulation::place_of(memory.begin);
    if (place.allocation == nullptr) continue;
    Reach& reach = reached[place.allocation];
    reach.begin = std::min(reach.begin, place.before);
    reach.end =
        std::max(reach.end, place.before + (memory.bytes == 0 ? place.after : memory.bytes));
  }
  std::size_t bytes = 0;
  for (const auto& [allocation, reach] : reached) bytes += reach.end - reach.begin;
  return bytes;
}

struct Sum {
  int count = 0;
  std::size_t bytes = 0;

  void add(const emulation::QueuedWork& work) {
    ++count;
    bytes += bytes_of(work);
  }
};
void to_json(nlohmann::json& json, const Sum& sum) {
  json = {{"count", sum.count}, {"bytes", sum.bytes}};
}

nlohmann::json counts_of(const emulation::Work& work) {
  std::map<std::string, Sum> kernels;
  Sum products, copies;
  for (const emulation::QueuedWork& item : work) {
    if (item.kernel != nullptr) {
      kernels[std::to_string(reinterpret_cast<std::uintptr_t>(item.kernel))].add(item);
    } else {
      (item.what == std::string("product") ? products : copies).add(item);
    }
  }
  return {{"products", products}, {"copies", copies}, {"kernels", kernels}};
}

void print_launches() {
  // As many as an H200's 132 processors run: sums over pixels are cut into chunks for them.
  emulation::Options options = emulation::options();
  options.resident_blocks = 264;
  const emulation::ScopedOptions scope(options);
  nlohmann::json cases;
  for (const Model& model : kModels) {
    for (const Mode& mode : kModes) {
      for (const char* precision : {"float32", "bf16"}) {
        if (model.recorded.empty() && precision != std::string("float32")) continue;
        nlohmann::json entry = counts_of(Steps(model, mode, precision).record());
        entry["model"] = model.name;
        entry["mode"] = mode.name;
        entry["precision"] = precision;
        cases.push_back(entry);
      }
    }
  }
  std::cout << nlohmann::json{{"anchor", reinterpret_cast<std::uintptr_t>(&main)}, {"cases", cases}}
            << "\n";
}

}  // namespace
}  // namespace steelyard

int main() { steelyard::print_launches(); }
