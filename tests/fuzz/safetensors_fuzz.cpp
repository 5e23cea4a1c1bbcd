// A safetensors file as it is, read by every reader of such files and into a module.
#include "steelyard/framework/files/safetensors.h"

#include "steelyard/framework/files/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

class Small : public Module {
 public:
  Small() {
    register_parameter("weight", Tensor::full({2, 3}, 0.5));
    register_buffer("mean", Tensor::full({2}, 0.25));
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Small"; }
};

// A module takes all of a file or nothing.
void check_loading_into_a_module(const TensorFile& file) {
  Small module;
  const bool loaded = fuzz::accepted([&] { load_into(module, file.tensors, "file"); });
  if (loaded) return;
  for (const NamedTensor& tensor : module_state(module)) {
    const double before = tensor.name == "weight" ? 0.5 : 0.25;
    for (const float value : tensor.tensor.span<float>()) {
      fuzz::require(value == before, "a refused file changed " + tensor.name);
    }
  }
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  const std::filesystem::path& path = input.holding(fuzz::view(data, size));
  TensorFile file;
  fuzz::accepted([&] { load_checkpoint(path); });
  fuzz::accepted([&] { load_tensors(path); });
  if (!fuzz::accepted([&] { file = read_safetensors(path); })) return 0;
  check_loading_into_a_module(file);
  const std::filesystem::path copy = fuzz::scratch_folder() / "copy.safetensors";
  write_safetensors(copy, file);
  const TensorFile again = read_safetensors(copy);
  std::vector<NamedTensor> ordered = safetensors_order(file.tensors);
  fuzz::require(fuzz::equal({ordered, file.metadata}, again),
                "a file that was written reads otherwise");
  return 0;
}
