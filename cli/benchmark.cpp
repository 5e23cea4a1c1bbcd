#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Ours and ONNX Runtime's take turns so often, so that a busy moment meets both.
constexpr int kTurns = 3;

struct BenchmarkArguments {
  std::string model;
  std::vector<std::string> beside;
  std::int64_t batch = 1;
  int rounds = 30;
  bool layers = false;
  bool json = false;
  std::string python;
};

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double quantile(std::vector<double> times, double share) {
  std::sort(times.begin(), times.end());
  const double place = share * static_cast<double>(times.size() - 1);
  return times[static_cast<std::size_t>(std::lround(place))];
}

double median(std::vector<double> times) { return quantile(std::move(times), 0.5); }

// The integer model's file that the argument names: it, the one that a run has exported, or the one
// beside its ONNX file.
std::filesystem::path model_file(const std::string& given) {
  if (given.ends_with(".onnx")) {
    std::filesystem::path file = given;
    file.replace_extension(".safetensors");
    if (path_exists(given) && !path_exists(file)) {
      throw InputError(shown(given) + ": expected the integer model " + shown(file) +
                       " beside it (`steelyard quantize` and `steelyard export` write both; an "
                       "ONNX file alone is timed with --beside)");
    }
    return path_exists(given) ? file : std::filesystem::path(given);
  }
  if (!is_folder(given)) return given;
  const std::filesystem::path file =
      export_path(std::filesystem::path(given) / "export", "safetensors");
  if (path_exists(file)) return file;
  throw InputError(shown(file) + ": is not there: `steelyard export " + shown(given) +
                   "` writes it");
}

// Normal numbers, and zeros where the model takes whole numbers, such as the indices of a table.
Tensor random_inputs(const deploy::Graph& graph, std::int64_t batch) {
  Shape shape = graph.values[graph.input].shape;
  const std::int64_t sample = shape_size(shape);
  shape.insert(shape.begin(), batch);
  Tensor inputs = Tensor::empty(shape);
  Rng rng(1);
  const auto values = inputs.span<float>();
  for (float& value : values) value = static_cast<float>(rng.normal());
  std::vector<deploy::PartPort> ports = graph.input_ports;
  if (ports.empty()) ports.push_back({graph.input_port, 0, {sample}});
  for (const deploy::PartPort& part : ports) {
    if (part.port.dtype == DType::kF32) continue;
    for (std::int64_t n = 0; n < batch; ++n) {
      std::fill_n(values.begin() + n * sample + part.first, shape_size(part.shape), 0.0F);
    }
  }
  return inputs;
}

// What the interpreter took: whole passes, and each node of further ones.
struct Timing {
  double load = 0, first = 0;
  std::vector<double> passes;
  std::vector<std::vector<double>> nodes;  // by node
  std::int64_t peak_bytes = 0;
  std::int64_t workspace_bytes = 0;
};

void time_nodes(const deploy::Interpreter& model, const Tensor& inputs, int rounds,
                Timing& timing) {
  const deploy::Graph& graph = model.graph();
  timing.nodes.resize(graph.nodes.size());
  for (int round = 0; round < rounds; ++round) {
    std::vector<Tensor> values(graph.values.size());
    values[graph.input] = inputs;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      values[graph.nodes[i].output] = model.run_node(graph.nodes[i], values);
      timing.nodes[i].push_back(milliseconds_since(begin));
    }
  }
}

// A size of this process that Linux tells in /proc/self/status: proc(5); 0 where it tells none.
std::int64_t process_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kibibytes = 0;
    if (word == key + ":" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

// The most memory that the process takes from now on, beyond what it has.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
    before_ = process_bytes("VmRSS");
  }
  std::int64_t bytes() const { return std::max<std::int64_t>(process_bytes("VmHWM") - before_, 0); }

 private:
  std::int64_t before_ = 0;
};

// A file and a session of ONNX Runtime.
struct Peer {
  std::string name;
  std::filesystem::path file;
  deploy::Session session = deploy::Session::kDefault;
  std::vector<double> medians = {};  // of each turn
};

std::vector<Peer> peers_of(const BenchmarkArguments& options, const std::filesystem::path& file) {
  std::vector<Peer> peers;
  const std::filesystem::path exported = export_path(file.parent_path(), "onnx");
  if (path_exists(exported)) {
    peers.push_back({"exact products", exported, deploy::Session::kExact});
    peers.push_back({"default session", exported, deploy::Session::kDefault});
  }
  for (const std::string& other : options.beside) peers.push_back({shown(other), other});
  return peers;
}

void print_layers(const deploy::Graph& graph, const Timing& timing) {
  std::size_t width = 4;
  for (const deploy::Node& node : graph.nodes) width = std::max(width, shown(node.name).size());
  fmt::print("\n{:<{}}  {:<18}  {:>9}\n", "node", width, "operation", "ms");
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    fmt::print("{:<{}}  {:<18}  {:>9.3f}\n", shown(graph.nodes[i].name), width,
               deploy::op_name(graph.nodes[i].op), median(timing.nodes[i]));
  }
}

