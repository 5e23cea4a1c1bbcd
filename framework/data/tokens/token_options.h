// What a recipe says about files of tokens.
#pragma once

#include <cstdint>
#include <optional>

#include "steelyard/framework/tensor/words.h"

namespace steelyard {

// How a .bin file stores a token, little-endian.
enum class TokenType { kU16, kU32 };

inline constexpr Word<TokenType> kTokenTypeWords[] = {
    {TokenType::kU16, "u16"},
    {TokenType::kU32, "u32"},
};
static_assert(is_complete<TokenType>(kTokenTypeWords, TokenType::kU32));
constexpr std::span<const Word<TokenType>> words_of(TokenType) { return kTokenTypeWords; }

// What a sequence with the ends and beginnings of several documents is.
enum class TokenDocuments { kJoined, kSeparate };

inline constexpr Word<TokenDocuments> kTokenDocumentsWords[] = {
    {TokenDocuments::kJoined, "joined"},
    {TokenDocuments::kSeparate, "separate"},
};
static_assert(is_complete<TokenDocuments>(kTokenDocumentsWords, TokenDocuments::kSeparate));
constexpr std::span<const Word<TokenDocuments>> words_of(TokenDocuments) {
  return kTokenDocumentsWords;
}

struct TokenOptions {
  std::int64_t length = 512;         // of a sequence
  TokenType type = TokenType::kU16;  // of .bin files; .npy files say it
  TokenDocuments documents = TokenDocuments::kJoined;
  std::optional<std::int64_t> end = {};  // the token that ends a document; absent: the model's
  bool operator==(const TokenOptions& other) const = default;
};

}  // namespace steelyard
