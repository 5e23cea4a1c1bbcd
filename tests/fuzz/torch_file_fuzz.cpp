// A file of torch.save(): what is read has the same tensors when it is written as safetensors.
#include "steelyard/framework/files/torch_file.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  TorchFile file;
  const std::string bytes = fuzz::with_zip_checksums(fuzz::view(data, size));
  if (!fuzz::accepted([&] { file = read_torch_file(input.holding(bytes)); })) return 0;
  for (const NamedTensor& t : file.tensors) {
    if (t.name == "__metadata__" || t.name.size() > 1000) return 0;  // safetensors' own limits
  }
  const std::filesystem::path again = fuzz::scratch_folder() / "again.safetensors";
  write_safetensors(again, {file.tensors, {}});
  TensorFile written = read_safetensors(again);
  TensorFile expected{safetensors_order(file.tensors), {}};
  fuzz::require(fuzz::equal(written, expected), "written as safetensors it differs");
  return 0;
}
