// Two bytes for the length of the tensors behind the header, then the header's JSON.
#include "steelyard/framework/files/safetensors_header.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

bool equal(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  const auto same = [](const SafetensorsEntry& x, const SafetensorsEntry& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.begin == y.begin &&
           x.end == y.end;
  };
  return a.metadata == b.metadata &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), same);
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  if (size < 2) return 0;
  const std::uint64_t data_bytes = data[0] + std::uint64_t{256} * data[1];
  const std::string_view json = fuzz::view(data + 2, size - 2);
  fuzz::accepted([&] {
    const SafetensorsHeader header = parse_safetensors_header("file", json, data_bytes);
    fuzz::require(
        header.entries.empty() ? data_bytes == 0 : header.entries.back().end == data_bytes,
        "the tensors do not end where the file does");
    const std::string written = encode_safetensors_header(header.entries, header.metadata);
    fuzz::require(written.size() % 8 == 0, "the tensors are not aligned");
    const auto again = parse_safetensors_header(
        "written", std::string_view(written).substr(kSafetensorsPrefixBytes), data_bytes);
    fuzz::require(equal(header, again), "a header that was written reads otherwise");
    fuzz::require(written == encode_safetensors_header(again.entries, again.metadata),
                  "equal headers were written otherwise");
  });
  return 0;
}
