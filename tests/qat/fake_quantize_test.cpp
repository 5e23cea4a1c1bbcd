#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "steelyard/qat/quantizers/weight_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

const QuantizerConfig kActivations = *default_w8a8().activations;
const QuantizerConfig kWeights = *default_w8a8().weights;

TEST(FakeQuantize, ValuesAndGradientsInClosedForm) {
  ActivationQuantizer quantizer(kActivations);
  quantizer.set_qparams(0, 0.5F, 10);
  // u = rint(x / 0.5) + 10 must lie in [0, 255]: x in [-5.25, 122.75].
  const Variable x(Tensor::from({-6.0F, -5.25F, -5.0F, 0.25F, 0.75F, 122.5F, 122.7F, 123.0F}, {8}),
                   true);
  ForwardContext evaluation;
  const Variable y = quantizer.forward(x, evaluation);
  EXPECT_EQ(testing::values(y.value()),
            (std::vector<double>{-5, -5, -5, 0, 1, 122.5, 122.5, 122.5}));
  const auto codes = quantized(y);
  ASSERT_TRUE(codes);
  EXPECT_EQ(testing::values(codes->codes), (std::vector<double>{0, 0, 0, 10, 12, 255, 255, 255}));
  y.backward(Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F}, {8}));
  EXPECT_EQ(testing::values(x.grad()), (std::vector<double>{0, 2, 3, 4, 5, 6, 7, 0}));
}

TEST(FakeQuantize, ObservesInTrainingOnly) {
  ActivationQuantizer quantizer(kActivations);
  ForwardContext training{.training = true}, evaluation;
  quantizer.forward(Variable(Tensor::from({0.0F, 2.55F}, {2})), training);
  EXPECT_EQ(quantizer.host_scale()[0], static_cast<float>(static_cast<double>(2.55F) / 255));
  const float scale = quantizer.host_scale()[0];
  quantizer.forward(Variable(Tensor::from({0.0F, 100.0F}, {2})), evaluation);
  EXPECT_EQ(quantizer.host_scale()[0], scale);
  quantizer.set_observing(false);
  quantizer.forward(Variable(Tensor::from({0.0F, 100.0F}, {2})), training);
  EXPECT_EQ(quantizer.host_scale()[0], scale);
}

// What one shard sees must not change what another one computes.
TEST(FakeQuantize, TheRangeOfActivationsMovesWhenAStepOfShardsEnds) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kActivations;
  config.observer = {.type = "min_max"};
  ActivationQuantizer sharded(config), whole(config);
  const Variable first(Tensor::from({0.0F, 2.0F}, {2}));
  EXPECT_TRUE(sharded.needs_first_pass());
  sharded.begin_step();
  sharded.begin_first_pass();
  EXPECT_FALSE(quantized(sharded.forward(first, training))) << "hands on what it is given";
  sharded.end_step();
  sharded.end_first_pass();
  EXPECT_FALSE(sharded.needs_first_pass());
  whole.forward(first, training);
  const float before = whole.host_scale()[0];
  EXPECT_EQ(sharded.host_scale()[0], before);

  const Variable shards[] = {Variable(Tensor::from({-1.0F, 1.0F}, {2})),
                             Variable(Tensor::from({0.0F, 5.0F}, {2}))};
  sharded.begin_step();
  for (const Variable& shard : shards) {
    const auto codes = quantized(sharded.forward(shard, training));
    EXPECT_EQ(testing::values(codes->qparams.scale), (std::vector<double>{before}));
  }
  EXPECT_EQ(sharded.host_scale()[0], before);
  sharded.end_step();
  whole.forward(Variable(Tensor::from({-1.0F, 1.0F, 0.0F, 5.0F}, {4})), training);
  EXPECT_EQ(sharded.host_scale(), whole.host_scale());
  EXPECT_EQ(sharded.host_zero_point(), whole.host_zero_point());
}

TEST(FakeQuantize, WeightsAreObservedOnceInAStepOfShards) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kWeights;
  config.observer = {.type = "moving_average", .averaging_constant = 0.25};
  WeightQuantizer once(config), in_shards(config);
  for (const float largest : {1.0F, 2.0F, 8.0F}) {
    const Tensor weight = Tensor::from({0.5F, largest}, {1, 2});
    once.quantize_weights(weight, nullptr, false, training);
    in_shards.begin_step();
    for (int shard = 0; shard < 4; ++shard) {
      in_shards.quantize_weights(weight, nullptr, false, training);
    }
    in_shards.end_step();
    EXPECT_EQ(in_shards.host_scale(), once.host_scale());
  }
}

