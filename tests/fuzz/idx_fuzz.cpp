// An IDX file, plain or gzip, read as images and as labels.
#include "steelyard/framework/data/idx.h"

#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

std::string big_endian(std::int64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string plain_images(const Tensor& images) {
  std::string bytes = big_endian(0x803);
  for (int i = 0; i < 3; ++i) bytes += big_endian(images.dim(i));
  return bytes.append(static_cast<const char*>(images.raw()),
                      static_cast<std::size_t>(images.bytes()));
}

std::string plain_labels(const Tensor& labels) {
  std::string bytes = big_endian(0x801) + big_endian(labels.dim(0));
  for (const std::int64_t label : labels.span<std::int64_t>()) {
    fuzz::require(label >= 0 && label < 256, "a label is no byte");
    bytes += static_cast<char>(label);
  }
  return bytes;
}

// A plain file is what its tensor writes; what gzip held is, once unpacked.
template <typename Read, typename Write>
void check(std::string_view bytes, const Read& read, const Write& write) {
  static fuzz::MemoryFile input;
  fuzz::accepted([&] {
    const std::string plain = write(read(input.holding(bytes)));
    fuzz::require(bytes.starts_with("\x1f\x8b") || plain == bytes, "other bytes than the file's");
    fuzz::require(write(read(input.holding(plain))) == plain, "unpacked, it reads otherwise");
  });
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  check(fuzz::view(data, size), read_idx_images, plain_images);
  check(fuzz::view(data, size), read_idx_labels, plain_labels);
  return 0;
}
