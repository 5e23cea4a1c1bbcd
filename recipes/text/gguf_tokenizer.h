// The tokenizer that a GGUF file carries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/files/gguf.h"

namespace steelyard {

struct GgufTokenizer {
  std::string json;        // as the library `tokenizers` of Hugging Face reads it
  std::string begin, end;  // the tokens around a document; "" for none
  std::optional<std::int64_t> begin_number = {}, end_number = {};
  std::vector<std::string> bytes = {};  // that each token is of a text; none of a control token
};

// Byte-level BPE, as `tokenizer.ggml.model: gpt2` says, whose text is cut into words as one of
// `gpt-2`, `llama-bpe`, `qwen2` and `smollm` (`tokenizer.ggml.pre`) does. Throws InputError that
// names the file, the key, and what was expected, for others and for what does not fit.
// Sources: ggml's docs/gguf.md; the tokenizer.json of Llama 3, Qwen2 and SmolLM2.
GgufTokenizer gguf_tokenizer(const GgufReader& file);

}  // namespace steelyard