// Checkpoints of averages that began at their first step have no count of steps.
TEST(FakeQuantize, AnAverageThatWasNotCountedGoesOnWithItsConstant) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kActivations;
  config.observer = {.type = "moving_average", .averaging_constant = 0.25};
  ActivationQuantizer counted(config);
  counted.forward(Variable(Tensor::from({0.0F, 255.0F}, {2})), training);
  std::vector<NamedTensor> state = module_state(counted);
  const auto is_count = [](const NamedTensor& t) {
    return t.name == "observer_num_batches_tracked";
  };
  ASSERT_EQ(std::erase_if(state, is_count), 1U);
  ActivationQuantizer loaded(config);
  load_into(loaded, state, "of an older version");
  const Variable next(Tensor::from({0.0F, 3 * 255.0F}, {2}));
  counted.forward(next, training);
  loaded.forward(next, training);
  EXPECT_EQ(counted.host_scale()[0], 2.0F);
  EXPECT_EQ(loaded.host_scale()[0], 1.5F);
}

// load_into() asks each quantizer, before anything is copied.
TEST(FakeQuantize, IsNotLoadedWithWhatNoQuantizerHas) {
  ForwardContext training{.training = true};
  const auto trained = std::make_shared<ActivationQuantizer>(kActivations);
  trained->forward(Variable(Tensor::from({0.0F, 255.0F}, {2})), training);
  Sequential model(Sequential::NamedChildren{{"x", trained}});
  const auto refusal = [&](const std::string& name, std::int64_t place, double value) {
    std::vector<NamedTensor> state;
    for (const NamedTensor& t : module_state(model)) {
      state.push_back({t.name, t.tensor.clone()});
      if (t.name != name) continue;
      std::vector<double> values = testing::values(t.tensor);
      values[static_cast<std::size_t>(place)] = value;
      state.back().tensor.copy_from(Tensor::from(values, t.tensor.shape()).to(t.tensor.dtype()));
    }
    const std::vector<float> before = trained->host_scale();
    const std::string message =
        testing::message_of<InputError>([&] { load_into(model, state, "c"); });
    EXPECT_EQ(trained->host_scale(), before);
    return message;
  };
  EXPECT_EQ(refusal("x.switches", 4, 77),
            "c: x.switches is no quantizer's state: expected a width of 2 to 8 bits, got 77");
  EXPECT_EQ(refusal("x.zero_point", 0, 100000),
            "c: x.zero_point is no quantizer's state: [channel 0] expected a zero point in [0, "
            "255], got 100000");
  for (const double scale : {-1.0, 0.0, std::nan("")}) {
    EXPECT_TRUE(
        refusal("x.scale", 0, scale)
            .starts_with("c: x.scale is no quantizer's state: [channel 0] expected a scale"));
  }
  ActivationQuantizer fresh(kActivations);
  EXPECT_NO_THROW(load_into(fresh, module_state(ActivationQuantizer(kActivations)), "unobserved"));
}

// Observers that look at rounding errors, too.
TEST(FakeQuantize, ChangesItsWidthAsIfMadeWithIt) {
  ForwardContext training{.training = true};
  const Tensor first = testing::random_tensor({64}, 1, DType::kF32);
  const Tensor second = testing::random_tensor({64}, 2, DType::kF32);
  for (const char* observer : {"min_max", "moving_average", "histogram", "mse", "entropy"}) {
    QuantizerConfig config = kActivations;
    config.observer.type = observer;
    config.scheme.bits = 3;
    ActivationQuantizer narrow(config);
    ActivationQuantizer changed(config);
    changed.set_bits(8);
    EXPECT_EQ(changed.code_range().qmax, 255);
    changed.forward(Variable(first), training);
    const float lo = -changed.host_scale()[0] * static_cast<float>(changed.host_zero_point()[0]);
    const float span = changed.host_scale()[0] * 255;
    changed.set_bits(3);
    EXPECT_EQ(changed.code_range().qmax, 7);
    EXPECT_NEAR(changed.host_scale()[0] * 7, span, 1e-5) << "the same range";
    EXPECT_NEAR(-changed.host_scale()[0] * static_cast<float>(changed.host_zero_point()[0]), lo,
                span / 14);
    if (config.observer.type == "mse") continue;  // its average remembers ranges of 8 bits
    changed.forward(Variable(second), training);
    narrow.forward(Variable(first), training);
    narrow.forward(Variable(second), training);
    EXPECT_EQ(changed.host_scale()[0], narrow.host_scale()[0]) << observer;
    EXPECT_EQ(changed.host_zero_point()[0], narrow.host_zero_point()[0]) << observer;
  }
}

