// A GGUF file with a language model: what can be imported is written as text, read back and, where
// it is small, built and asked for the logits of a sequence.
#include "steelyard/import/language/gguf_decoder.h"
#include "tests/fuzz/imported_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  fuzz::accepted([&] {
    const GgufReader reader(input.holding(fuzz::view(data, size)));
    fuzz::check_decoder(imports::import_decoder(reader, fuzz::kLength));
  });
  return 0;
}
