#include "steelyard/qat/quantized_form.h"

#include <algorithm>

#include "steelyard/qat/pass_through.h"
#include "steelyard/qat/qat_add.h"
#include "steelyard/qat/qat_concat.h"
#include "steelyard/qat/qat_conv2d.h"
#include "steelyard/qat/qat_linear.h"
#include "steelyard/qat/qat_pool.h"
#include "steelyard/qat/qat_smooth.h"
#include "steelyard/qat/qat_softmax.h"

namespace steelyard::qat {
namespace {

const QuantizedForm* find_in(const QuantizedForms& forms, const Module& module) {
  const auto found = std::find_if(forms.begin(), forms.end(),
                                  [&](const QuantizedForm& form) { return form.matches(module); });
  return found == forms.end() ? nullptr : &*found;
}

}  // namespace

const QuantizedForms& builtin_forms() {
  static const QuantizedForms kForms{
      linear_form(),  conv2d_form(),     max_pool2d_form(),
      flatten_form(), dropout_form(),    relu_form(),
      relu6_form(),   avg_pool2d_form(), global_avg_pool_form(),
      sigmoid_form(), hardswish_form(),  softmax_form(),
      add_form(),     cat_form(),
  };
  return kForms;
}

const QuantizedForm* find_form(const QuantizedForms& own, const Module& module) {
  const QuantizedForm* form = find_in(own, module);
  return form != nullptr ? form : find_in(builtin_forms(), module);
}

}  // namespace steelyard::qat