TEST(FakeQuantize, LearnsAnewAfterAChangeOfWidth) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kActivations;
  config.learning = Learning::kScaleAndZeroPoint;
  ActivationQuantizer quantizer(config);
  quantizer.forward(Variable(Tensor::from({-1.0F, 2.0F}, {2})), training);
  quantizer.set_bits(4);
  EXPECT_TRUE(quantizer.observes(training));
  quantizer.forward(Variable(Tensor::from({-1.0F, 4.0F}, {2})), training);
  EXPECT_FALSE(quantizer.observes(training));
  EXPECT_NEAR(quantizer.host_scale()[0], 5.0 / 15, 1e-2) << "of the new values alone";
}

TEST(FakeQuantize, SwitchedOffItHandsOutItsInput) {
  ActivationQuantizer quantizer(kActivations);
  quantizer.set_quantizing(false);
  ForwardContext training{.training = true};
  const Variable x(Tensor::from({0.1F, 0.2F}, {2}));
  EXPECT_EQ(quantizer.forward(x, training).node(), x.node());
  EXPECT_NE(quantizer.host_scale()[0], 1.0F);  // it still observes
}

TEST(FakeQuantize, RefusesToQuantizeBeforeItObserved) {
  ActivationQuantizer quantizer(kActivations);
  ForwardContext evaluation;
  EXPECT_THROW(quantizer.forward(Variable(Tensor::zeros({2})), evaluation), std::logic_error);
}

// Whoever meets a value that is not finite first counts it: the observer, or the quantizer where
// nothing observes (which saturates infinity and so does not count it).
TEST(FakeQuantize, CountsEachNonFiniteValueOnce) {
  const Variable finite(Tensor::from({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}));
  const Variable bad(Tensor::from({1.0F, NAN, INFINITY, NAN}, {2, 2}));
  for (const char* observer : {"min_max", "moving_average", "histogram", "mse"}) {
    QuantizerConfig of_activations = kActivations, of_weights = kWeights;
    of_activations.observer.type = of_weights.observer.type = observer;
    ActivationQuantizer activations(of_activations);
    WeightQuantizer weights(of_weights, 2);
    for (FakeQuantize* quantizer :
         {static_cast<FakeQuantize*>(&activations), static_cast<FakeQuantize*>(&weights)}) {
      ForwardContext training{.training = true};
      const auto pass = [&](const Variable& x) {
        quantizer->forward(x, training);
        quantizer->quantize(x.value());
        return quantizer->take_faults().non_finite;
      };
      SCOPED_TRACE(::testing::Message()
                   << observer << (quantizer->of_weights() ? " of weights" : ""));
      EXPECT_EQ(pass(finite), 0);
      EXPECT_EQ(pass(bad), 3);
      quantizer->set_observing(false);
      EXPECT_EQ(pass(bad), 2);
      EXPECT_EQ(quantizer->take_faults().non_finite, 0);
    }
  }
}

TEST(FakeQuantize, NamesTheTypeItTakes) {
  ActivationQuantizer quantizer(kActivations);
  ForwardContext training{.training = true};
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [&] { quantizer.forward(Variable(Tensor::zeros({2}, DType::kF64)), training); }),
            "[fake_quantize] expected f32, got f64");
}

TEST(FakeQuantize, TakesElementsThatDivideIntoItsChannels) {
  WeightQuantizer quantizer(kWeights, 2);
  ForwardContext training{.training = true};
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [&] { quantizer.forward(Variable(Tensor::zeros({3})), training); }),
            "[fake_quantize] expected a multiple of 2 elements (equal parts, a scale for each), "
            "got 3");
  quantizer.forward(Variable(Tensor::zeros({4})), training);
  EXPECT_THROW(quantizer.quantize(Tensor::zeros({5})), std::invalid_argument);
  EXPECT_THROW(quantizer.quantize_weights(Tensor::zeros({3}), nullptr, false, training),
               std::invalid_argument);
  const Tensor one = Tensor::full({1}, 1.0), zero = Tensor::zeros({1}, DType::kI32);
  const WeightBias bias{{one, zero}, {0, 255}, Tensor::zeros({3}), Tensor::zeros({3})};
  EXPECT_THROW(quantizer.quantize_weights(Tensor::zeros({3, 2}), &bias, false, training),
               std::invalid_argument);
}

