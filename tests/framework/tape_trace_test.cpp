// Listening to the tape.
#include "steelyard/framework/autograd/tape_trace.h"

#include <gtest/gtest.h>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"

namespace steelyard {
namespace {

Variable input() { return Variable(Tensor::full({2, 3}, 1.0), /*requires_grad=*/true); }

TEST(TapeTrace, KeepsOperationsInOrderWithTheirModules) {
  Sequential inner({{"act", std::make_shared<ReLU>()}});
  Sequential model({{"a", std::make_shared<ReLU>()},
                    {"block", std::make_shared<Sequential>(
                                  Sequential::NamedChildren{{"b", std::make_shared<ReLU6>()}})}});
  ForwardContext context;
  const TapeTrace trace;
  const Variable x = input();
  const Variable y = add(model.forward(x, context), x);
  ASSERT_EQ(trace.operations().size(), 3U);
  EXPECT_EQ(trace.operations()[0].module, "a");
  EXPECT_EQ(trace.operations()[1].module, "block.b");
  EXPECT_EQ(trace.operations()[1].function->name(), "relu6");
  EXPECT_EQ(trace.operations()[2].module, "");
  EXPECT_EQ(trace.operations()[2].output.node(), y.node());
  EXPECT_EQ(trace.operations()[2].inputs[1].node(), x.node());
  EXPECT_EQ(y.node()->producer, trace.operations()[2].function);
}

TEST(TapeTrace, HearsOnlyRecordedOperationsWhileItLives) {
  std::size_t heard = 0;
  {
    const TapeTrace trace;
    relu(Variable(Tensor::full({2}, 1.0)));  // requires no gradient
    {
      const NoGradGuard no_grad;
      relu(input());
    }
    relu(input());
    heard = trace.operations().size();
  }
  relu(input());
  EXPECT_EQ(heard, 1U);
}

TEST(TapeTrace, TheInnermostListens) {
  const TapeTrace outer;
  relu(input());
  {
    const TapeTrace inner;
    relu(input());
    relu(input());
    EXPECT_EQ(inner.operations().size(), 2U);
  }
  relu(input());
  EXPECT_EQ(outer.operations().size(), 2U);
}

}  // namespace
}  // namespace steelyard
