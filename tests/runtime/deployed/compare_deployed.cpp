// Runs deployed models on this processor, with the runtime alone, and compares with what another
// processor computed, which an emulator needs, or with the reference interpreter.
//
// usage: compare_deployed FOLDER [CODES [SEED]]. For each NAME.deployed.safetensors there, which
// write_onnx_cases wrote with NAME.values.safetensors:
//   without CODES, every value that the file has, for 1, 17 and all samples, with 1 and 3 threads;
//   with it, every value of Engine::kReference, for batches of 1 to 17, with 1 to 3 threads, over
//   random and extreme inputs, until each model that has codes has compared so many.
// Values of graphs with operations in float are compared where they are codes.
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>

#include "deployed_models.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/instructions.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kMostBatch = 17;

// The first samples of a tensor [N, ...].
Tensor first_of(const Tensor& all, std::int64_t count) {
  Shape shape = all.shape();
  shape[0] = count;
  const Tensor some = Tensor::empty(shape, all.dtype());
  std::memcpy(some.raw(), all.raw(), static_cast<std::size_t>(some.bytes()));
  return some;
}

std::int64_t different_elements(const Tensor& got, const Tensor& expected) {
  const std::size_t size = dtype_bytes(got.dtype());
  const auto* a = static_cast<const char*>(got.raw());
  const auto* b = static_cast<const char*>(expected.raw());
  if (std::memcmp(a, b, static_cast<std::size_t>(got.bytes())) == 0) return 0;
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < got.size(); ++i, a += size, b += size) {
    different += std::memcmp(a, b, size) == 0 ? 0 : 1;
  }
  return different;
}

struct Counts {
  std::int64_t models = 0, elements = 0, codes = 0;
  std::int64_t different = 0, different_codes = 0;
};

// Of one model, whose first difference is printed.
class Comparison {
 public:
  Comparison(const std::string& name, const std::vector<Value>& values, Counts& counts)
      : name_(name), values_(values), counts_(counts) {}

  // `expected`: value i's, of as many samples as `got`, which `threads` threads computed.
  template <typename F>
  void add(const std::vector<Tensor>& got, std::int64_t samples, int threads, const F& expected) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Tensor part = expected(i);
      const std::int64_t of_value = got[i].shape() == part.shape() && got[i].dtype() == part.dtype()
                                        ? different_elements(got[i], part)
                                        : part.size();
      const bool codes = values_[i].quantization.has_value();
      counts_.elements += part.size();
      counts_.codes += codes ? part.size() : 0;
      counts_.different += of_value;
      counts_.different_codes += codes ? of_value : 0;
      if (of_value > 0 && !told_) {
        std::printf("%s: %s: %lld of %lld elements differ, %lld samples, %d threads%s\n",
                    name_.c_str(), values_[i].name.c_str(), static_cast<long long>(of_value),
                    static_cast<long long>(part.size()), static_cast<long long>(samples), threads,
                    codes ? "" : " (floats)");
      }
      told_ = told_ || of_value > 0;
    }
  }

 private:
  const std::string& name_;
  const std::vector<Value>& values_;
  Counts& counts_;
  bool told_ = false;
};

void compare_with_file(const std::filesystem::path& folder, const std::string& name,
                       Counts& counts) {
  const Interpreter model(load_graph(deployed_file(folder, name)), Engine::kLean);
  std::map<std::string, Tensor> expected;
  for (const NamedTensor& value :
       read_safetensors(folder / (name + ".values.safetensors")).tensors) {
    expected[value.name] = value.tensor;
  }
  const std::vector<Value>& values = model.graph().values;
  const Tensor& inputs = expected.at(values[model.graph().input].name);
  Comparison comparison(name, values, counts);
  for (const int threads : {1, 3}) {
    kernels::set_num_threads(threads);
    for (const std::int64_t count : {std::int64_t{1}, kMostBatch, inputs.dim(0)}) {
      const std::int64_t samples = std::min(count, inputs.dim(0));
      comparison.add(model.run_all(first_of(inputs, samples)), samples, threads,
                     [&](std::size_t i) { return first_of(expected.at(values[i].name), samples); });
    }
  }
}

void compare_with_reference(const std::filesystem::path& folder, const std::string& name,
                            std::int64_t codes, std::size_t seed, Counts& counts) {
  const Graph graph = load_graph(deployed_file(folder, name));
  const Interpreter fast(graph, Engine::kLean), reference(graph, Engine::kReference);
  const bool has_codes = std::any_of(graph.values.begin(), graph.values.end(),
                                     [](const Value& value) { return !!value.quantization; });
  Comparison comparison(name, graph.values, counts);
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name) + seed));
  const std::int64_t end = counts.codes + codes;
  do {
    for (std::int64_t batch = 1; batch <= kMostBatch; ++batch) {
      const auto kind = static_cast<Inputs>(random() % static_cast<unsigned>(Inputs::kKinds));
      const Tensor x = deployed_inputs(graph, batch, kind, random);
      kernels::set_num_threads(1);
      const std::vector<Tensor> expected = reference.run_all(x);
      for (int threads = 1; threads <= 3; ++threads) {
        kernels::set_num_threads(threads);
        comparison.add(fast.run_all(x), batch, threads, [&](std::size_t i) { return expected[i]; });
      }
    }
  } while (has_codes && counts.codes < end);
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  using namespace steelyard;
  if (argc < 2 || argc > 4) {
    return std::fprintf(stderr, "usage: compare_deployed FOLDER [CODES [SEED]]\n"), 2;
  }
  deploy::Counts counts;
  try {
    const auto codes = argc > 2 ? static_cast<std::int64_t>(std::stod(argv[2])) : 0;
    const std::size_t seed = argc > 3 ? std::stoul(argv[3]) : 0;
    for (const std::string& name : deploy::deployed_names(argv[1])) {
      if (argc == 2) {
        deploy::compare_with_file(argv[1], name, counts);
      } else {
        deploy::compare_with_reference(argv[1], name, codes, seed, counts);
      }
      ++counts.models;
    }
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "error: %s\n", error.what()), 1;
  }
  std::printf("%s: %lld models, %lld of %lld codes differ, %lld of %lld floats\n",
              kernels::instructions_text().c_str(), static_cast<long long>(counts.models),
              static_cast<long long>(counts.different_codes), static_cast<long long>(counts.codes),
              static_cast<long long>(counts.different - counts.different_codes),
              static_cast<long long>(counts.elements - counts.codes));
  return counts.models > 0 && counts.different_codes == 0 ? 0 : 1;
}
