#include "steelyard/kernels/cpu/onednn/context.h"
#include "steelyard/kernels/cpu/onednn/describe.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"

namespace steelyard::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

void float32_matmul(const Matmul<float>& k) {
  const MatmulShape& s = k.shape;
  const std::int64_t lda = s.transpose_a ? s.m : s.k;
  const std::int64_t ldb = s.transpose_b ? s.k : s.n;
  const dnnl::status status = dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, 1.0F, k.a, lda, k.b, ldb, 0.0F, k.c, s.n);
  if (status != dnnl::status::success) {
    throw dnnl::error(static_cast<dnnl_status_t>(status), "[matmul] oneDNN's sgemm failed");
  }
}

// A product of operands that two reorders round to bf16, into the layouts that it likes best.
struct Bf16Product {
  dnnl::matmul product;
  std::optional<dnnl::reorder> round_a, round_b;
  memory::desc given_a, given_b, a, b, c, scratchpad;
};

Bf16Product make_bf16(const MatmulShape& s) {
  const memory::desc c({s.m, s.n}, Type::f32, Tag::ab);
  const memory::desc given_a({s.m, s.k}, Type::f32, s.transpose_a ? Tag::ba : Tag::ab);
  const memory::desc given_b({s.k, s.n}, Type::f32, s.transpose_b ? Tag::ba : Tag::ab);
  const memory::desc any_a({s.m, s.k}, Type::bf16, Tag::any);
  const memory::desc any_b({s.k, s.n}, Type::bf16, Tag::any);
  const auto desc = describe<dnnl::matmul>(any_a, any_b, c);
  return {dnnl::matmul(desc),
          reorder_between(given_a, desc.src_desc()),
          reorder_between(given_b, desc.weights_desc()),
          given_a,
          given_b,
          desc.src_desc(),
          desc.weights_desc(),
          c,
          desc.scratchpad_desc()};
}

}  // namespace

void compute(const Matmul<float>& k) {
  if (k.products.precision != MatmulPrecision::kBf16) return float32_matmul(k);
  static PrimitiveCache<Bf16Product> cache;
  const MatmulShape& s = k.shape;
  const auto op = cache.get({s.m, s.n, s.k, s.transpose_a, s.transpose_b, num_threads()},
                            [&] { return make_bf16(s); });
  op->product.execute(
      cpu_stream(),
      {{DNNL_ARG_SRC, reordered(op->round_a, op->given_a, op->a, k.a, Scratch::kSource)},
       {DNNL_ARG_WEIGHTS, reordered(op->round_b, op->given_b, op->b, k.b, Scratch::kWeights)},
       {DNNL_ARG_DST, wrap(op->c, k.c)},
       {DNNL_ARG_SCRATCHPAD, scratch_memory(Scratch::kScratchpad, op->scratchpad)}});
}

}  // namespace steelyard::kernels::onednn
