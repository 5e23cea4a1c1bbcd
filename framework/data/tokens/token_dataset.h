// Sequences of tokens, numbers of a vocabulary, each with the tokens that follow.
#pragma once

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// Numbers below this one are exact in f32, as samples hold them.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

// `request.path` is a file of tokens, one text after another: .bin as `request.tokens` says, or
// .npy of whole numbers [n]; or a folder with train and test, each in one of these forms. Sample i
// is f32 [length], tokens i * length and on, which stay in the file; its targets i64 [length, 1]
// are the tokens one place further, held in memory. Tokens behind the last whole sequence are left
// out. `classes` is the largest token's number and 1 more. Throws InputError that names the file.
DatasetSplits load_tokens(const DatasetRequest& request);

}  // namespace steelyard
