// A layer at several places of a network, prepared.
#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

TEST(SharedLayers, HaveOneWeightAndOneQuantizerOfIt) {
  const auto net = [] {
    Rng rng(1);
    const auto shared = std::make_shared<Linear>(LinearOptions{4, 4}, rng);
    return std::make_shared<Sequential>(Sequential::NamedChildren{
        {"a", shared}, {"b", std::make_shared<Linear>(LinearOptions{4, 4}, rng)}, {"c", shared}});
  };
  const auto layer = [](Module& model, const char* path) -> QuantizedLayer& {
    return dynamic_cast<QuantizedLayer&>(*model.slot(path));
  };
  const auto config_for = [](std::vector<std::string> ignore) {
    QuantizeConfig config;
    config.groups.push_back({{"Linear"}, default_w8a8()});
    config.ignore = std::move(ignore);
    return config;
  };
  const PreparedModel both = prepare(net(), config_for({}));
  QuantizedLayer &a = layer(*both.model, "a"), &b = layer(*both.model, "b"),
                 &c = layer(*both.model, "c");
  EXPECT_EQ(a.weight().node(), c.weight().node());
  EXPECT_EQ(a.bias().node(), c.bias().node());
  EXPECT_NE(a.weight().node(), b.weight().node());
  EXPECT_EQ(a.weight_quantizer(), c.weight_quantizer());
  EXPECT_NE(a.weight_quantizer(), b.weight_quantizer());
  EXPECT_NE(a.output_quantizer(), c.output_quantizer());
  EXPECT_EQ(distinct(both.model->named_parameters()).size(), 4u);
  EXPECT_NE(to_string(both.plan).find("as a"), std::string::npos);
  for (const NamedTensor& state : module_state(*both.model)) {
    EXPECT_FALSE(state.name.starts_with("c.weight")) << state.name;
  }
  // The gradients of both places add up in one step.
  ForwardContext context{.training = true};
  const Variable y =
      both.model->forward(Variable(testing::random_tensor({3, 4}, 3, DType::kF32)), context);
  mean(y * y).backward();
  EXPECT_TRUE(testing::all_close(a.weight().grad(), c.weight().grad(), 0, 0));

  const PreparedModel one = prepare(net(), config_for({"c"}));
  const auto parameters = one.model->named_parameters();
  const auto named = [&](const char* name) {
    return std::find_if(parameters.begin(), parameters.end(),
                        [&](const NamedParameter& p) { return p.name == name; })
        ->variable.node();
  };
  EXPECT_EQ(named("a.weight"), named("c.weight")) << "of which one is in float";
  EXPECT_NO_THROW(prepare(net(), config_for({"a", "c"})));
}

}  // namespace
}  // namespace steelyard::qat
