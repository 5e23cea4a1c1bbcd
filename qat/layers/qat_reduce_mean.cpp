#include "steelyard/qat/layers/qat_reduce_mean.h"

#include <array>
#include <utility>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/qat/layers/code_ops.h"
#include "steelyard/qat/layers/qat_moves.h"

namespace steelyard::qat {
namespace {

// In the same order of elements, where that is another shape.
Variable as_shape(const Variable& x, const Shape& shape) {
  return x.shape() == shape ? x : reshape_codes(x, shape);
}

// Whether dimensions lie next to each other, without the batch's.
bool lie_together(const std::vector<std::int64_t>& axes) {
  bool together = !axes.empty() && axes.front() > 0;
  for (std::size_t i = 1; i < axes.size(); ++i) together &= axes[i] == axes[i - 1] + 1;
  return together;
}

}  // namespace

QatReduceMean::QatReduceMean(std::vector<std::int64_t> axes, bool keep,
                             const QuantizerConfig& output)
    : axes_(std::move(axes)), keep_(keep), output_(std::make_shared<ActivationQuantizer>(output)) {
  if (!lie_together(axes_)) {
    ops::fail("quantized_mean", "dimensions next to each other, without the batch's",
              shape_string(axes_));
  }
  register_child("output_quantizer", output_);
}

Variable QatReduceMean::forward(const Variable& x, ForwardContext& context) {
  if (!quantized(x) || !output_->quantizing()) {
    const ReducedAxes reduced = keep_ ? ReducedAxes::kKeep : ReducedAxes::kDrop;
    return output_->forward(mean(x, axes_, reduced), context);
  }
  const Shape& in = x.shape();
  ops::marked_axes("quantized_mean", in, axes_);  // throws for one that is not there
  const auto first = static_cast<std::size_t>(axes_.front());
  const auto last = static_cast<std::size_t>(axes_.back());
  const bool of_image = in.size() == 4 && last < 3;
  Shape image = in;
  std::array<std::int64_t, 2> window{1, 1};
  if (of_image) {
    for (std::size_t axis = first; axis <= last; ++axis) window[axis - 1] = in[axis];
  } else {  // [N, before, averaged, after]
    image = {in[0], 1, 1, 1};
    for (std::size_t axis = 1; axis < in.size(); ++axis) {
      image[axis < first ? 1 : axis <= last ? 2 : 3] *= in[axis];
    }
    window[1] = image[2];
  }
  const Variable y =
      avg_pool2d_codes(as_shape(x, image), {.kernel = window, .stride = {1, 1}, .padding = {0, 0}},
                       *output_, context);
  Shape out;
  for (std::size_t axis = 0; axis < in.size(); ++axis) {
    const bool averaged = axis >= first && axis <= last;
    if (!averaged || keep_) out.push_back(averaged ? 1 : in[axis]);
  }
  return as_shape(y, out);
}

QuantizedForm reduce_mean_form() {
  QuantizedForm form;
  form.type = "ReduceMean";
  form.kind = FormKind::kComputes;
  form.matches = [](const Module& module) {
    const auto* reduce = dynamic_cast<const Reduce*>(&module);
    return reduce != nullptr && reduce->reduction() == Reduction::kMean;
  };
  form.make = [](const Module& module, const FormRequest& request) -> std::shared_ptr<Module> {
    const auto& reduce = dynamic_cast<const Reduce&>(module);
    return std::make_shared<QatReduceMean>(reduce.axes(), reduce.keep(), request.output);
  };
  form.note = "of the integer average";
  form.refusal = [](const Module& module, const QuantizerConfig&) -> std::string {
    return lie_together(dynamic_cast<const Reduce&>(module).axes())
               ? ""
               : "a mean over dimensions that do not lie next to each other";
  };
  return form;
}

}  // namespace steelyard::qat
