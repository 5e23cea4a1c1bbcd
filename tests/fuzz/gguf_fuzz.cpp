// A GGUF file: what is read has the same metadata, tensors and bytes when it is written again, and
// equal contents give equal bytes.
#include "steelyard/framework/files/gguf/gguf.h"

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

void write_again(const GgufReader& from, const std::filesystem::path& to) {
  GgufWriter writer(to, from.header().entries, from.header().tensors);
  for (const GgufTensor& tensor : from.header().tensors) writer.write(*from.bytes_of(tensor));
  writer.commit();
}

void use_values(const GgufHeader& header) {
  for (const GgufEntry& entry : header.entries) {
    const auto texts = entry.value.texts();
    fuzz::require(!texts || texts->size() == entry.value.count, "texts are not as many as said");
    const auto whole = entry.value.whole_number();
    fuzz::require(!whole || entry.value.number().has_value(), "a whole number is no number");
  }
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  std::optional<GgufReader> reader;
  if (!fuzz::accepted([&] { reader.emplace(input.holding(fuzz::view(data, size))); })) return 0;
  use_values(reader->header());
  const std::filesystem::path once = fuzz::scratch_folder() / "once.gguf";
  const std::filesystem::path twice = fuzz::scratch_folder() / "twice.gguf";
  write_again(*reader, once);
  const GgufReader again(once);
  fuzz::require(again.header().entries == reader->header().entries, "metadata differs");
  fuzz::require(again.header().tensors == reader->header().tensors, "tensors differ");
  write_again(again, twice);
  fuzz::require(fuzz::read_file(once) == fuzz::read_file(twice), "equal contents, other bytes");
  return 0;
}
