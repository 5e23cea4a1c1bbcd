// Folded batch norms on a GPU against the CPU's float64.
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/forms/norm_after_fold.h"
#include "tests/framework/device/device_cases.h"

namespace steelyard::qat {
namespace {

using testing::DeviceCase;
using testing::random_tensor;
using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

constexpr std::int64_t kChannels = 37;

Tensor positive(std::int64_t n, std::uint64_t seed) {
  const Tensor t = random_tensor({n}, seed);
  for (double& x : t.span<double>()) x = 0.2 + x * x;
  return t;
}

// The running statistics are the case's state.
BatchNormState norm_state(const Variable& mean, const Variable& variance) {
  return {.running_mean = mean.value(),
          .running_var = variance.value(),
          .eps = 1e-5,
          .momentum = 0.25,
          .batch_statistics = true};
}

DeviceCase fold_case(const std::string& name, std::vector<Tensor> inputs, std::int64_t channels,
                     std::function<Variable(const Vs&, const BatchNormState&, const Place&)> op) {
  return {name,
          std::move(inputs),
          [op = std::move(op)](const Vs& v, const Place& place) {
            return op(v, norm_state(v[v.size() - 2], v.back()), place);
          },
          {random_tensor({channels}, 21), positive(channels, 22)}};
}

std::vector<DeviceCase> cases() {
  const auto weight_op = [](const Vs& v, const BatchNormState& state, const Place&) {
    return fold_weight(v[0], v[1], state);
  };
  const Tensor gamma = random_tensor({kChannels}, 3), beta = random_tensor({kChannels}, 4);
  const Shape images{3, 5, 7, kChannels};
  return {
      fold_case("fold_weight", {random_tensor({kChannels, 11, 3, 3}, 1), gamma}, kChannels,
                weight_op),
      fold_case("fold_weight_of_long_rows", {random_tensor({2, 1000}, 1), random_tensor({2}, 3)}, 2,
                weight_op),
      fold_case("fold_bias", {random_tensor({kChannels}, 2), gamma, beta}, kChannels,
                [](const Vs& v, const BatchNormState& state, const Place&) {
                  return fold_bias(v[0], v[1], v[2], state);
                }),
      fold_case("fold_no_bias", {gamma, beta}, kChannels,
                [](const Vs& v, const BatchNormState& state, const Place&) {
                  return fold_bias(Variable(), v[0], v[1], state);
                }),
      fold_case("corrected", {random_tensor(images, 1), random_tensor(images, 2), gamma, beta},
                kChannels,
                [](const Vs& v, const BatchNormState& state, const Place& place) {
                  const Tensor offset = place(random_tensor({kChannels}, 6).to(v[0].dtype()));
                  return corrected_batch_norm(v[0], v[1], v[2], v[3], offset, state);
                }),
      fold_case("recovered", {random_tensor(images, 1), gamma, beta}, kChannels,
                [](const Vs& v, const BatchNormState& state, const Place& place) {
                  return recovered_batch_norm(v[0], place(positive(kChannels, 8)), v[1], v[2], {},
                                              state);
                }),
  };
}

using FoldOnCuda = testing::OnCuda;
TEST_P(FoldOnCuda, MatchesTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(FoldOnCuda, MatchesTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Folds, FoldOnCuda, ::testing::ValuesIn(cases()),
                         testing::device_case_name);

}  // namespace
}  // namespace steelyard::qat
