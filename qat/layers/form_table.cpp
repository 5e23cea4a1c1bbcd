#include "steelyard/qat/layers/form_table.h"

#include <algorithm>

#include "steelyard/qat/layers/pass_through.h"
#include "steelyard/qat/layers/qat_add.h"
#include "steelyard/qat/layers/qat_arithmetic.h"
#include "steelyard/qat/layers/qat_concat.h"
#include "steelyard/qat/layers/qat_conv1d.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/layers/qat_conv_transpose2d.h"
#include "steelyard/qat/layers/qat_embedding.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/layers/qat_moves.h"
#include "steelyard/qat/layers/qat_mul.h"
#include "steelyard/qat/layers/qat_pool.h"
#include "steelyard/qat/layers/qat_reduce_mean.h"
#include "steelyard/qat/layers/qat_softmax.h"
#include "steelyard/qat/layers/qat_table_activation.h"
#include "steelyard/qat/layers/recurrent/qat_fixed_lstm.h"
#include "steelyard/qat/layers/recurrent/qat_lstm.h"

namespace steelyard::qat {
namespace {

bool has_profile(const QuantizedForm& form, Profile profile) {
  return form.profiles == FormProfiles::kAll ||
         (form.profiles == FormProfiles::kFixedPoint) == is_fixed_point(profile);
}

const QuantizedForm* find_in(const QuantizedForms& forms, const Module& module, Profile profile) {
  const auto found = std::find_if(forms.begin(), forms.end(), [&](const QuantizedForm& form) {
    if (!form.matches || !form.make) {
      throw std::invalid_argument("[quantized_form] " + form.type +
                                  ": expected the functions matches and make, got no " +
                                  (form.matches ? "make" : "matches"));
    }
    return has_profile(form, profile) && form.matches(module);
  });
  return found == forms.end() ? nullptr : &*found;
}

// With codes of up to 16 bits.
QuantizedForm wide(QuantizedForm form) {
  form.most_bits = 16;
  return form;
}

QuantizedForm passing_factors(QuantizedForm form) {
  form.passes_factors = true;
  return form;
}

QuantizedForm in_all_profiles(QuantizedForm form) {
  form.profiles = FormProfiles::kAll;
  return form;
}

}  // namespace

const QuantizedForms& builtin_forms() {
  static const QuantizedForms kForms = [] {
    QuantizedForms forms{
        in_all_profiles(wide(linear_form())),
        in_all_profiles(wide(conv2d_form())),
        wide(conv1d_form()),
        wide(conv_transpose2d_form()),
        embedding_form(),
        lstm_form(),
        fixed_lstm_form(),
        passing_factors(wide(max_pool1d_form())),
        in_all_profiles(passing_factors(wide(max_pool2d_form()))),
        in_all_profiles(passing_factors(wide(flatten_form()))),
        in_all_profiles(passing_factors(wide(dropout_form()))),
        in_all_profiles(passing_factors(wide(relu_form()))),
        in_all_profiles(wide(relu6_form())),
        in_all_profiles(wide(add_form())),
        wide(broadcast_add_form()),
        in_all_profiles(wide(cat_form())),
        passing_factors(wide(avg_pool1d_form())),
        passing_factors(wide(avg_pool2d_form())),
        passing_factors(fixed_avg_pool2d_form()),
        in_all_profiles(passing_factors(wide(global_avg_pool_form()))),
        in_all_profiles(softmax_form()),
        in_all_profiles(mul_form()),
        wide(pair_form()),
        wide(constant_form()),
        in_all_profiles(wide(permute_form())),
        in_all_profiles(wide(reshape_form())),
        in_all_profiles(wide(slice_form())),
        in_all_profiles(wide(pad_form())),
        in_all_profiles(wide(resize_form())),
        matmul_form(),
        wide(reduce_mean_form()),
    };
    for (QuantizedForm& form : table_activation_forms()) forms.push_back(std::move(form));
    return forms;
  }();
  return kForms;
}

const QuantizedForm* find_form(const QuantizedForms& own, const Module& module, Profile profile) {
  const QuantizedForm* form = find_in(own, module, profile);
  return form != nullptr ? form : find_in(builtin_forms(), module, profile);
}

}  // namespace steelyard::qat
