// The largest value of each window: a code of its input.
#include <algorithm>
#include <cmath>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/runtime/ops/pools.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/windows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph&, const Node& node) {
  const auto& [height, width] = node.as<Pool2dGeometry>().kernel;
  check_window(node, height * width);
}

void reference(const Operands& op) {
  const Windows windows = windows_of(op, op.node.as<Pool2dGeometry>());
  const bool codes = op.output_value().quantization.has_value();
  const Tensor x = codes ? op.input(0) : real_operand(op, 0);
  for_each_window(
      op, windows,
      [&](std::int64_t i, std::int64_t image, std::int64_t oh, std::int64_t ow, std::int64_t c) {
        float largest = -INFINITY;
        windows.for_each_tap(oh, ow, [&](std::int64_t, std::int64_t pixel) {
          const std::int64_t at = (image + pixel) * windows.channels + c;
          largest =
              std::max(largest, codes ? static_cast<float>(code_at(x, at)) : x.data<float>()[at]);
        });
        if (codes) {
          set_code(op.output(), i, static_cast<std::int32_t>(largest));
        } else {
          op.output().data<float>()[i] = largest;
        }
      });
}

bool fast(const Operands& op) {
  if (!op.output_value().quantization) return false;
  visit_all_codes(op.output().dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::MaxPool<Code>{
        .shape = pool2d_shape("max_pool2d", op.input(0).shape(), op.node.as<Pool2dGeometry>()),
        .x = op.input(0).data<Code>(),
        .y = op.output().data<Code>(),
        .argmax = nullptr});
  });
  return true;
}

}  // namespace

OpInfo max_pool2d_op() {
  return {.op = Op::kMaxPool2d,
          .name = "max_pool2d",
          .keeps_codes = true,
          .options = Pool2dGeometry{},
          .shape = pool_shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
