// The tokenizer that a GGUF file carries.
#pragma once

#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/recipes/text/language_tokenizer.h"

namespace steelyard {

// Byte-level BPE, as `tokenizer.ggml.model: gpt2` says, whose text is cut into words as one of
// `gpt-2`, `llama-bpe`, `qwen2` and `smollm` (`tokenizer.ggml.pre`) does. Throws InputError that
// names the file, the key, and what was expected, for others and for what does not fit.
// Sources: ggml's docs/gguf.md; the tokenizer.json of Llama 3, Qwen2 and SmolLM2.
LanguageTokenizer gguf_tokenizer(const GgufReader& file);

}  // namespace steelyard