nlohmann::ordered_json json_of(const BenchmarkArguments& options, const deploy::Graph& graph,
                               const Timing& timing, const std::vector<Peer>& peers,
                               const std::string& version) {
  nlohmann::ordered_json json{{"model", graph.name},
                              {"sample", graph.values[graph.input].shape},
                              {"batch", options.batch},
                              {"threads", kernels::num_threads()},
                              {"load_ms", timing.load},
                              {"first_ms", timing.first},
                              {"median_ms", median(timing.passes)},
                              {"p95_ms", quantile(timing.passes, 0.95)},
                              {"peak_bytes", timing.peak_bytes},
                              {"workspace_bytes", timing.workspace_bytes}};
  for (const Peer& peer : peers) {
    json["onnxruntime"].push_back({{"name", peer.name},
                                   {"file", peer.file.string()},
                                   {"version", version},
                                   {"median_ms", median(peer.medians)}});
  }
  for (std::size_t i = 0; i < timing.nodes.size(); ++i) {
    json["nodes"].push_back({{"name", graph.nodes[i].name},
                             {"operation", deploy::op_name(graph.nodes[i].op)},
                             {"median_ms", median(timing.nodes[i])}});
  }
  return json;
}

void print_table(const BenchmarkArguments& options, const deploy::Graph& graph,
                 const Timing& timing, const std::vector<Peer>& peers, const std::string& version) {
  const double ours = median(timing.passes);
  fmt::print("{}: a batch of {}, {} thread{}, {} runs\n", shown(graph.name), options.batch,
             kernels::num_threads(), kernels::num_threads() == 1 ? "" : "s", timing.passes.size());
  const auto mebibytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print(
      "loaded in {:.1f} ms, first run {:.2f} ms, memory for both {:.1f} MiB, values {:.2f} MiB\n\n",
      timing.load, timing.first, mebibytes(timing.peak_bytes), mebibytes(timing.workspace_bytes));
  fmt::print("{:<40}  {:>9}  {:>9}\n", "", "ms", "p95");
  fmt::print("{:<40}  {:>9.3f}  {:>9.3f}\n", "steelyard", ours, quantile(timing.passes, 0.95));
  for (const Peer& peer : peers) {
    fmt::print("{:<40}  {:>9.3f}  steelyard takes {:.2f} of it\n",
               "ONNX Runtime " + version + ", " + peer.name, median(peer.medians),
               ours / median(peer.medians));
  }
  if (options.layers) print_layers(graph, timing);
}

ExitCode benchmark(const BenchmarkArguments& options) {
  const std::filesystem::path file = model_file(options.model);
  std::vector<Peer> peers = peers_of(options, file);
  for (const std::string& other : options.beside) const InputFile regular(other);
  std::string version;
  const auto runtime = peers.empty() ? std::nullopt : runtime_in(options.python);
  if (!runtime && !peers.empty()) {
    print_note(std::string("ONNX Runtime is not timed: ") + deploy::kNoOnnxRuntime);
    peers.clear();
  }
  Timing timing;
  const PeakMemory memory;
  Clock::time_point begin = Clock::now();
  const deploy::Interpreter model(deploy::load_graph(file), deploy::Engine::kLean);
  timing.load = milliseconds_since(begin);
  const deploy::Graph& graph = model.graph();
  const Tensor inputs = random_inputs(graph, options.batch);
  begin = Clock::now();
  model.run(inputs);
  timing.first = milliseconds_since(begin);
  timing.peak_bytes = memory.bytes();
  const deploy::OnnxPorts ports{graph.input_port, graph.output_port, graph.input_ports,
                                graph.output_ports};
  for (int turn = 0; turn < kTurns; ++turn) {
    model.run(inputs);
    for (int round = 0; round < std::max(options.rounds / kTurns, 1); ++round) {
      begin = Clock::now();
      model.run(inputs);
      timing.passes.push_back(milliseconds_since(begin));
    }
    for (Peer& peer : peers) {
      peer.medians.push_back(deploy::time_onnx(*runtime, {peer.file}, inputs, ports, peer.session,
                                               kernels::num_threads())[0]);
    }
  }
  timing.workspace_bytes = model.workspace_bytes(options.batch);
  if (options.layers) time_nodes(model, inputs, kTurns, timing);
  if (runtime) version = runtime->version;
  if (options.json) {
    fmt::print("{}\n", json_of(options, graph, timing, peers, version).dump(2));
  } else {
    print_table(options, graph, timing, peers, version);
  }
  return kDone;
}

}  // namespace

Verb add_benchmark(CLI::App& app) {
  auto options = std::make_shared<BenchmarkArguments>();
  CLI::App* verb = app.add_subcommand(
      "benchmark", "Time an exported integer model, beside ONNX Runtime where a Python has it");
  verb->footer(
      "The interpreter of exact integer kernels runs model.safetensors, ONNX Runtime the "
      "model.onnx "
      "beside it, in turn, with as many threads. Inputs are normal numbers; times do not depend on "
      "them.");
  verb->add_option("model", options->model,
                   "A run's folder, whose export it takes, a model.safetensors, or the model.onnx "
                   "beside one")
      ->required();
  verb->add_option(
      "--beside", options->beside,
      "An ONNX file with the same inputs, such as the float model, to time as well; may "
      "be given several times");
  verb->add_option("--batch", options->batch, "Samples in a run (default: 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  verb->add_option("--rounds", options->rounds, "Runs to take the median of (default: 30)")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_flag("--layers", options->layers, "Each node's time, too");
  verb->add_flag("--json", options->json, "Print JSON instead of a table");
  add_python(*verb, options->python);
  add_threads(*verb);
  return [options](const Registries&) { return benchmark(*options); };
}

}  // namespace steelyard::cli