TEST(FakeQuantize, TakesOnlyParametersThatItWillUse) {
  WeightQuantizer quantizer(kWeights, 2);
  for (const std::int64_t channel : {-1, 2, 1000000}) {
    EXPECT_EQ(testing::message_of<std::invalid_argument>(
                  [&] { quantizer.set_qparams(channel, 0.5F, 0); }),
              "[fake_quantize] expected a channel of 0 to 1, got " + std::to_string(channel));
  }
  const float smallest = std::numeric_limits<float>::min();
  const float largest = std::numeric_limits<float>::max();
  for (const float scale : {smallest / 2, std::numeric_limits<float>::denorm_min(), 0.0F, -1.0F,
                            largest / 126, INFINITY, NAN}) {
    EXPECT_THROW(quantizer.set_qparams(0, scale, 0), std::invalid_argument) << scale;
  }
  EXPECT_THROW(quantizer.set_qparams(0, 0.5F, 1), std::invalid_argument) << "symmetric";
  quantizer.set_qparams(1, smallest, 0);
  quantizer.set_qparams(0, largest / 128, 0);
  EXPECT_EQ(quantizer.host_scale(), (std::vector<float>{largest / 128, smallest}));
}

TEST(FakeQuantize, RefusesParametersOnceTheyAreLearned) {
  QuantizerConfig config = kActivations;
  config.learning = Learning::kScale;
  ActivationQuantizer quantizer(config);
  quantizer.set_qparams(0, 0.5F, 3);
  quantizer.set_observing(false);
  ForwardContext training{.training = true};
  quantizer.forward(Variable(Tensor::from({1.0F, 2.0F}, {2})), training);
  EXPECT_EQ(quantizer.host_scale()[0], 0.5F) << "the start of learning";
  EXPECT_THROW(quantizer.set_qparams(0, 0.25F, 3), std::logic_error);
  EXPECT_EQ(quantizer.host_scale()[0], 0.5F);
}

TEST(FakeQuantize, FloatRangeIsThatOfItsCodes) {
  ActivationQuantizer activations(kActivations);
  activations.set_qparams(0, 0.5F, 10);
  EXPECT_EQ(activations.float_range(), (std::vector<observers::Range>{{-5, 122.5}}));
  WeightQuantizer weights(kWeights, 2);
  weights.set_qparams(0, 0.25F, 0);
  weights.set_qparams(1, 2.0F, 0);
  EXPECT_EQ(weights.float_range(), (std::vector<observers::Range>{{-31.75, 31.75}, {-254, 254}}));
  activations.set_bits(4);
  const observers::Range narrow = activations.float_range()[0];
  ForwardContext evaluation;
  const auto y = testing::values(
      activations.forward(Variable(Tensor::from({-1e9F, 1e9F}, {2})), evaluation).value());
  EXPECT_EQ(y, (std::vector<double>{narrow.lo, narrow.hi}));
}

TEST(FakeQuantize, ACloneGoesOnAsTheOriginalDoes) {
  ForwardContext training{.training = true};
  const auto next = [&](FakeQuantize& quantizer, std::uint64_t seed) {
    const Variable x(testing::random_tensor({4, 6}, seed, DType::kF32));
    return testing::values(quantizer.forward(x, training).value());
  };
  for (const char* observer : {"moving_average", "histogram"}) {
    for (const Learning learning : {Learning::kNothing, Learning::kScaleAndZeroPoint}) {
      QuantizerConfig config = kActivations;
      config.observer.type = observer;
      config.learning = learning;
      ActivationQuantizer original(config);
      original.set_bits(5);
      next(original, 1);
      for (const auto& p : original.named_parameters()) {
        Variable(p.variable).set_requires_grad(false);
      }
      const auto copy = original.clone();
      EXPECT_EQ(copy->scheme().bits, 5);
      for (const auto& p : copy->named_parameters()) EXPECT_FALSE(p.variable.requires_grad());
      const float scale = original.host_scale()[0];
      const auto moved = next(*copy, 2);
      EXPECT_EQ(original.host_scale()[0], scale) << "nothing is shared";
      EXPECT_EQ(next(original, 2), moved) << observer;
      EXPECT_EQ(original.host_scale(), copy->host_scale());
    }
  }
}

