// Networks through the C face: plan, schedule, ranges, checkpoints, export and verification.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "tests/c/network_support.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::c_face {
namespace {

using steelyard::testing::TemporaryFolder;
using ::testing::HasSubstr;

struct Trained : Network {
  explicit Trained(const std::string& onnx = two_layers(),
                   const std::string& recipe = kQuantizedRecipe)
      : Network(onnx, recipe) {
    expect_ok(steelyard_network_set_training, 1);
    forward(*this, {&x.view});
    expect_ok(steelyard_network_set_training, 0);
  }
  steelyard_verification verify(const char* model, std::string* text = nullptr) {
    steelyard_verification verdict;
    steelyard_verification_init(&verdict, sizeof verdict);
    const DLTensor* inputs[] = {&x.view};
    const char* lines = nullptr;
    expect_ok(steelyard_network_verify, nullptr, std::size_t{1}, inputs, model, &verdict, &lines);
    if (text != nullptr && lines != nullptr) *text = lines;
    return verdict;
  }

  Array<float> x{wave(100), {25, 4}};
};

TEST(CNetworkFiles, ThePlanIsTextAndJson) {
  Network n(two_layers(), kQuantizedRecipe);
  const char* text = nullptr;
  n.expect_ok(steelyard_network_plan, STEELYARD_TEXT, &text);
  EXPECT_THAT(text, HasSubstr("int8 symmetric, per channel"));
  n.expect_ok(steelyard_network_plan, STEELYARD_JSON, &text);
  EXPECT_THAT(text, HasSubstr("{\"rows\":[{\"module\":\""));
  EXPECT_THAT(text, HasSubstr("\"tensor\":\"weight\""));
  EXPECT_THAT(text, HasSubstr("\"scheme\":{\"num_bits\":8,\"symmetric\":true,"
                              "\"strategy\":\"channel\",\"dynamic\":false}"));
  n.expect_ok(steelyard_network_notes, &text);
  EXPECT_STREQ(text, "");
  Network in_float(two_layers(), kFloatRecipe);
  in_float.expect_ok(steelyard_network_plan, STEELYARD_TEXT, &text);
  EXPECT_STREQ(text, "");
}

TEST(CNetworkFiles, TheExportComputesWhatWasTrained) {
  Trained n;
  const TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  n.expect_ok(steelyard_network_export, "safetensors", path.c_str());
  std::string text;
  for (const char* model : {static_cast<const char*>(nullptr), path.c_str()}) {
    const steelyard_verification verdict = n.verify(model, &text);
    EXPECT_EQ(verdict.same, 1) << text;
    EXPECT_EQ(verdict.differing, 0) << text;
    EXPECT_EQ(verdict.samples, 25);
    EXPECT_GT(verdict.codes, 25 * 11);
    EXPECT_THAT(text, HasSubstr("codes differ, in"));
  }
  // A weight that is changed afterwards.
  DLManagedTensor* view = nullptr;
  n.expect_ok(steelyard_network_parameter, "fc1.weight", &view);
  const Managed owned(view);
  static_cast<float*>(owned->dl_tensor.data)[3] *= -1;
  const steelyard_verification verdict = n.verify(path.c_str(), &text);
  EXPECT_EQ(verdict.same, 0);
  EXPECT_GT(verdict.differing, 0);
  EXPECT_THAT(text, HasSubstr("fc1.weight"));
}

TEST(CNetworkFiles, WritesOnnxAndImagesToo) {
  Network n(image_layers(), kQuantizedImages);
  Array<float> x(wave(120), {2, 2, 5, 6});
  const DLTensor* inputs[] = {&x.view};
  n.expect_ok(steelyard_network_calibrate, nullptr, std::size_t{1}, std::size_t{1}, inputs);
  const TemporaryFolder folder;
  const std::string path = folder / "model.onnx";
  n.expect_ok(steelyard_network_export, "onnx", path.c_str());
  EXPECT_GT(std::filesystem::file_size(path), 100U);
  steelyard_verification verdict;
  steelyard_verification_init(&verdict, sizeof verdict);
  n.expect_ok(steelyard_network_verify, nullptr, std::size_t{1}, inputs, nullptr, &verdict,
              nullptr);
  EXPECT_EQ(verdict.same, 1);
  // The file is a network again.
  steelyard_network_descriptor d;
  steelyard_network_descriptor_init(&d, sizeof d);
  d.onnx_path = path.c_str();
  d.recipe = kFloatRecipe.c_str();
  steelyard_network* again = nullptr;
  const steelyard_status status = steelyard_network_create(n.context, &d, &again);
  EXPECT_TRUE(status == STEELYARD_OK || status == STEELYARD_INVALID_INPUT);
  steelyard_network_destroy(again);
}

TEST(CNetworkFiles, BeforeRangesAreKnownNothingIsExported) {
  Network n(two_layers(), kQuantizedRecipe);
  const TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  EXPECT_THAT(
      n.refusal(STEELYARD_INVALID_INPUT, steelyard_network_export, "safetensors", path.c_str()),
      HasSubstr("never observed anything"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(n.refusal(STEELYARD_INVALID_ARGUMENT, steelyard_network_export, "gif", path.c_str()),
              HasSubstr("safetensors"));
}

TEST(CNetworkFiles, CheckpointsRestoreEverything) {
  Trained n;
  const TemporaryFolder folder;
  const std::string path = folder / "state.safetensors";
  const std::vector<float> before = forward(n, {&n.x.view});
  n.expect_ok(steelyard_network_save, path.c_str());
  Network other(two_layers(), kQuantizedRecipe);
  other.expect_ok(steelyard_network_load, path.c_str());
  EXPECT_EQ(forward(other, {&n.x.view}), before);
  Network another(image_layers(), kQuantizedImages);
  EXPECT_THAT(another.refusal(STEELYARD_INVALID_INPUT, steelyard_network_load, path.c_str()),
              HasSubstr("expected a checkpoint of this network, got one of another"));
  EXPECT_EQ(
      other.refusal(STEELYARD_INVALID_INPUT, steelyard_network_load, (folder / "none").c_str())
          .rfind("steelyard_network_load: ", 0),
      0U);
}

TEST(CNetworkFiles, TheScheduleFollowsTheCallersEpochs) {
  const std::string recipe =
      kQuantizedRecipe + "schedule: {fake_quant: {from: 2}, freeze_observers: {epoch: 4}}\n";
  Trained n(two_layers(), recipe);
  Network in_float(two_layers(), kFloatRecipe);
  const std::vector<float> exact = forward(in_float, {&n.x.view});
  const std::vector<float> first = forward(n, {&n.x.view});
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(first[i], exact[i], 1e-5F);
  n.expect_ok(steelyard_network_begin_epoch, std::int64_t{2});
  const std::vector<float> quantized = forward(n, {&n.x.view});
  EXPECT_NE(quantized, first);
  n.expect_ok(steelyard_network_set_quantizing, 0, 0);
  EXPECT_EQ(forward(n, {&n.x.view}), first);
  n.expect_ok(steelyard_network_set_quantizing, 1, 1);
  EXPECT_EQ(forward(n, {&n.x.view}), quantized);
  // Frozen ranges do not follow larger values.
  n.expect_ok(steelyard_network_begin_epoch, std::int64_t{4});
  n.expect_ok(steelyard_network_set_training, 1);
  Array<float> large(std::vector<float>(8, 50), {2, 4});
  forward(n, {&large.view});
  n.expect_ok(steelyard_network_set_training, 0);
  EXPECT_EQ(forward(n, {&n.x.view}), quantized);
  n.expect_ok(steelyard_network_set_observing, 1);
  n.expect_ok(steelyard_network_set_training, 1);
  forward(n, {&large.view});
  n.expect_ok(steelyard_network_set_training, 0);
  EXPECT_NE(forward(n, {&n.x.view}), quantized);
  EXPECT_THAT(
      n.refusal(STEELYARD_INVALID_ARGUMENT, steelyard_network_begin_epoch, std::int64_t{-1}),
      HasSubstr("expected an epoch from 0 on, got -1"));
}

TEST(CNetworkFiles, ValuesThatAreNotFiniteAreAStatus) {
  Trained n;
  n.x.values[9] = NAN;
  const DLTensor* inputs[] = {&n.x.view};
  DLManagedTensor* output = nullptr;
  EXPECT_THAT(n.refusal(STEELYARD_NOT_FINITE, steelyard_network_forward, nullptr, std::size_t{1},
                        inputs, 0, &output, nullptr),
              HasSubstr("evaluation: "));
  EXPECT_EQ(output, nullptr);
  n.expect_ok(steelyard_network_set_training, 1);
  forward(n, {&n.x.view});
  n.refusal(STEELYARD_NOT_FINITE, steelyard_network_require_finite);
  n.expect_ok(steelyard_network_require_finite);
}

TEST(CNetworkFiles, InputsAreChecked) {
  Network n(two_inputs(), kFloatRecipe);
  Array<float> a(wave(12), {3, 4}), b(wave(6), {3, 2}), short_b(wave(4), {2, 2});
  Array<double> wide(std::vector<double>(6), {3, 2});
  DLManagedTensor* output = nullptr;
  const auto refused = [&](std::vector<const DLTensor*> inputs) {
    return n.refusal(STEELYARD_INVALID_ARGUMENT, steelyard_network_forward, nullptr, inputs.size(),
                     inputs.data(), 0, &output, nullptr);
  };
  const std::string begin = "steelyard_network_forward: ";
  EXPECT_EQ(refused({&a.view}), begin + "expected 2 inputs, got 1");
  EXPECT_EQ(refused({&b.view, &a.view}), begin + "the input 'a': expected [N, 4], got [3, 2]");
  EXPECT_EQ(refused({&a.view, &short_b.view}),
            begin + "the input 'b': expected a batch of 3, got 2");
  EXPECT_EQ(refused({&a.view, &wide.view}), begin + "the input 'b': expected f32, got f64");
  EXPECT_EQ(refused({&a.view, nullptr}), begin + "input 1: expected a tensor, got NULL");
  DLTensor elsewhere = b.view;
  elsewhere.device = {kDLCUDA, 0};
  EXPECT_EQ(refused({&a.view, &elsewhere}), begin + "input 1: expected memory of cpu, got cuda:0");
  ASSERT_EQ(steelyard_context_set_matmul_precision(n.context, STEELYARD_TF32), STEELYARD_OK);
  EXPECT_EQ(
      refused({&a.view, &b.view}),
      begin + "expected a matmul precision of float32 or bf16 on the CPU, the context has tf32");
}

// Rows of three values are multiplied, whichever of the other dimensions the batch is.
TEST(CNetworkFiles, TheBatchMayBeAnotherDimension) {
  const std::string onnx = OnnxBytes()
                               .input("x", {5, 3})
                               .output("y", {5, 4})
                               .weight("w", {3, 4})
                               .node("MatMul", {"x", "w"}, "y")
                               .bytes();
  Network first(onnx, kFloatRecipe);
  const std::int64_t shape[] = {2, 3};
  const steelyard_sample_shape sample{"x", 2, shape};
  const steelyard_batch_axis batch{nullptr, 1};
  steelyard_network_descriptor d;
  steelyard_network_descriptor_init(&d, sizeof d);
  d.onnx = onnx.data();
  d.onnx_bytes = onnx.size();
  d.recipe = kFloatRecipe.c_str();
  d.sample_count = 1;
  d.samples = &sample;
  d.batch_axis_count = 1;
  d.batch_axes = &batch;
  Network second(d);
  Array<float> x(wave(30), {2, 5, 3}), wrong(wave(40), {2, 5, 4});
  EXPECT_EQ(forward(second, {&x.view}), forward(first, {&x.view}));
  const DLTensor* inputs[] = {&wrong.view};
  DLManagedTensor* output = nullptr;
  EXPECT_EQ(second.refusal(STEELYARD_INVALID_ARGUMENT, steelyard_network_forward, nullptr,
                           std::size_t{1}, inputs, 0, &output, nullptr),
            "steelyard_network_forward: the input 'x': expected [2, N, 3], got [2, 5, 4]");
}

TEST(CNetworkFiles, NamesParametersAndGradientsAreChecked) {
  Network n(two_layers(), kFloatRecipe);
  const auto refused = [&](const auto& function, const auto&... arguments) {
    return n.refusal(STEELYARD_INVALID_ARGUMENT, function, arguments...);
  };
  DLManagedTensor* view = nullptr;
  EXPECT_EQ(refused(steelyard_network_parameter, "fc1.weigth", &view),
            "steelyard_network_parameter: no parameter 'fc1.weigth' (did you mean 'fc1.weight'?)");
  EXPECT_THAT(refused(steelyard_network_buffer, "none", &view), HasSubstr("no buffer 'none'"));
  EXPECT_THAT(refused(steelyard_network_gradient, nullptr, &view),
              HasSubstr("expected a pointer for name, got NULL"));
  EXPECT_THAT(refused(steelyard_network_gradient, "fc1.bias", nullptr),
              HasSubstr("expected a pointer for view, got NULL"));
  EXPECT_THAT(refused(steelyard_network_gradients, std::size_t{1}, &view),
              HasSubstr("expected room for 4 parameters, got 1"));
  EXPECT_THAT(refused(steelyard_network_gradients, std::size_t{4}, nullptr),
              HasSubstr("expected a pointer for views, got NULL"));
  std::size_t count = 0;
  EXPECT_THAT(refused(steelyard_network_count, 4, &count), HasSubstr("a kind from 0 to 3, got 4"));
  const char* text = nullptr;
  EXPECT_THAT(refused(steelyard_network_name, STEELYARD_PARAMETERS, std::size_t{4}, &text),
              HasSubstr("expected an index below 4, got 4"));
  EXPECT_THAT(refused(steelyard_network_plan, 2, &text), HasSubstr("form to be 0 or 1, got 2"));
  alignas(64) float memory[32] = {};
  std::int64_t shape[] = {8, 4}, other_shape[] = {4, 8};
  DLTensor own = {memory, {kDLCPU, 0}, 2, type_of<float>(), other_shape, nullptr, 0};
  EXPECT_EQ(refused(steelyard_network_set_parameter, "fc1.weight", &own),
            "steelyard_network_set_parameter: the parameter 'fc1.weight': expected f32 [8, 4] on "
            "cpu, got f32 [4, 8] on cpu");
  own.shape = shape;
  own.byte_offset = 4;
  EXPECT_THAT(refused(steelyard_network_set_parameter, "fc1.weight", &own),
              HasSubstr("expected memory aligned to 64 bytes, got an address 4 past one"));
  EXPECT_THAT(refused(steelyard_network_set_training, 2), HasSubstr("training to be 0 or 1"));
  EXPECT_EQ(steelyard_network_zero_gradients(n.context, nullptr), STEELYARD_INVALID_ARGUMENT);
}

TEST(CNetworkFiles, PassesAreChecked) {
  Network n(two_layers(), kFloatRecipe);
  Array<float> x(wave(20), {5, 4}), grad(wave(15), {3, 5});
  Pass pass;
  forward(n, {&x.view}, &pass);
  const auto backward = [&](steelyard_pass* of, const DLTensor* gradient) {
    EXPECT_EQ(steelyard_pass_backward(n.context, of, nullptr, gradient),
              STEELYARD_INVALID_ARGUMENT);
    return n.context.message();
  };
  const std::string begin = "steelyard_pass_backward: ";
  EXPECT_EQ(backward(pass.get(), &grad.view),
            begin + "grad_output: expected the shape [5, 3], got [3, 5]");
  EXPECT_EQ(backward(pass.get(), nullptr), begin + "grad_output: expected a tensor, got NULL");
  EXPECT_EQ(backward(nullptr, &grad.view), begin + "expected a pointer for pass, got NULL");
  DLManagedTensor* view = nullptr;
  EXPECT_EQ(steelyard_pass_input_gradient(n.context, pass.get(), 0, &view),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(n.context.message(), HasSubstr("the pass has no gradient of input 0"));
  EXPECT_EQ(steelyard_pass_input_gradient(n.context, pass.get(), 1, &view),
            STEELYARD_INVALID_ARGUMENT);
  steelyard_pass_destroy(nullptr);
}

TEST(CNetworkFiles, DescriptorsAreChecked) {
  const Context context;
  const std::string onnx = two_layers();
  const auto create = [&](const std::string& bytes, const char* recipe, steelyard_status expected) {
    steelyard_network_descriptor d;
    steelyard_network_descriptor_init(&d, sizeof d);
    d.onnx = bytes.empty() ? nullptr : bytes.data();
    d.onnx_bytes = bytes.size();
    d.recipe = recipe;
    steelyard_network* network = nullptr;
    EXPECT_EQ(steelyard_network_create(context, &d, &network), expected) << context.message();
    EXPECT_EQ(network, nullptr);
    return context.message();
  };
  const std::string begin = "steelyard_network_create: ";
  EXPECT_EQ(create(onnx, nullptr, STEELYARD_INVALID_ARGUMENT),
            begin + "expected a pointer for recipe, got NULL");
  EXPECT_EQ(create("", kFloatRecipe.c_str(), STEELYARD_INVALID_ARGUMENT),
            begin + "expected a pointer for onnx_path, got NULL");
  EXPECT_THAT(create("no model", kFloatRecipe.c_str(), STEELYARD_INVALID_INPUT),
              HasSubstr("network.onnx: not an ONNX model"));
  EXPECT_THAT(create(onnx, "version: 1\nname: a\ndata: {}\n", STEELYARD_INVALID_INPUT),
              HasSubstr("recipe:3:1: unknown key 'data'"));
  EXPECT_THAT(create(onnx, "version: 1\nname: a\nquantize: {groups: [{targets: [Conv9d]}]}\n",
                     STEELYARD_INVALID_INPUT),
              HasSubstr("recipe:"));
  EXPECT_THAT(
      create(onnx, (kQuantizedRecipe + "  ranges: delayed\n").c_str(), STEELYARD_INVALID_INPUT),
      HasSubstr("quantize.ranges: delayed needs the trainer's steps"));
  EXPECT_THAT(create(onnx, (kQuantizedRecipe + "export: {formats: [onnx]}\n").c_str(),
                     STEELYARD_INVALID_INPUT),
              HasSubstr("export.formats: the host exports when it wants to"));
}

TEST(CNetworkFiles, FreeSizesAreTheCallers) {
  const Context context;
  const std::string onnx = OnnxBytes()
                               .input("x", {2, 0, 0})
                               .output("y", {3, 0, 0})
                               .weight("w", {3, 2, 1, 1})
                               .node("Conv", {"x", "w"}, "y")
                               .bytes();
  steelyard_network_descriptor d;
  steelyard_network_descriptor_init(&d, sizeof d);
  d.onnx = onnx.data();
  d.onnx_bytes = onnx.size();
  d.recipe = kFloatRecipe.c_str();
  steelyard_network* network = nullptr;
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_INVALID_INPUT);
  EXPECT_THAT(context.message(), HasSubstr("has free sizes"));
  const std::int64_t shape[] = {2, 5, 7}, wrong[] = {3, 5, 7};
  steelyard_sample_shape sample = {"x", 3, shape};
  d.sample_count = 1;
  d.samples = &sample;
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_OK) << context.message();
  steelyard_network_destroy(network);
  sample.shape = wrong;
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_INVALID_INPUT);
  EXPECT_THAT(context.message(), HasSubstr("the sample given for it is [3, 5, 7]"));
  sample.name = "z";
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_INVALID_INPUT);
  EXPECT_THAT(context.message(), HasSubstr("no input is called 'z'"));
  sample.rank = 9;
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_INVALID_ARGUMENT);
  d.samples = nullptr;
  EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace steelyard::c_face
