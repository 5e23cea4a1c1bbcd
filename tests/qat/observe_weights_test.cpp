#include "steelyard/qat/model/observe_weights.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;
using testing::values;

struct Prepared {
  std::shared_ptr<Module> model;
  QuantizedLayer* layer = nullptr;
};

// One Linear, 4 to 3, trained for a step with learning rate 0.
Prepared trained(const std::string& observer, Learning learning = Learning::kNothing) {
  Rng rng(1);
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  config.groups[0].config.weights->observer = {.type = observer, .averaging_constant = 0.01};
  config.groups[0].config.weights->learning = learning;
  Prepared prepared;
  const auto linear = std::make_shared<Linear>(LinearOptions{4, 3}, rng);
  prepared.model =
      prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
          .model;
  for (const NamedModule& entry : prepared.model->named_modules()) {
    if (auto* layer = dynamic_cast<QuantizedLayer*>(entry.module)) prepared.layer = layer;
  }
  ForwardContext training{.training = true};
  prepared.model->forward(Variable(random_tensor({8, 4}, 2, DType::kF32)), training).value();
  return prepared;
}

std::vector<float> scales(const FakeQuantize& quantizer) { return quantizer.host_scale(); }

const FakeQuantize* input_quantizer(Module& model) {
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    if (entry.name == "input_quantizer") return entry.quantizer;
  }
  return nullptr;
}

TEST(ObserveWeights, RangesAreThoseOfTheWeightsAndNothingElseMoves) {
  for (const char* observer : {"min_max", "moving_average"}) {
    const Prepared p = trained(observer);
    const FakeQuantize* input = input_quantizer(*p.model);
    const std::vector<float> output_before = scales(*p.layer->output_quantizer());
    const std::vector<float> input_before = scales(*input);
    p.layer->weight().value().copy_from(random_tensor({3, 4}, 9, DType::kF32));
    observe_weights(*p.model, {1, 4});
    const std::vector<double> weight = values(p.layer->weight().value());
    for (std::size_t c = 0; c < 3; ++c) {
      double largest = 0;
      for (std::size_t k = 0; k < 4; ++k) largest = std::max(largest, std::abs(weight[c * 4 + k]));
      EXPECT_NEAR(scales(*p.layer->weight_quantizer())[c], largest / 127, 1e-8) << observer;
    }
    EXPECT_EQ(scales(*p.layer->output_quantizer()), output_before);
    EXPECT_EQ(scales(*input), input_before);
    for (const NamedQuantizer& entry : named_quantizers(*p.model)) {
      EXPECT_TRUE(entry.quantizer->observing()) << entry.name;
    }
  }
}

TEST(ObserveWeights, FrozenAndLearnedRangesStay) {
  const Prepared frozen = trained("min_max");
  frozen.layer->weight_quantizer()->set_observing(false);
  const Prepared learned = trained("min_max", Learning::kScale);
  for (const Prepared& p : {frozen, learned}) {
    const std::vector<float> before = scales(*p.layer->weight_quantizer());
    p.layer->weight().value().fill(3.0);
    observe_weights(*p.model, {1, 4});
    EXPECT_EQ(scales(*p.layer->weight_quantizer()), before);
  }
}

TEST(ObserveWeights, DoesNothingBeforeTheFirstStep) {
  Rng rng(1);
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const auto model = prepare(std::make_shared<Linear>(LinearOptions{4, 3}, rng), config).model;
  EXPECT_NO_THROW(observe_weights(*model, {1, 4}));
  EXPECT_FALSE(named_quantizers(*model)[0].quantizer->observed());
}

}  // namespace
}  // namespace steelyard::qat
