// The kernels that oneDNN computes; cpu/onednn_absent.cpp holds the same symbols, throwing.
#pragma once

#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/matmul/matmul.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::onednn {

bool built();

// Tells oneDNN of instruction_limit(), which it hears only before its first computation.
void hold_to_limit();

// The bits of dnnl::cpu_isa that it uses.
unsigned instruction_set();

// True where oneDNN rounds operands to bf16 and multiplies them by one instruction.
bool has_bf16();

// As their families say, for non-empty shapes; kBf16 only where has_bf16().
void compute(const Matmul<float>& k);
void compute(const Conv2d<float>& k);
void compute(const Conv2dBackwardInput<float>& k);            // kFloat32, whatever k says
void compute(const Conv2dBackwardInput<float, BFloat16>& k);  // kBf16, whatever k says
void compute(const Conv2dBackwardWeight<float>& k);

// Computes a float product that is oneDNN's; false where it is not: by its backend or its type.
template <class K>
bool computes(const K& k) {
  if constexpr (requires { onednn::compute(k); }) {
    if (k.products.backend == Backend::kOneDnn) {
      onednn::compute(k);
      return true;
    }
  }
  return false;
}

}  // namespace steelyard::kernels::onednn
