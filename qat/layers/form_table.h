// The table of quantized forms.
#pragma once

#include "steelyard/qat/forms/quantized_form.h"

namespace steelyard::qat {

// The library's own rows.
const QuantizedForms& builtin_forms();

// The row for a module in a profile, `own` rows before the library's; null where it has none.
const QuantizedForm* find_form(const QuantizedForms& own, const Module& module,
                               Profile profile = Profile::kOrt);

}  // namespace steelyard::qat
