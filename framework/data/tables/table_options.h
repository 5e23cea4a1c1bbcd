// What a recipe says about a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/words.h"

namespace steelyard {

enum class Delimiter { kComma, kSemicolon, kTab };

inline constexpr Word<Delimiter> kDelimiterWords[] = {
    {Delimiter::kComma, "comma"},
    {Delimiter::kSemicolon, "semicolon"},
    {Delimiter::kTab, "tab"},
};
static_assert(is_complete<Delimiter>(kDelimiterWords, Delimiter::kTab));
constexpr std::span<const Word<Delimiter>> words_of(Delimiter) { return kDelimiterWords; }

struct TableOptions {
  std::vector<std::string> target = {};      // one column of classes, or columns of numbers
  bool regression = false;                   // whether the targets are numbers
  std::vector<std::string> categories = {};  // columns of categories; the others are numbers
  std::vector<std::string> ignore = {};      // columns that are not used
  std::vector<std::string> missing = {};     // words that stand for a missing value
  std::optional<Delimiter> delimiter = {};   // absent: by the file's name
  bool operator==(const TableOptions& other) const = default;
};

}  // namespace steelyard
