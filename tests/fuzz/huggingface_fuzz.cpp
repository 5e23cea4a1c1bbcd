// A folder of transformers, as JSON of config.json, JSON of the header of model.safetensors and its
// tensors' bytes, separated by NUL bytes: what can be imported is written as text, read back and,
// where it is small, built and asked for the logits of a sequence.
#include "steelyard/import/language/huggingface_decoder.h"
#include "tests/fuzz/imported_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const auto parts = fuzz::split(fuzz::view(data, size), 3);
  const std::filesystem::path& folder = fuzz::scratch_folder();
  fuzz::write_file(folder / "config.json", parts[0]);
  fuzz::write_file(folder / "model.safetensors", fuzz::safetensors_bytes(parts[1], parts[2]));
  fuzz::accepted([&] { fuzz::check_decoder(imports::import_huggingface(folder, fuzz::kLength)); });
  fuzz::accepted([&] { imports::ends_of_text(folder); });
  return 0;
}
