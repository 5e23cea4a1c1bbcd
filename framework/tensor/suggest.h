// "Did you mean" for words that users type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace steelyard {

// The candidate with the smallest edit distance to `word`; where none is near (at most a third of
// the word's length away, at least 2), the first that begins with it; else "".
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace steelyard
