// Evaluation on a GPU: loss and accuracy are added up there.
#include "steelyard/framework/train/evaluate.h"

#include "steelyard/framework/ops/elementwise/relu.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

// The inputs themselves are the outputs; the parameter says where the model is.
class Identity : public Module {
 public:
  Identity() { register_parameter("where", Tensor::zeros({1})); }
  Variable forward(const Variable& x, ForwardContext&) override { return relu(x); }
  std::string type_name() const override { return "Identity"; }
};

Metrics metrics_on(Device device, const Dataset& dataset, const Loss& loss) {
  Identity model;
  move_to(model, device);
  return evaluate(model, dataset, {}, loss, 16);
}

void expect_same_metrics(const Metrics& actual, const Metrics& expected) {
  ASSERT_EQ(actual.more.size(), expected.more.size());
  for (std::size_t i = 0; i < actual.more.size(); ++i) {
    EXPECT_NEAR(actual.more[i].value, expected.more[i].value, 1e-9) << actual.more[i].name;
  }
}

using EvaluateOnCuda = WithCudaDevice;

TEST_F(EvaluateOnCuda, GivesTheMetricsOfTheCpu) {
  Tensor labels = Tensor::empty({53}, DType::kI64);
  for (std::int64_t i = 0; i < 53; ++i) labels.data<std::int64_t>()[i] = i * 3 % 5;
  const Dataset classes{random_tensor({53, 5}, 1, DType::kF32), labels, 5};
  const Metrics expected = metrics_on(kCpuDevice, classes, {});
  const Metrics actual = metrics_on(kCudaDevice, classes, {});
  EXPECT_NEAR(actual.loss, expected.loss, 1e-7);
  EXPECT_GT(*expected.top1, 0);
  EXPECT_EQ(actual.top1, expected.top1);
  expect_same_metrics(actual, expected);

  const Dataset numbers{random_tensor({53, 4}, 1, DType::kF32),
                        random_tensor({53, 4}, 2, DType::kF32), 0};
  for (const Loss::Type type : {Loss::Type::kMeanSquaredError, Loss::Type::kHuber}) {
    const Loss loss{.type = type};
    EXPECT_NEAR(metrics_on(kCudaDevice, numbers, loss).loss,
                metrics_on(kCpuDevice, numbers, loss).loss, 1e-7);
    expect_same_metrics(metrics_on(kCudaDevice, numbers, loss),
                        metrics_on(kCpuDevice, numbers, loss));
  }

  Tensor marks = Tensor::empty({53, 4});
  for (std::int64_t i = 0; i < marks.size(); ++i) {
    marks.data<float>()[i] = i % 3 == 0 ? 1.0F : 0.0F;
  }
  Tensor texts = Tensor::full({53, 2}, -1, DType::kI64);
  for (std::int64_t i = 0; i < 53; ++i) texts.data<std::int64_t>()[2 * i] = 1 + i % 3;
  for (const auto& [type, targets] :
       {std::pair(Loss::Type::kBinaryCrossEntropy, marks), std::pair(Loss::Type::kCtc, texts)}) {
    const Dataset dataset{random_tensor({53, 4}, 1, DType::kF32), targets, 4};
    const Loss loss{.type = type, .characters = 4};
    const Metrics here = metrics_on(kCpuDevice, dataset, loss);
    EXPECT_FALSE(here.more.empty());
    EXPECT_NEAR(metrics_on(kCudaDevice, dataset, loss).loss, here.loss, 1e-6);
    expect_same_metrics(metrics_on(kCudaDevice, dataset, loss), here);
  }
}

}  // namespace
}  // namespace steelyard::testing
