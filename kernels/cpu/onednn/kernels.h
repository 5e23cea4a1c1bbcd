// The kernels that oneDNN computes; cpu/onednn_absent.cpp holds the same symbols, throwing.
#pragma once

#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard::kernels::onednn {

bool built();

// Tells oneDNN of instruction_limit(), which it hears only before its first computation.
void hold_to_limit();

// The bits of dnnl::cpu_isa that it uses.
unsigned instruction_set();

// True where oneDNN rounds operands to bf16 and multiplies them by one instruction.
bool has_bf16();
// True where oneDNN's int8 kernels accumulate exactly: with VNNI, and when DNNL_MAX_CPU_ISA lets
// oneDNN use it. Without, pairs of products saturate at int16 (docs/numerics.md).
bool has_exact_int8();

// As their families say, for non-empty shapes; kBf16 only where has_bf16(), integers only where
// has_exact_int8(). Code is int8_t or uint8_t.
void compute(const Matmul<float>& k);
void compute(const Conv2d<float>& k);
void compute(const Conv2dBackwardInput<float>& k);
void compute(const Conv2dBackwardWeight<float>& k);
template <typename Code>
void compute(const IntegerConv2d<Code>& k);

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
