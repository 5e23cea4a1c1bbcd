// oneDNN multiplies unsigned codes by signed weights into int32, and nothing else: zero points,
// padding, signed codes and scales are handled here, where they are exact.
#include <cstring>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/onednn/context.h"
#include "steelyard/kernels/cpu/onednn/describe.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/integer_product/terms.h"

namespace steelyard::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

constexpr std::int64_t kGrain = 16384;

// One product with the reorder that brings the weights into its layout.
struct IntegerProduct {
  dnnl::primitive product;
  dnnl::reorder reorder;
  memory::desc source;
  memory::desc given_weights;
  memory::desc weights;
  memory::desc destination;
  memory::desc scratchpad;
};

template <typename PrimitiveDesc>
IntegerProduct make_product(const PrimitiveDesc& desc, const dnnl::primitive& product,
                            const memory::desc& given_weights) {
  const dnnl::reorder::primitive_desc reorder(cpu_engine(), given_weights, cpu_engine(),
                                              desc.weights_desc());
  return {
      product,         dnnl::reorder(reorder), desc.src_desc(), given_weights, desc.weights_desc(),
      desc.dst_desc(), desc.scratchpad_desc()};
}

void run(const IntegerProduct& op, const std::uint8_t* x, const std::int8_t* w, std::int32_t* acc) {
  memory weights = scratch_memory(Scratch::kWeights, op.weights);
  memory given = wrap(op.given_weights, w);
  op.reorder.execute(cpu_stream(), given, weights);
  op.product.execute(cpu_stream(),
                     {{DNNL_ARG_SRC, wrap(op.source, x)},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_DST, wrap(op.destination, acc)},
                      {DNNL_ARG_SCRATCHPAD, scratch_memory(Scratch::kScratchpad, op.scratchpad)}});
  cpu_stream().wait();
}

IntegerProduct make_matmul(std::int64_t m, std::int64_t n, std::int64_t k) {
  const memory::desc source({m, k}, Type::u8, Tag::ab);
  const memory::desc weights({k, n}, Type::s8, Tag::any);
  const memory::desc destination({m, n}, Type::s32, Tag::ab);
  const auto desc = describe<dnnl::matmul>(source, weights, destination);
  return make_product(desc, dnnl::matmul(desc), memory::desc({k, n}, Type::s8, Tag::ba));
}

IntegerProduct make_conv(const Conv2dShape& s) {
  const memory::desc weights = weights_desc(s, Type::s8);
  const ConvGeometry g(s);
  const auto desc = describe<dnnl::convolution_forward>(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      input_desc(s, Type::u8), memory::desc(dims_of(weights), Type::s8, Tag::any),
      output_desc(s, Type::s32), g.strides, g.dilation, g.padding, g.padding);
  return make_product(desc, dnnl::convolution_forward(desc), weights);
}

// Unsigned code of the same value: int8 codes and their zero point both move by 128.
template <typename Code>
std::int32_t unsigned_zero_point(std::int32_t zero_point) {
  return std::is_signed_v<Code> ? zero_point + 128 : zero_point;
}

template <typename Code>
void copy_unsigned(std::int64_t n, const Code* from, std::uint8_t* to) {
  if constexpr (std::is_signed_v<Code>) {
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(from[i]) ^ 0x80U);
    }
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n));
  }
}

// x as unsigned codes; a copy in scratch memory when it was signed.
template <typename Code>
const std::uint8_t* as_unsigned(std::int64_t n, const Code* x) {
  if constexpr (!std::is_signed_v<Code>) {
    return x;
  } else {
    auto* const copy =
        static_cast<std::uint8_t*>(scratch(Scratch::kSource, static_cast<std::size_t>(n)));
    parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      copy_unsigned(end - begin, x + begin, copy + begin);
    });
    return copy;
  }
}

// A copy of the images with a border of the code z, in scratch memory.
template <typename Code>
const std::uint8_t* pad_images(const Conv2dShape& s, const Code* x, std::int32_t zero_point) {
  const std::int64_t rows = s.in_h + 2 * s.pad_h;
  const std::int64_t border = s.pad_w * s.in_channels;
  const std::int64_t inner = s.in_w * s.in_channels;
  const std::int64_t row = inner + 2 * border;
  auto* const out = static_cast<std::uint8_t*>(
      scratch(Scratch::kSource, static_cast<std::size_t>(s.batch * rows * row)));
  parallel_for(s.batch * rows, kGrain / row + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t h = i % rows - s.pad_h;
      std::uint8_t* const to = out + i * row;
      if (h < 0 || h >= s.in_h) {
        std::memset(to, zero_point, static_cast<std::size_t>(row));
        continue;
      }
      std::memset(to, zero_point, static_cast<std::size_t>(border));
      copy_unsigned(inner, x + (i / rows * s.in_h + h) * inner, to + border);
      std::memset(to + border + inner, zero_point, static_cast<std::size_t>(border));
    }
  });
  return out;
}

Conv2dShape padded_shape(Conv2dShape s) {
  s.in_h += 2 * s.pad_h;
  s.in_w += 2 * s.pad_w;
  s.pad_h = s.pad_w = 0;
  return s;
}

// acc[pixel, o] -= z * sum_k w[o, k].
void subtract_zero_point(const Conv2dShape& s, std::int32_t zero_point, const std::int8_t* w,
                         std::int32_t* acc) {
  if (zero_point == 0) return;
  const std::int64_t outputs = s.out_channels, terms = s.weight_size() / outputs;
  std::vector<std::int32_t> shift(static_cast<std::size_t>(outputs), 0);
  for (std::int64_t o = 0; o < outputs; ++o) {
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < terms; ++k) sum += w[o * terms + k];
    shift[o] = sum * zero_point;
  }
  parallel_for(s.output_size() / outputs, kGrain / outputs + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   std::int32_t* const row = acc + r * outputs;
                   STEELYARD_VECTORIZE
                   for (std::int64_t o = 0; o < outputs; ++o) row[o] -= shift[o];
                 }
               });
}

}  // namespace

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  static PrimitiveCache<IntegerProduct> cache;
  const Conv2dShape& s = k.shape;
  const std::int32_t zero_point = unsigned_zero_point<Code>(*k.zero_point);
  // oneDNN pads with the code 0, which stands for the real value 0 only if z is 0.
  const bool pad = zero_point != 0 && (s.pad_h > 0 || s.pad_w > 0);
  const Conv2dShape used = pad ? padded_shape(s) : s;
  const std::uint8_t* const source =
      pad ? pad_images(s, k.x, zero_point) : as_unsigned(s.input_size(), k.x);
  const auto op = cache.get(conv_key(used, 0), [&] {
    return is_matrix_product(s) ? make_matmul(s.batch, s.out_channels, s.in_channels)
                                : make_conv(used);
  });
  run(*op, source, k.w, k.acc);
  subtract_zero_point(s, zero_point, k.w, k.acc);
}

template void compute(const IntegerConv2d<std::int8_t>&);
template void compute(const IntegerConv2d<std::uint8_t>&);

}  // namespace steelyard::kernels::onednn
