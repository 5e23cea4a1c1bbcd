// The public functions of quantization and export, called with undefined variables and tensors,
// null models and empty graphs: each throws, and none crashes (tests/layers has the engine's).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "steelyard/export/c/c_header.h"
#include "steelyard/export/formats.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/verify.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/model/measure.h"
#include "steelyard/qat/ptq/adaround.h"
#include "steelyard/qat/ptq/bias_correction.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/ptq/equalize.h"
#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/runtime/interpreter.h"
#include "tests/export/export_support.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::undefined_in_quantization_test {
namespace {

const Variable kNone;

struct Call {
  std::string name;
  std::string says;  // part of the message
  std::function<void()> call;
};

void PrintTo(const Call& c, std::ostream* out) { *out << c.name; }

ModulePtr<> prepared() {
  Rng rng(1);
  const ModulePtr<> model =
      qat::prepare(sequential({{"fc", linear(4, 3, rng)}}), qat::w8a8({"Linear"})).model;
  model(Variable(testing::random_tensor({2, 4}, 1, DType::kF32)), {.training = true});
  return model;
}

std::shared_ptr<Module> child(const char* name) { return prepared()->slot(name).module(); }

Tensor nothing(std::int64_t) { return {}; }

void export_nothing(const char* format) {
  const testing::TemporaryFolder folder;
  deploy::export_format(format).write(folder.path() / "file", {}, {});
}

class UndefinedInQuantization : public ::testing::TestWithParam<Call> {};

TEST_P(UndefinedInQuantization, IsAnErrorThatSaysSo) {
  try {
    GetParam().call();
    FAIL() << "no exception";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, UndefinedInQuantization,
    ::testing::ValuesIn(std::vector<Call>{
        {"prepare", "null", [] { qat::prepare(nullptr, qat::w8a8({"Linear"})); }},
        {"equalize", "null", [] { qat::equalize(nullptr); }},
        {"training", "undefined", [] { prepared()(kNone, {.training = true}); }},
        {"evaluation", "undefined", [] { prepared()(kNone, {}); }},
        {"forward", "undefined", [] { (*prepared()).forward(kNone, {}); }},
        {"layer", "undefined", [] { child("fc")->forward(kNone, {}); }},
        {"weight_quantizer", "undefined", [] { child("fc.weight_quantizer")->forward(kNone, {}); }},
        {"output_quantizer", "undefined", [] { child("fc.output_quantizer")->forward(kNone, {}); }},
        {"quantize", "undefined",
         [] { dynamic_cast<qat::FakeQuantize&>(*child("input_quantizer")).quantize(Tensor()); }},
        {"calibrate", "undefined", [] { qat::calibrate(*prepared(), 1, nothing); }},
        {"measure", "undefined", [] { qat::measure_tensors(*prepared(), 1, nothing, 8); }},
        {"reestimate", "undefined",
         [] { qat::reestimate_batch_norms(*prepared(), 1, nothing, 1); }},
        {"float_means", "undefined", [] { qat::float_means(*prepared(), Tensor()); }},
        {"correct_biases", "undefined", [] { qat::correct_biases(*prepared(), Tensor(), {}); }},
        {"learn_rounding", "undefined", [] { qat::learn_rounding(*prepared(), Tensor(), {}); }},
        {"dequantized", "undefined", [] { dequantized(qat::QuantizedValue()); }},
        {"dequantized_weight", "undefined", [] { dequantized(qat::WeightCodes()); }},
        {"trace", "undefined", [] { deploy::trace(*prepared(), Tensor(), "none"); }},
        {"interpreter_of_no_graph", "graph", [] { deploy::Interpreter interpreter{{}}; }},
        {"interpreter_run", "undefined",
         [] {
           const auto model = prepared();
           const Tensor x = Tensor::zeros({1, 4});
           deploy::Interpreter(deploy::trace(*model, x, "fc").graph).run(Tensor());
         }},
        {"interpreter_run_raw", "undefined",
         [] {
           const auto model = prepared();
           const Tensor x = Tensor::zeros({1, 4});
           deploy::Interpreter(deploy::trace(*model, x, "fc").graph).run_raw(Tensor());
         }},
        {"compare_outputs", "undefined", [] { deploy::compare_outputs(Tensor(), Tensor(), true); }},
        {"save_no_graph", "graph", [] { export_nothing("safetensors"); }},
        {"c_header_of_no_graph", "graph", [] { export_nothing("c"); }},
    }),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace steelyard::undefined_in_quantization_test