TEST(FakeQuantize, ACloneOfWeightsFollowsTheCurrentWeightsToo) {
  ForwardContext training{.training = true};
  WeightQuantizer original(kWeights, 2);
  original.forward(Variable(Tensor::from({1.27F, 25.4F}, {2, 1})), training);
  const auto copy = original.clone();
  EXPECT_TRUE(copy->of_weights());
  EXPECT_EQ(copy->host_scale(), original.host_scale());
  copy->forward(Variable(Tensor::from({12.7F, 2.54F}, {2, 1})), training);
  EXPECT_FLOAT_EQ(copy->host_scale()[0], 0.1F);
  EXPECT_FLOAT_EQ(copy->host_scale()[1], 0.02F);
  EXPECT_FLOAT_EQ(original.host_scale()[1], 0.2F);
}

TEST(FakeQuantize, PerChannelScalesFollowEachChannel) {
  WeightQuantizer quantizer(kWeights, 2);
  ForwardContext training{.training = true};
  const Variable w(Tensor::from({1.27F, -0.5F, 0.0F, -25.4F}, {2, 2}), true);
  const Variable y = quantizer.forward(w, training);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 0.01F);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[1], 0.2F);
  EXPECT_TRUE(testing::all_close(y.value(), w.value(), 1e-6, 1e-6));
  y.backward(Tensor::full({2, 2}, 1.0));
  EXPECT_EQ(testing::values(w.grad()), (std::vector<double>{1, 1, 1, 1}));
}

// A running extreme of weights would never follow them when they shrink.
TEST(FakeQuantize, WeightRangesFollowTheCurrentWeights) {
  WeightQuantizer quantizer(kWeights, 1);
  ForwardContext training{.training = true};
  quantizer.forward(Variable(Tensor::from({12.7F}, {1, 1})), training);
  quantizer.forward(Variable(Tensor::from({1.27F}, {1, 1})), training);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 0.01F);
}

TEST(QConfig, RefusesWhatIntegersCannotDo) {
  QConfig config = default_w8a8();
  EXPECT_NO_THROW(validate(config));
  config.weights->scheme.symmetric = false;
  EXPECT_THROW(validate(config), std::invalid_argument);
  config = default_w8a8();
  config.activations->scheme.granularity = kernels::Granularity::kChannel;
  EXPECT_THROW(validate(config), std::invalid_argument);
  config = default_w8a8();
  config.activations->observer.type = "nonsense";
  EXPECT_THROW(validate(config), std::invalid_argument);
}

TEST(FakeQuantize, RefusesWhatItsCodesCannotHold) {
  const auto weights = [](const auto& change) {
    QuantizerConfig config = *default_w8a8().weights;
    change(config);
    return WeightQuantizer(config, 1).channels();
  };
  const auto activations = [](const auto& change) {
    QuantizerConfig config = *default_w8a8().activations;
    change(config);
    return ActivationQuantizer(config).channels();
  };
  EXPECT_NO_THROW(weights([](QuantizerConfig&) {}));
  EXPECT_THROW(weights([](QuantizerConfig& c) { c.scheme.bits = 12; }), std::invalid_argument);
  EXPECT_THROW(weights([](QuantizerConfig& c) {
                 c.scheme.is_signed = c.scheme.symmetric = c.scheme.narrow_range = false;
               }),
               std::invalid_argument);
  EXPECT_THROW(weights([](QuantizerConfig& c) { c.learning = Learning::kClipping; }),
               std::invalid_argument);
  EXPECT_NO_THROW(activations([](QuantizerConfig& c) { c.scheme.bits = 12; }));
  EXPECT_THROW(activations([](QuantizerConfig& c) {
                 c.scheme.granularity = kernels::Granularity::kChannel;
               }),
               std::invalid_argument);
  EXPECT_THROW(activations([](QuantizerConfig& c) {
                 c.scheme.granularity = kernels::Granularity::kToken;
                 c.scheme.dynamic = true;
               }),
               std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::qat
