// Two bytes that say where to damage the file, the header's JSON, NUL, the tensors' bytes: sealed
// as a native checkpoint, which reads back equal and shows the damage.
#include "steelyard/framework/files/checkpoint.h"

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

void check_damage(const std::filesystem::path& path, std::string bytes, std::size_t at,
                  unsigned bit) {
  bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << bit));
  static fuzz::MemoryFile damaged;
  const bool read = fuzz::accepted([&] { load_checkpoint(damaged.holding(bytes)); });
  fuzz::require(!read, "bit " + std::to_string(bit) + " of byte " + std::to_string(at) + " of " +
                           path.string() + " is not covered by a checksum");
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  if (size < 2) return 0;
  const auto parts = fuzz::split(fuzz::view(data + 2, size - 2), 2);
  static fuzz::MemoryFile input;
  TensorFile file;
  if (!fuzz::accepted([&] {
        file = read_safetensors(input.holding(fuzz::safetensors_bytes(parts[0], parts[1])));
      })) {
    return 0;
  }
  const std::filesystem::path path = fuzz::scratch_folder() / "sealed.safetensors";
  try {
    save_checkpoint(path, file);
  } catch (const std::invalid_argument& error) {  // reserved keys
    fuzz::require_one_line(error.what());
    return 0;
  }
  const Checkpoint again = load_checkpoint(path);
  fuzz::require(fuzz::equal({safetensors_order(file.tensors), file.metadata}, again),
                "a checkpoint that was written reads otherwise");
  fuzz::require(fuzz::equal(load_tensors(path), again), "load_tensors() reads otherwise");
  const std::string bytes = fuzz::read_file(path);
  const std::size_t place = data[0] + std::size_t{256} * data[1];
  check_damage(path, bytes, place / 8 % bytes.size(), place % 8);
  return 0;
}
