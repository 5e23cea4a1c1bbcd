// Threads of one program that run the same models at once, for ThreadSanitizer (scripts/campaign).
//
// usage: hammer_deployed FOLDER SECONDS [THREADS]. Each NAME.deployed.safetensors there has its
// turn, again and again: it is loaded by the C face, all threads (4 unless told otherwise) run it
// with batches of 1 to 17 from its first run on, and every output is compared, bit by bit, with
// what one thread computes. Each thread computes with one thread of OpenMP.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>

#include "deployed_models.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/steelyard_runtime.h"

namespace steelyard::deploy {
namespace {

constexpr int kRounds = 5;  // of each thread, of one model's turn
constexpr std::array<std::int64_t, 4> kBatches{1, 2, 5, 17};

// Inputs and the outputs that are expected of them, in the form of the data.
struct Batch {
  Tensor inputs, outputs;
};

using Model = std::unique_ptr<steelyard_model, decltype(&steelyard_model_destroy)>;

Model load(const std::filesystem::path& path) {
  char message[256];
  steelyard_model* model = nullptr;
  if (steelyard_model_load(path.c_str(), &model, message, sizeof message) != STEELYARD_RUNTIME_OK) {
    throw std::runtime_error(message);
  }
  return {model, &steelyard_model_destroy};
}

std::vector<Batch> batches_of(const Graph& graph) {
  const Interpreter alone(graph, Engine::kFast);
  std::vector<Batch> batches;
  std::mt19937 random(1);
  for (const std::int64_t size : kBatches) {
    Tensor x = deployed_inputs(graph, size, Inputs::kNormal, random);
    if (graph.preprocessing.dtype == DType::kU8) {
      x = Tensor::empty(x.shape(), DType::kU8);
      for (std::uint8_t& pixel : x.span<std::uint8_t>()) pixel = random() & 0xFF;
    }
    const Tensor y = alone.run_raw(x);
    batches.push_back({x, y});
  }
  return batches;
}

// Runs the model; the number of runs whose outputs are others than expected.
int runs_that_differ(const steelyard_model* model, const std::vector<Batch>& batches,
                     std::size_t first) {
  int different = 0;
  for (std::size_t round = 0; round < kRounds * batches.size(); ++round) {
    const auto& [x, expected] = batches[(first + round) % batches.size()];
    const Tensor y = Tensor::empty(expected.shape());
    const auto bytes = static_cast<std::size_t>(y.bytes());
    const bool ran =
        steelyard_model_run(model, x.dim(0), x.raw(), static_cast<std::size_t>(x.bytes()),
                            y.data<float>(), bytes, nullptr, 0) == STEELYARD_RUNTIME_OK;
    different += ran && std::memcmp(y.raw(), expected.raw(), bytes) == 0 ? 0 : 1;
  }
  return different;
}

// How many of the threads' runs had other outputs than expected.
int hammer(const std::filesystem::path& file, int threads) {
  const std::vector<Batch> batches = batches_of(load_graph(file));
  const Model model = load(file);
  std::atomic<int> different = 0, ready = 0;
  std::vector<std::thread> runners;
  for (int thread = 0; thread < threads; ++thread) {
    runners.emplace_back([&, thread] {
      kernels::set_num_threads(1);
      ++ready;
      ready.notify_all();
      for (int now = ready; now < threads; now = ready) ready.wait(now);  // all begin together
      different += runs_that_differ(model.get(), batches, static_cast<std::size_t>(thread));
    });
  }
  for (std::thread& runner : runners) runner.join();
  return different;
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  using namespace steelyard;
  using Clock = std::chrono::steady_clock;
  if (argc != 3 && argc != 4) {
    return std::fprintf(stderr, "usage: hammer_deployed FOLDER SECONDS [THREADS]\n"), 2;
  }
  long long turns = 0, different = 0;
  try {
    const int threads = argc > 3 ? std::stoi(argv[3]) : 4;
    const auto names = deploy::deployed_names(argv[1]);
    if (names.empty()) throw std::runtime_error("no deployed models");
    kernels::set_num_threads(1);
    const auto end = Clock::now() + std::chrono::duration<double>(std::stod(argv[2]));
    do {
      const std::string& name = names[static_cast<std::size_t>(turns++) % names.size()];
      const int of_model = deploy::hammer(deploy::deployed_file(argv[1], name), threads);
      if (of_model > 0) std::printf("%s: %d runs differ\n", name.c_str(), of_model);
      different += of_model;
    } while (Clock::now() < end);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "error: %s\n", error.what()), 1;
  }
  std::printf("%lld turns of models, %lld runs differ\n", turns, different);
  return different == 0 ? 0 : 1;
}
