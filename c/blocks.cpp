// Blocks of ggml's types on the caller's memory.
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "steelyard/c/context.h"
#include "steelyard/c/views.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard::c {
namespace {

using namespace kernels;

// What a caller names a format: ggml's word for the type, or one for another way to its blocks.
template <class Format>
constexpr std::string_view name_of() {
  if (std::is_same_v<Format, InputBlocks>) return "inputs";
  if (std::is_same_v<Format, SearchedQ4_0Blocks>) return "q4_0_searched";
  if (std::is_same_v<Format, SearchedIq4NlBlocks>) return "iq4_nl_searched";
  if (std::is_same_v<Format, SearchedMxfp4Blocks>) return "mxfp4_searched";
  return ggml_type(Format::kType).name;
}

// The format whose decoder reads these blocks.
template <class Format>
struct StoredAs {
  using type = Format;
};
template <>
struct StoredAs<InputBlocks> {
  using type = Q8_0Blocks;
};
template <>
struct StoredAs<SearchedQ4_0Blocks> {
  using type = Q4_0Blocks;
};
template <>
struct StoredAs<SearchedIq4NlBlocks> {
  using type = Iq4NlBlocks;
};
template <>
struct StoredAs<SearchedMxfp4Blocks> {
  using type = Mxfp4Blocks;
};

// Calls use(a null pointer of the format) for the one of the list that has this name.
template <class... Formats, class Use>
void with_format(const char* type, const char* others, const Use& use) {
  const std::string_view name = &required(type, "type");
  bool found = false;
  const auto try_one = [&](auto* format) {
    using Format = std::remove_pointer_t<decltype(format)>;
    if (found || name != name_of<Format>()) return;
    found = true;
    use(format);
  };
  (try_one(static_cast<Formats*>(nullptr)), ...);
  if (!found) {
    throw std::invalid_argument(std::string("type: expected ") + others + ", got '" +
                                printable(std::string(name)) + "'");
  }
}

constexpr const char* kMadeTypes =
    "f32, f16, bf16, q4_0, q4_0_searched, q4_1, q8_0, inputs, iq4_nl, iq4_nl_searched, mxfp4, "
    "mxfp4_searched or q2_0";
constexpr const char* kStoredTypes =
    "f32, f16, bf16, q4_0, q4_0_searched, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, "
    "inputs, iq4_nl, iq4_nl_searched, mxfp4, mxfp4_searched or q2_0";

// Formats of which blocks are made, and further ones that are decoded.
template <class... Further, class Use>
void with_any_format(const char* type, const char* types, const Use& use) {
  with_format<F32Blocks, F16Blocks, BF16Blocks, Q4_0Blocks, SearchedQ4_0Blocks, Q4_1Blocks,
              Q8_0Blocks, InputBlocks, Iq4NlBlocks, SearchedIq4NlBlocks, Mxfp4Blocks,
              SearchedMxfp4Blocks, Q2_0Blocks, Further...>(type, types, use);
}

template <class Use>
void with_made_format(const char* type, const Use& use) {
  with_any_format(type, kMadeTypes, use);
}

template <class Use>
void with_stored_format(const char* type, const Use& use) {
  with_any_format<Q5_0Blocks, Q5_1Blocks, Q2_KBlocks, Q3_KBlocks, Q4_KBlocks, Q5_KBlocks,
                  Q6_KBlocks>(type, kStoredTypes, use);
}

View matrix_of(const DLTensor* tensor, const char* name, DType dtype) {
  View view = view_of(tensor, name);
  require_dtype(view, name, {dtype});
  require_dense(view, name);
  if (view.shape.size() != 2) {
    throw std::invalid_argument(std::string(name) + ": expected two dimensions, got the shape " +
                                shape_string(view.shape));
  }
  return view;
}

// The blocks of a row of values.
template <class Format>
std::int64_t blocks_of(const View& values, const char* name) {
  if (values.shape[1] % Format::kElements == 0) return values.shape[1] / Format::kElements;
  throw std::invalid_argument(std::string(name) + ": expected rows of whole blocks of " +
                              std::to_string(Format::kElements) + ", got the shape " +
                              shape_string(values.shape));
}

void require_apart(const View& read, const char* read_name, const View& written,
                   const char* written_name) {
  if (overlap(read, written)) {
    throw std::invalid_argument(std::string("expected ") + read_name + " and " + written_name +
                                " apart, got memory that overlaps");
  }
}

template <typename T>
T* elements_of(const View& view) {
  return reinterpret_cast<T*>(view.data);
}

template <class Format>
void encode(const View& values, const DLTensor* scales, const View& blocks, void* stream) {
  const std::int64_t in_row = blocks_of<Format>(values, "values");
  require_shape(blocks, "blocks", {values.shape[0], in_row * Format::kBytes});
  const float* given = nullptr;
  if (scales != nullptr) {
    if (!requires(float* x, std::uint8_t* to) { Format::encode_with(x, 0.0F, to); } ||
        name_of<Format>() != ggml_type(Format::kType).name) {
      throw std::invalid_argument("scales: this type takes none");
    }
    const View view = matrix_of(scales, "scales", DType::kF32);
    require_shape(view, "scales", {values.shape[0], in_row});
    require_on(view, "scales", values.device);
    require_apart(view, "scales", blocks, "blocks");
    given = elements_of<const float>(view);
  }
  in_order_of(values.device, stream, [&] {
    run(values.device, EncodeBlocks<Format>{.n = values.shape[0] * in_row,
                                            .x = elements_of<const float>(values),
                                            .scales = given,
                                            .blocks = elements_of<std::uint8_t>(blocks)});
  });
}

template <class Format>
void decode(const View& blocks, const View& values, void* stream) {
  const std::int64_t in_row = blocks_of<Format>(values, "values");
  require_shape(blocks, "blocks", {values.shape[0], in_row * Format::kBytes});
  in_order_of(values.device, stream, [&] {
    run(values.device, DecodeBlocks<Format>{.n = values.shape[0] * in_row,
                                            .blocks = elements_of<const std::uint8_t>(blocks),
                                            .x = elements_of<float>(values)});
  });
}

template <class Format>
void multiply(const View& inputs, const View& weights, const View& y, void* stream) {
  const std::int64_t terms = inputs.shape[1] / InputBlocks::kBytes * InputBlocks::kElements;
  const BlockProduct<Format> product{.rows = y.shape[0],
                                     .columns = y.shape[1],
                                     .terms = terms,
                                     .inputs = elements_of<const std::uint8_t>(inputs),
                                     .weights = elements_of<const std::uint8_t>(weights),
                                     .y = elements_of<float>(y)};
  if (terms % Format::kElements != 0) {
    throw std::invalid_argument("inputs: expected rows of whole blocks of " +
                                std::to_string(Format::kElements) + ", got rows of " +
                                std::to_string(terms));
  }
  require_shape(inputs, "inputs", {y.shape[0], product.input_bytes()});
  require_shape(weights, "weights", {y.shape[1], product.weight_bytes()});
  in_order_of(y.device, stream, [&] { run(y.device, product); });
}

}  // namespace
}  // namespace steelyard::c

