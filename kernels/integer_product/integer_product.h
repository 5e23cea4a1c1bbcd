// Exact integer products of quantized codes; kernels/requantize has what follows them.
//
// Activation codes are uint8_t or int8_t with one zero point; weight codes are int8_t with zero
// point 0. Accumulators are int32 and exact on every backend and device. Scales and zero points are
// pointers to one value, where the codes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {

// The largest |(x - zero_point) * w| of codes and zero points within these ranges, and at least 1:
// sums are cut into parts by it, also where one range has a single code.
constexpr std::int64_t largest_product(CodeRange x, CodeRange w) {
  const std::int64_t largest =
      std::int64_t{x.qmax - x.qmin} * (-w.qmin > w.qmax ? -w.qmin : w.qmax);
  return largest > 1 ? largest : 1;
}
// The largest product where weights may have zero points within their range, too.
constexpr std::int64_t largest_product(CodeRange x, CodeRange w, bool symmetric_weights) {
  const std::int32_t reach = w.qmax - w.qmin;
  return largest_product(x, symmetric_weights ? w : CodeRange{-reach, reach});
}
// The largest product of any codes of 8 bits.
inline constexpr std::int64_t kLargestProduct = largest_product({0, 255}, {-128, 127});
// How many products of at most `largest` int32 holds the sum of.
constexpr std::int64_t most_terms(std::int64_t largest) {
  return std::numeric_limits<std::int32_t>::max() / largest;
}

// Weights as the CPU's products read them, for products that differ in their inputs and batch
// alone: the first one, which may have no inputs, fills it. Later ones do not read `w`, and several
// threads may run them at once.
struct KeptWeights {
  // By which instructions, each a header of the family.
  enum class Form : std::uint8_t {
    kNone,
    kTaps,
    kTapPairs,
    kTapQuads,
    kPairs,
    kBytes,
    kQuads,
    kLong,
    kDot,
    kMatrix
  };
  Form form = Form::kNone;
  std::unique_ptr<std::byte[]> memory;
  // What kBytes leaves to a second product: where it begins in a window, the weights, and where the
  // parts of each vector of columns end.
  std::vector<std::int64_t> begins, ends;
  std::vector<std::int8_t> weights;
};

// Weights [O, C, taps] as a GPU's products read them, made with the codes (kernels/weight_codes):
// [O, taps, C], null where there is one tap, and the sum of each output's codes, null where neither
// is there. Of products without groups and a multiple of kOrderedChannels.
struct OrderedWeights {
  const std::int8_t *codes = nullptr;
  const std::int32_t *sums = nullptr;
};
inline constexpr std::int64_t kOrderedChannels = 8;

// acc[m, n] = sum_k (x[m, k] - zero_point) * w[n, k]. No product is larger than `largest`: small
// ones let more of them be added at a time. Throws std::invalid_argument when k of the largest
// could overflow int32. `backend` is the CPU's.
template <typename Code>
struct IntegerMatmul {
  std::int64_t m, n, k;
  const Code *x;
  const std::int32_t *zero_point;
  const std::int8_t *w;
  std::int32_t *acc;
  std::int64_t largest = kLargestProduct;
  Backend backend = default_backend();
  KeptWeights *kept = nullptr;  // used on the CPU alone
  OrderedWeights ordered = {};  // used on a GPU alone
  ProductWork work() const { return {.multiply_adds = m * n * k, .in_integers = true}; }
};

// acc[N, OH, OW, O] of x[N, H, W, C] and w[O, C/groups, KH, KW]; padding counts as real zero.
template <typename Code>
struct IntegerConv2d {
  Conv2dShape shape;
  const Code *x;
  const std::int32_t *zero_point;
  const std::int8_t *w;
  std::int32_t *acc;
  std::int64_t largest = kLargestProduct;
  Backend backend = default_backend();
  KeptWeights *kept = nullptr;  // used on the CPU alone
  OrderedWeights ordered = {};  // used on a GPU alone
  ProductWork work() const { return {.multiply_adds = shape.multiply_adds(), .in_integers = true}; }
};

// The codes and mask of `to` from the accumulators of `product`, which are the same. On the CPU the
// sums are requantized while they are in the cache, and acc is left as it was.
template <class Product, typename Out>
struct RequantizedProduct {
  Product product;
  RequantizeAccumulators<Out> to;
  ProductWork work() const { return product.work(); }
};

template <class Product>
using ProductAndCodes = KernelList<Product, RequantizedProduct<Product, std::int8_t>,
                                   RequantizedProduct<Product, std::uint8_t>>;
using IntegerProductKernels = JoinedKernels<
    ProductAndCodes<IntegerMatmul<std::int8_t>>, ProductAndCodes<IntegerMatmul<std::uint8_t>>,
    ProductAndCodes<IntegerConv2d<std::int8_t>>, ProductAndCodes<IntegerConv2d<std::uint8_t>>>;

}  // namespace steelyard::kernels
