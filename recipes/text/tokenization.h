// Text to the numbers of tokens that a language model is trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/export/python_program.h"
#include "steelyard/framework/data/tokens/token_options.h"
#include "steelyard/recipes/text/language_tokenizer.h"

namespace steelyard {

struct TokenizationOptions {
  std::filesystem::path tokenizer;  // a GGUF file, a folder of transformers, or a tokenizer.json
  std::vector<std::filesystem::path> texts;  // documents; of a .jsonl file each line is one
  std::string field = "text";                // of the objects of a .jsonl file
  // Tokens before and after each document, by their texts; "" for none. Without a value those of
  // the GGUF file or the folder, none of a tokenizer.json.
  std::optional<std::string> begin = std::nullopt;
  std::optional<std::string> end = std::nullopt;
  bool special = false;  // texts of control tokens within a document stand for these
};

struct Tokens {
  deploy::ScratchFile numbers;  // u32, one after another
  std::int64_t count = 0;
  std::int64_t documents = 0;
  std::int64_t vocabulary = 0;       // numbers are below
  std::string begin = {}, end = {};  // the tokens around a document; "" for none
};

// A Python with the library `tokenizers` of Hugging Face, as find_python() finds it.
std::optional<deploy::PythonProgram> find_tokenizers(const std::string& python = "");

// What to tell the user if there is none.
inline constexpr const char* kNoTokenizers =
    "no Python with tokenizers: scripts/python_env makes one and prints its path, for "
    "$STEELYARD_PYTHON";

// The tokens of the documents, in their order; a document without one gives nothing. Texts are
// UTF-8. Throws InputError that names the file, and the byte or the line.
Tokens tokenize(const deploy::PythonProgram& python, const TokenizationOptions& options);

// The numbers of the tokens of one text, UTF-8, by the tokenizer of a file, with the token that
// this puts before a document and none behind; `special` as above. Throws InputError for what
// is not UTF-8.
std::vector<std::int64_t> tokens_of_text(const deploy::PythonProgram& python,
                                         const LanguageTokenizer& tokenizer,
                                         const std::filesystem::path& source,
                                         const std::string& text, bool special);

// Writes `count` of the tokens from `first` on as a file that `data: {dataset: tokens}` reads.
// Throws as AtomicFile does.
void write_tokens(const Tokens& tokens, std::int64_t first, std::int64_t count, TokenType type,
                  const std::filesystem::path& path);

}  // namespace steelyard
