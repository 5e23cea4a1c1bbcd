#include <gmock/gmock.h>
#include <omp.h>

#include <thread>

#include "steelyard/kernels/backend.h"
#include "tests/c/c_support.h"

namespace steelyard::c_face {
namespace {

TEST(CContext, BeginsWithoutMessage) {
  const Context context;
  EXPECT_EQ(context.message(), "");
}

TEST(CContext, NullIsAnErrorOfEveryCall) {
  EXPECT_EQ(steelyard_context_create(nullptr), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_context_set_threads(nullptr, 1), STEELYARD_INVALID_ARGUMENT);
  EXPECT_STREQ(steelyard_context_message(nullptr), "expected a context, got NULL");
  steelyard_context_destroy(nullptr);
  steelyard_plan_destroy(nullptr);
  steelyard_observer_destroy(nullptr);
}

TEST(CContext, KeepsTheMessageOfTheLastFailedCall) {
  const Context context;
  EXPECT_EQ(steelyard_context_set_threads(context, -1), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_context_set_threads: expected threads from 0 to 4096, got -1");
  EXPECT_EQ(steelyard_context_set_threads(context, 2), STEELYARD_OK);
  EXPECT_EQ(context.message(),
            "steelyard_context_set_threads: expected threads from 0 to 4096, got -1");
}

TEST(CContext, RefusesThreadsThatNoMachineHas) {
  const Context context;
  EXPECT_EQ(steelyard_context_set_threads(context, 100000), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_context_set_threads: expected threads from 0 to 4096, got 100000");
}

TEST(CContext, RefusesAnUnknownPrecision) {
  const Context context;
  EXPECT_EQ(steelyard_context_set_matmul_precision(context, STEELYARD_BF16), STEELYARD_OK);
  EXPECT_EQ(steelyard_context_set_matmul_precision(context, 3), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_context_set_matmul_precision: expected a precision from 0 to 2, got 3");
}

TEST(CContext, LeavesTheProcessItsThreadsAndPrecision) {
  const Context context;
  const int threads = omp_get_max_threads();
  EXPECT_EQ(steelyard_context_set_threads(context, threads + 1), STEELYARD_OK);
  EXPECT_EQ(steelyard_context_set_matmul_precision(context, STEELYARD_BF16), STEELYARD_OK);
  EXPECT_EQ(steelyard_context_set_threads(context, threads + 2), STEELYARD_OK);
  EXPECT_EQ(omp_get_max_threads(), threads);
  EXPECT_EQ(kernels::cpu_matmul_precision(), kernels::MatmulPrecision::kFloat32);
}

TEST(CContext, ThreadsHaveMessagesOfTheirOwn) {
  const Context mine;
  std::thread([] {
    const Context other;
    EXPECT_NE(steelyard_context_set_threads(other, -5), STEELYARD_OK);
    EXPECT_THAT(other.message(), ::testing::HasSubstr("-5"));
  }).join();
  EXPECT_EQ(mine.message(), "");
}

TEST(CContext, TellsTheVersion) { EXPECT_STREQ(steelyard_version(), STEELYARD_VERSION); }

}  // namespace
}  // namespace steelyard::c_face
