// Layers of language models that readers of exported folders compute as one.
#pragma once

#include <optional>
#include <string>

#include "steelyard/qat/prepare/plan.h"

namespace steelyard {

// A note where the layers that vLLM fuses, q_proj, k_proj and v_proj of an attention or gate_proj
// and up_proj, are not all quantized alike: it loads no such folder. Nothing where they are.
std::optional<std::string> note_of_fused_layers(const qat::Plan& plan);

}  // namespace steelyard
