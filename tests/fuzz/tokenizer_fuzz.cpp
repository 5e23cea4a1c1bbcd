// A folder's tokenizer.json: what is accepted has bytes for each token.
#include "steelyard/recipes/text/huggingface_tokenizer.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const std::filesystem::path& folder = fuzz::scratch_folder();
  fuzz::write_file(folder / "config.json", R"({"eos_token_id": 1})");
  fuzz::write_file(folder / "tokenizer.json", fuzz::view(data, size));
  fuzz::accepted([&] {
    const LanguageTokenizer made = huggingface_tokenizer(folder);
    const std::int64_t begin = made.begin_number.value_or(0);
    fuzz::require(begin >= 0 && begin < std::ssize(made.bytes), "a first token that is none");
    fuzz::require(made.begin.empty() || made.begin_number, "a first token without a number");
  });
  return 0;
}
