// NumPy's arrays, alone or in an archive: every sample and target is read, and written again.
#include "steelyard/framework/data/arrays/npy.h"

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

constexpr std::int64_t kMostValues = 1 << 16;

std::string samples_of(const StoredArray& array) {
  const auto samples = array_samples(array);
  std::string all(static_cast<std::size_t>(samples->size() * sample_bytes(*samples)), '\0');
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    samples->read(i, nullptr, all.data() + i * sample_bytes(*samples));
  }
  return all;
}

std::string npy_of(const StoredArray& array, const std::string& values) {
  std::string shape;
  for (const std::int64_t extent : array.shape()) shape += std::to_string(extent) + ",";
  const bool bytes = array.kind() == StoredArray::Kind::kUnsigned && array.item_bytes() == 1;
  const std::string header = std::string("{'descr': '") + (bytes ? "|u1" : "<f4") +
                             "', 'fortran_order': False, 'shape': (" + shape + ")}\n";
  return "\x93NUMPY\x01" + std::string(1, '\0') + static_cast<char>(header.size() & 0xFF) +
         static_cast<char>(header.size() >> 8) + header + values;
}

void check(const StoredArray& array) {
  std::int64_t values = 1;
  for (const std::int64_t extent : array.shape()) {
    if (extent > kMostValues / std::max<std::int64_t>(values, 1)) return;
    values *= extent;
  }
  fuzz::accepted([&] { array_targets(array); });
  fuzz::accepted([&] {
    static fuzz::MemoryFile again;
    const std::string all = samples_of(array);
    const StoredArray written = NpyFile(again.holding(npy_of(array, all))).array("");
    fuzz::require(samples_of(written) == all, "written again it differs");
  });
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  fuzz::accepted([&] {
    NpyFile file(input.holding(fuzz::with_zip_checksums(fuzz::view(data, size))));
    for (const std::string& name : file.names()) {
      fuzz::accepted([&] { check(file.array(name)); });
    }
  });
  return 0;
}
