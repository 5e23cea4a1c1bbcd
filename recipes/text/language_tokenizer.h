// The tokenizer of a language model, whatever file it is in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

struct LanguageTokenizer {
  std::string json;        // as the library `tokenizers` of Hugging Face reads it
  std::string begin, end;  // the tokens around a document; "" for none
  std::optional<std::int64_t> begin_number = {};
  std::vector<std::int64_t> end_numbers = {};  // each of which ends a text; `end` is the first
  std::vector<std::string> bytes = {};  // that each token is of a text; none of a control token
  bool cuts = false;  // texts may be cut between lines: no word goes over such a place
};

// The bytes of a token's characters in byte-level BPE, which are UTF-8 of one or two bytes where
// they stand for one; others are themselves. Source: GPT-2's bytes_to_unicode().
std::string bytes_of_token(std::string_view token);

}  // namespace steelyard
