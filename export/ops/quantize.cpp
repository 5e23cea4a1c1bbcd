// Floats to codes. ONNX has it as the quantizer of its output.
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {

OpForm quantize_form() {
  return {.op = Op::kQuantize, .recorded = {"fake_quantize"}, .in_c_header = true};
}

}  // namespace steelyard::deploy
