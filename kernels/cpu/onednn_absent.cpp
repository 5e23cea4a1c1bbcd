// Stands in for oneDNN in a build without it.
#include <stdexcept>

#include "steelyard/kernels/cpu/onednn/kernels.h"

namespace steelyard::kernels::onednn {
namespace {

[[noreturn]] void absent() { throw std::runtime_error("[backend] built without oneDNN"); }

}  // namespace

bool built() { return false; }
void hold_to_limit() {}
unsigned instruction_set() { return 0; }
bool has_bf16() { return false; }

void compute(const Matmul<float>&) { absent(); }
void compute(const Conv2d<float>&) { absent(); }
void compute(const Conv2dBackwardInput<float>&) { absent(); }
void compute(const Conv2dBackwardInput<float, BFloat16>&) { absent(); }
void compute(const Conv2dBackwardWeight<float>&) { absent(); }

}  // namespace steelyard::kernels::onednn
