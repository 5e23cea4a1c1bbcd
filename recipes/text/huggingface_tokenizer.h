// The tokenizer in a folder of Hugging Face's transformers.
#pragma once

#include <cstdint>
#include <filesystem>

#include "steelyard/recipes/text/language_tokenizer.h"

namespace steelyard {

inline constexpr const char* kTokenizerFile = "tokenizer.json";

// The largest tokenizer.json that is read.
inline constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t{1} << 28;

// That of tokenizer.json: the token that its TemplateProcessing puts before a text, the one that
// config.json says ends it, and the bytes of tokens of byte-level BPE and of SentencePiece's.
// Throws InputError that names the file for what is none of these.
LanguageTokenizer huggingface_tokenizer(const std::filesystem::path& folder);

}  // namespace steelyard
