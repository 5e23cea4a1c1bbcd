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
  kText     // i64 [N, length]: numbers of characters, 1 to classes - 1, then -1 to the end
};

inline constexpr Word<TargetKind> kTargetKindWords[] = {
    {TargetKind::kClass, "class"},
    {TargetKind::kValues, "values"},
    {TargetKind::kMarks, "labels"},
    {TargetKind::kText, "text"},
};
static_assert(is_complete<TargetKind>(kTargetKindWords, TargetKind::kText));
constexpr std::span<const Word<TargetKind>> words_of(TargetKind) { return kTargetKindWords; }

// The kind of targets of a dataset with so many classes (0: numbers).
inline TargetKind target_kind(const Tensor& targets, std::int64_t classes) {
  if (classes == 0) return TargetKind::kValues;
  if (targets.dtype() != DType::kI64) return TargetKind::kMarks;
  return targets.rank() == 2 ? TargetKind::kText : TargetKind::kClass;
}

}  // namespace steelyard
