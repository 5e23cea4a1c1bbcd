// The quantized table: rows as computed by hand, gradients, shared tables and what stays in float.
#include "steelyard/qat/layers/qat_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/layers/containers/builders.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

constexpr std::int64_t kRows = 7, kWidth = 4;

ModulePtr<Embedding> table(std::uint64_t seed = 5) {
  Rng rng(seed);
  return make_module<Embedding>(EmbeddingOptions{kRows, kWidth}, rng);
}

QuantizeConfig config_of(std::vector<std::string> targets = {"Embedding"},
                         const QConfig& config = default_w8a8()) {
  QuantizeConfig quantize;
  quantize.groups.push_back({std::move(targets), config});
  return quantize;
}

const PlanRow* row_of(const Plan& plan, const std::string& path, const std::string& tensor) {
  for (const PlanRow& row : plan.rows) {
    if (row.module == path && row.tensor == tensor) return &row;
  }
  return nullptr;
}

TEST(QuantizedEmbedding, RowsAreCodesWithAScaleEach) {
  const auto layer = table();
  const std::vector<double> floats = testing::values(layer->weight().value());
  const PreparedModel prepared = prepare(sequential({{"table", layer}}), config_of());
  ForwardContext training{.training = true}, evaluation;
  (*prepared.model)(Variable(Tensor::zeros({1})), training);  // which observes all rows
  const Tensor numbers = Tensor::from<float>({3, 0, 6, 3.2F, 2, 2}, {2, 3});
  const Variable y = (*prepared.model)(Variable(numbers), evaluation);
  ASSERT_EQ(y.shape(), (Shape{2, 3, kWidth}));
  const double rows[] = {3, 0, 6, 3, 2, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    double most = 0;
    const auto row = static_cast<std::size_t>(rows[i]) * kWidth;
    for (std::size_t j = 0; j < kWidth; ++j) most = std::max(most, std::abs(floats[row + j]));
    const auto& quantizer =
        dynamic_cast<const FakeQuantize&>(*prepared.model->slot("table.weight_quantizer"));
    const auto scale = static_cast<double>(quantizer.host_scale()[row / kWidth]);
    EXPECT_NEAR(scale, most / quantizer.code_range().qmax, 1e-6 * scale);
    for (std::size_t j = 0; j < kWidth; ++j) {
      const auto code = static_cast<float>(std::nearbyint(floats[row + j] / scale));
      EXPECT_EQ(y.value().data<float>()[i * kWidth + j], code * static_cast<float>(scale));
    }
  }
}

TEST(QuantizedEmbedding, GradientsGoStraightThroughToTheRowsRead) {
  const PreparedModel prepared = prepare(sequential({{"table", table()}}), config_of());
  ForwardContext training{.training = true};
  const Variable y = (*prepared.model)(Variable(Tensor::from<float>({1, 4, 4}, {3})), training);
  Tensor ones = Tensor::zeros(y.shape());
  ones.fill(1);
  y.backward(ones);
  const Variable weight = prepared.model->named_parameters()[0].variable;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const std::int64_t row = i / kWidth;
    EXPECT_EQ(weight.grad().data<float>()[i], row == 1 ? 1 : row == 4 ? 2 : 0) << i;
  }
}

TEST(QuantizedEmbedding, PlansSayThatItsRowsHaveCodes) {
  Rng rng(1);
  const auto linear = make_module<Linear>(LinearOptions{kWidth, 3}, rng);
  const PreparedModel prepared =
      prepare(sequential({{"table", table()}, {"fc", linear}}), config_of({"Embedding", "Linear"}));
  const PlanRow* weight = row_of(prepared.plan, "table", "weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->quantized, "int8 symmetric, per channel");
  EXPECT_EQ(row_of(prepared.plan, "table", "output")->note, "codes of its rows");
  EXPECT_EQ(row_of(prepared.plan, "fc", "input")->note, "its producer is in float");
  EXPECT_EQ(row_of(prepared.plan, "(input)", "output"), nullptr) << "numbers of rows have no codes";
}

TEST(QuantizedEmbedding, OneTableInTwoPlacesStaysOne) {
  const auto layer = table();
  const PreparedModel prepared = prepare(
      sequential({{"a", layer}, {"flat", make_module<Flatten>()}, {"b", layer}}), config_of());
  EXPECT_EQ(distinct(prepared.model->named_parameters()).size(), 1U);
  EXPECT_EQ(row_of(prepared.plan, "b", "weight")->quantized, "as a");
}

TEST(QuantizedEmbedding, ATableThatIsTheHeadTooStaysInFloat) {
  const auto layer = table();
  const PreparedModel prepared =
      prepare(sequential({{"table", layer}, {"head", std::make_shared<EmbeddingHead>(layer)}}),
              config_of());
  EXPECT_EQ(row_of(prepared.plan, "table", "-")->note, "the head has its table, too");
  EXPECT_EQ(prepared.model->slot("table")->type_name(), "Embedding");
}

TEST(QuantizedEmbedding, AGroupOfActivationsAloneLeavesItInFloat) {
  QConfig activations = default_w8a8();
  activations.weights.reset();
  const PreparedModel prepared =
      prepare(sequential({{"table", table()}}), config_of({"Embedding"}, activations));
  EXPECT_EQ(row_of(prepared.plan, "table", "-")->note, "its group has no weights");
}

}  // namespace
}  // namespace steelyard::qat
