#include "steelyard/framework/train/token_head.h"

#include <algorithm>

#include "steelyard/framework/autograd/shapes_only.h"

namespace steelyard {
namespace {

constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 24;
// Two parts would not be worth the sums of the head's gradients.
constexpr std::int64_t kFewestParts = 3;

std::int64_t outputs_of_row(const Slot& head, const Variable& hidden) {
  const NoGradGuard no_grad;
  const ShapesOnlyGuard shapes_only;
  const Shape row{1, hidden.shape().back()};
  return head(Variable(Tensor::zeros(row, hidden.dtype(), hidden.value().device())), {}).dim(-1);
}

}  // namespace

HeadedModel* token_model(Module& model, const Loss& loss) {
  auto* const headed = dynamic_cast<HeadedModel*>(&model);
  const bool fits = loss.type == Loss::Type::kTokenCrossEntropy && headed != nullptr &&
                    headed->head() != nullptr &&
                    dynamic_cast<const RowLayer*>(&**headed->head()) != nullptr;
  return fits ? headed : nullptr;
}

std::int64_t tokens_at_once(const Slot& head, const Variable& hidden, std::int64_t tokens) {
  constexpr std::int64_t kMultiple = 16;
  if (hidden.value().size() != tokens * hidden.dim(-1)) return tokens;
  const std::int64_t rows = kLogitsAtOnce / outputs_of_row(head, hidden);
  const std::int64_t at_once = std::max(kMultiple, rows / kMultiple * kMultiple);
  return tokens > (kFewestParts - 1) * at_once ? at_once : tokens;
}

}  // namespace steelyard
