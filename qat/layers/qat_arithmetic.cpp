#include "steelyard/qat/layers/qat_arithmetic.h"

namespace steelyard::qat {
namespace {

constexpr const char* kNote = "in float between quantizers";

}  // namespace

QatPairArithmetic::QatPairArithmetic(Arithmetic operation, const QuantizerConfig& output)
    : PairArithmetic(operation), output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatPairArithmetic::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  return output_->forward(PairArithmetic::join(inputs, context), context);
}

QatConstantArithmetic::QatConstantArithmetic(const ConstantArithmetic& of,
                                             const QuantizerConfig& output)
    : ConstantArithmetic(of.options(), of.value()),
      output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatConstantArithmetic::forward(const Variable& x, ForwardContext& context) {
  return output_->forward(ConstantArithmetic::forward(x, context), context);
}

QuantizedForm pair_form() {
  QuantizedForm form = form_of<PairArithmetic>(
      "Sub, Div, Max or Min", FormKind::kJoins,
      [](const PairArithmetic& pair, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatPairArithmetic>(pair.operation(), request.output);
      });
  form.note = kNote;
  form.float_operands = SIZE_MAX;
  form.reader = "arithmetic in float reads it";
  return form;
}

QuantizedForm constant_form() {
  QuantizedForm form = form_of<ConstantArithmetic>(
      "arithmetic with a constant", FormKind::kComputes,
      [](const ConstantArithmetic& of, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatConstantArithmetic>(of, request.output);
      });
  form.note = kNote;
  form.continues = true;
  return form;
}

}  // namespace steelyard::qat
