// Runs deployed models on this processor and compares with what another one computed: with the
// runtime alone, which an emulator runs.
//
// usage: compare_deployed FOLDER. For each NAME.deployed.safetensors there, which write_onnx_cases
// wrote with NAME.values.safetensors: every value, for 1, 17 and all samples, with 1 and 3 threads.
// Values of graphs with operations in float are compared where they are codes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/instructions.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kEnding = ".deployed.safetensors";

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

void compare(const std::filesystem::path& folder, const std::string& name, Counts& counts) {
  const Interpreter model(load_graph(folder / (name + std::string(kEnding))), Engine::kFast);
  std::map<std::string, Tensor> expected;
  for (const NamedTensor& value :
       read_safetensors(folder / (name + ".values.safetensors")).tensors) {
    expected[value.name] = value.tensor;
  }
  const std::vector<Value>& values = model.graph().values;
  const Tensor& inputs = expected.at(values[model.graph().input].name);
  std::int64_t different = 0;
  for (const int threads : {1, 3}) {
    kernels::set_num_threads(threads);
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{17}, inputs.dim(0)}) {
      const std::int64_t samples = std::min(count, inputs.dim(0));
      const std::vector<Tensor> got = model.run_all(first_of(inputs, samples));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Tensor part = first_of(expected.at(values[i].name), samples);
        const std::int64_t of_value =
            got[i].shape() == part.shape() && got[i].dtype() == part.dtype()
                ? different_elements(got[i], part)
                : part.size();
        const bool codes = values[i].quantization.has_value();
        counts.elements += part.size();
        counts.codes += codes ? part.size() : 0;
        counts.different += of_value;
        counts.different_codes += codes ? of_value : 0;
        if (of_value > 0 && different == 0) {
          std::printf("%s: %s: %lld of %lld elements differ, %lld samples, %d threads%s\n",
                      name.c_str(), values[i].name.c_str(), static_cast<long long>(of_value),
                      static_cast<long long>(part.size()), static_cast<long long>(samples), threads,
                      codes ? "" : " (floats)");
        }
        different += of_value;
      }
    }
  }
  ++counts.models;
}

}  // namespace
}  // namespace steelyard::deploy

int main(int argc, char** argv) {
  using namespace steelyard;
  if (argc != 2) return std::fprintf(stderr, "usage: compare_deployed FOLDER\n"), 2;
  deploy::Counts counts;
  try {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
      const std::string file = entry.path().filename().string();
      if (file.ends_with(deploy::kEnding)) {
        names.push_back(file.substr(0, file.size() - deploy::kEnding.size()));
      }
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) deploy::compare(argv[1], name, counts);
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
