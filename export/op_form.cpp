#include "steelyard/export/op_form.h"

#include <algorithm>

#include "steelyard/export/ops/rows.h"  // IWYU pragma: keep: by the macro
#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {

// In the order of Op.
const std::vector<OpForm>& form_table() {
  static const std::vector<OpForm> kTable{
#define STEELYARD_OP(enumerator, row) row##_form(),
      STEELYARD_DEPLOYED_OPS(STEELYARD_OP)
#undef STEELYARD_OP
  };
  return kTable;
}

const OpForm& op_form(Op op) {
  return form_table()[static_cast<std::size_t>(op_info(op).op)];  // which throws for no operation
}

const OpForm* find_recorded(std::string_view operation) {
  for (const OpForm& form : form_table()) {
    if (std::count(form.recorded.begin(), form.recorded.end(), operation) > 0) return &form;
  }
  return nullptr;
}

}  // namespace steelyard::deploy
