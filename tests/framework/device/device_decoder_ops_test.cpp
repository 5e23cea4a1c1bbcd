// The operations of language models on a GPU against the CPU.
#include "steelyard/framework/ops/elementwise/rotary.h"
#include "steelyard/framework/ops/elementwise/swiglu.h"
#include "steelyard/framework/ops/products/attention.h"
#include "steelyard/framework/ops/reductions/rms_norm.h"
#include "tests/framework/device/device_cases.h"

namespace steelyard::testing {
namespace {

using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

// Borders after every position whose square is a multiple of `border`; undefined for 0.
Tensor starts_of(const Shape& shape, std::int64_t border, DType dtype, const Place& place) {
  if (border == 0) return Tensor();
  const Tensor tokens = Tensor::zeros({shape[0], shape[1]}, dtype);
  visit_floating(dtype, "starts", [&](auto zero) {
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      tokens.data<decltype(zero)>()[i] = i * i % border == 0 ? 7 : 1;
    }
  });
  return document_starts(place(tokens), 7);
}

DeviceCase attention_case(const std::string& name, const Shape& queries,
                          const AttentionHeads& heads, std::int64_t earlier = 0,
                          std::int64_t border = 0) {
  Shape keys = queries;
  keys[1] += earlier;
  keys[2] = queries[2] / heads.queries * heads.keys;
  return {.name = name,
          .inputs = {random_tensor(queries, 1), random_tensor(keys, 2), random_tensor(keys, 3)},
          .op =
              [=](const Vs& v, const Place& place) {
                return causal_attention(v[0], v[1], v[2], heads,
                                        starts_of(keys, border, v[0].dtype(), place));
              },
          .rtol = 1e-4,
          .atol = 1e-5};
}

DeviceCase rotary_case(const std::string& name, RotaryPairs pairs, const Tensor& factors,
                       std::int64_t first = 0, std::int64_t border = 0) {
  return {name, {random_tensor({2, 40, 24}, 1)}, [=](const Vs& v, const Place& place) {
            const Tensor placed = factors.defined() ? place(factors) : Tensor();
            const Tensor starts = starts_of(v[0].shape(), border, v[0].dtype(), place);
            return rotary(v[0], {.width = 8,
                                 .base = 500,
                                 .pairs = pairs,
                                 .factors = placed,
                                 .first = first,
                                 .starts = starts});
          }};
}

std::vector<DeviceCase> decoder_op_cases() {
  return {
      attention_case("attention", {2, 9, 16}, {4, 2}),
      attention_case("attention_of_wide_heads", {1, 7, 320}, {2, 1}),
      attention_case("attention_of_one_position", {3, 1, 6}, {3, 3}),
      attention_case("attention_over_blocks", {1, 70, 8}, {2, 1}),
      attention_case("attention_of_nothing", {0, 4, 8}, {2, 1}),
      attention_case("attention_of_the_last_positions", {2, 5, 8}, {2, 1}, 66),
      attention_case("attention_within_documents", {2, 70, 8}, {2, 1}, 0, 9),
      attention_case("attention_within_documents_of_the_last_positions", {2, 7, 8}, {2, 1}, 30, 9),
      rotary_case("rotary_neighbours", RotaryPairs::kNeighbours, Tensor()),
      rotary_case("rotary_halves", RotaryPairs::kHalves, Tensor::from<float>({1, 2, 3, 9}, {4})),
      rotary_case("rotary_from_a_position", RotaryPairs::kHalves, Tensor(), 11),
      rotary_case("rotary_within_documents", RotaryPairs::kHalves, Tensor(), 0, 9),
      {"rms_norm",
       {random_tensor({37, 48}, 1), random_tensor({48}, 2)},
       [](const Vs& v, const Place&) { return rms_norm(v[0], v[1]); }},
      {"rms_norm_wide",
       {random_tensor({3, 1100}, 1), random_tensor({1100}, 2)},
       [](const Vs& v, const Place&) { return rms_norm(v[0], v[1]); }},
      {"swiglu",
       {random_tensor({70, 33}, 1), random_tensor({70, 33}, 2)},
       [](const Vs& v, const Place&) { return swiglu(v[0], v[1]); }},
  };
}

using DecoderOpsOnCuda = OnCuda;
TEST_P(DecoderOpsOnCuda, MatchTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(DecoderOpsOnCuda, MatchTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Ops, DecoderOpsOnCuda, ::testing::ValuesIn(decoder_op_cases()),
                         device_case_name);

}  // namespace
}  // namespace steelyard::testing
