// The kinds of targets.
#pragma once

#include <string>

#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {

enum class TargetKind {
  kClass,   // i64 [N]: the number of a class
  kValues,  // f32 [N, ...]: numbers
  kMarks,   // f32 [N, classes]: for each class, from 0 (no) to 1 (yes)
  kText,    // i64 [N, length]: numbers of characters, 1 to classes - 1, then -1 to the end
  kTokens   // i64 [N, length, 1]: at each position the number of a token
};

inline constexpr Word<TargetKind> kTargetKindWords[] = {
    {TargetKind::kClass, "class"}, {TargetKind::kValues, "values"}, {TargetKind::kMarks, "labels"},
    {TargetKind::kText, "text"},   {TargetKind::kTokens, "tokens"},
};
static_assert(is_complete<TargetKind>(kTargetKindWords, TargetKind::kTokens));
constexpr std::span<const Word<TargetKind>> words_of(TargetKind) { return kTargetKindWords; }

// The kind of targets of a dataset with so many classes (0: numbers).
inline TargetKind target_kind(const Tensor& targets, std::int64_t classes) {
  if (classes == 0) return TargetKind::kValues;
  if (targets.dtype() != DType::kI64) return TargetKind::kMarks;
  if (targets.rank() == 3 && targets.dim(2) == 1) return TargetKind::kTokens;
  return targets.rank() == 2 ? TargetKind::kText : TargetKind::kClass;
}

}  // namespace steelyard
