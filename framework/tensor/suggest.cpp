#include "steelyard/framework/tensor/suggest.h"

#include <algorithm>
#include <numeric>

namespace steelyard {
namespace {

// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestWord = 128;  // the distance costs length times length
  constexpr std::size_t kShortestBeginning = 3;
  if (word.size() > kLongestWord) return "";
  std::string nearest;
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t shortest = std::min(word.size(), candidate.size());
    if (std::max(word.size(), candidate.size()) - shortest >= best) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty() || word.size() < kShortestBeginning) return nearest;
  const auto longer = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const std::string& c) { return c.starts_with(word); });
  return longer == candidates.end() ? "" : *longer;
}

}  // namespace steelyard
