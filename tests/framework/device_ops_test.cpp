// Elementwise operations, norms, pools and losses on a GPU against the CPU.
#include "framework/ops/add.h"
#include "framework/ops/relu.h"
#include "tests/framework/device_cases.h"

namespace steelyard::testing {
namespace {

using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

std::vector<DeviceCase> cases() {
  return {
      {"add",
       {random_tensor({37, 29}, 1), random_tensor({37, 29}, 2)},
       [](const Vs& v, const Place&) { return add(v[0], v[1]); }},
      {"add_twice",
       {random_tensor({3}, 1)},
       [](const Vs& v, const Place&) { return add(v[0], v[0]); }},
      {"add_empty",
       {random_tensor({0, 3}, 1), random_tensor({0, 3}, 2)},
       [](const Vs& v, const Place&) { return add(v[0], v[1]); }},
      {"relu", {random_tensor({300, 7}, 1)}, [](const Vs& v, const Place&) { return relu(v[0]); }},
      {"relu6", {spread_tensor({40, 15})}, [](const Vs& v, const Place&) { return relu6(v[0]); }},
  };
}

using OpsOnCuda = OnCuda;
TEST_P(OpsOnCuda, MatchTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(OpsOnCuda, MatchTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Ops, OpsOnCuda, ::testing::ValuesIn(cases()), device_case_name);

}  // namespace
}  // namespace steelyard::testing