using namespace steelyard;

steelyard_status steelyard_blocks_layout(steelyard_context* context, const char* type,
                                         int64_t* elements, int64_t* bytes) {
  return c::call(context, __func__, [&] {
    c::required(elements, "elements");
    c::required(bytes, "bytes");
    c::with_stored_format(type, [&](auto* format) {
      *elements = std::remove_pointer_t<decltype(format)>::kElements;
      *bytes = std::remove_pointer_t<decltype(format)>::kBytes;
    });
  });
}

steelyard_status steelyard_blocks_encode(steelyard_context* context, void* stream, const char* type,
                                         const DLTensor* values, const DLTensor* scales,
                                         const DLTensor* blocks) {
  return c::call(context, __func__, [&] {
    const c::View from = c::matrix_of(values, "values", DType::kF32);
    const c::View to = c::matrix_of(blocks, "blocks", DType::kU8);
    c::require_on(to, "blocks", from.device);
    c::require_apart(from, "values", to, "blocks");
    c::with_made_format(type, [&](auto* format) {
      c::encode<std::remove_pointer_t<decltype(format)>>(from, scales, to, stream);
    });
  });
}

steelyard_status steelyard_blocks_decode(steelyard_context* context, void* stream, const char* type,
                                         const DLTensor* blocks, const DLTensor* values) {
  return c::call(context, __func__, [&] {
    const c::View from = c::matrix_of(blocks, "blocks", DType::kU8);
    const c::View to = c::matrix_of(values, "values", DType::kF32);
    c::require_on(to, "values", from.device);
    c::require_apart(from, "blocks", to, "values");
    c::with_stored_format(type, [&](auto* format) {
      using Format = std::remove_pointer_t<decltype(format)>;
      using Stored = typename c::StoredAs<Format>::type;
      c::decode<Stored>(from, to, stream);
    });
  });
}

steelyard_status steelyard_blocks_product(steelyard_context* context, void* stream,
                                          const char* type, const DLTensor* inputs,
                                          const DLTensor* weights, const DLTensor* y) {
  return c::call(context, __func__, [&] {
    using namespace kernels;
    const c::View x = c::matrix_of(inputs, "inputs", DType::kU8);
    const c::View w = c::matrix_of(weights, "weights", DType::kU8);
    const c::View to = c::matrix_of(y, "y", DType::kF32);
    c::require_on(w, "weights", x.device);
    c::require_on(to, "y", x.device);
    c::require_apart(x, "inputs", to, "y");
    c::require_apart(w, "weights", to, "y");
    c::with_format<Q4_0Blocks, Q8_0Blocks, Iq4NlBlocks, Mxfp4Blocks, Q2_0Blocks>(
        type, "q4_0, q8_0, iq4_nl, mxfp4 or q2_0", [&](auto* format) {
          c::multiply<std::remove_pointer_t<decltype(format)>>(x, w, to, stream);
        });
  });
}
