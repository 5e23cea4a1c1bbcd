// Language models of transformers' folders beside the same models as GGUF files.
#include "steelyard/import/language/huggingface_decoder.h"

#include <gtest/gtest.h>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "tests/support/huggingface_folder.h"

namespace steelyard::imports {
namespace {

using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;
using testing::TinyDecoder;

constexpr std::int64_t kLength = 6;

Tensor logits_of(const Imported& imported) {
  const std::shared_ptr<Module> model = build(imported.graph, true, "tiny");
  load_into(*model, imported.weights, "tiny");
  const NoGradGuard no_grad;
  ForwardContext context;
  const std::vector<float> tokens{3, 1, 39, 0, 17, 8};
  return (*model)(Variable(Tensor::from(tokens, {1, kLength})), context).value();
}

class HuggingfaceDecoder : public ::testing::TestWithParam<TinyDecoder> {
 protected:
  TemporaryFolder folder_;
};

TEST_P(HuggingfaceDecoder, IsTheModelOfTheGgufFile) {
  const TinyDecoder& d = GetParam();
  const GgufReader file(testing::write_decoder(folder_ / "tiny.gguf", d));
  const auto folder =
      testing::write_huggingface_folder(folder_ / "tiny", d, testing::huggingface_config(d));
  for (const std::optional<std::int64_t> border : {std::optional<std::int64_t>(), {39}}) {
    const Tensor theirs = logits_of(import_decoder(file, kLength, border));
    const Tensor ours = logits_of(import_huggingface(folder, kLength, border));
    // A llama's heads rotate the same pairs at other places: the sums have another order.
    EXPECT_TRUE(testing::all_close(ours, theirs, 1e-5, 1e-5));
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingfaceDecoder,
                         ::testing::Values(testing::tiny_llama(), testing::tiny_qwen2(),
                                           testing::tiny_qwen3()),
                         [](const auto& i) { return i.param.architecture; });

class HuggingfaceFolder : public ::testing::Test {
 protected:
  std::string error(const json& changes, const TinyDecoder& d = testing::tiny_llama(),
                    std::int64_t length = kLength, std::optional<std::int64_t> border = {}) {
    json config = testing::huggingface_config(d);
    config.merge_patch(changes);
    const auto folder = testing::write_huggingface_folder(folder_ / "tiny", d, config);
    return message_of<InputError>([&] { import_huggingface(folder, length, border); });
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingfaceFolder, IsRefusedWhereItIsNotKnown) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"model_type", "gemma3"}},
       "'model_type': expected one of llama, mistral, qwen2, qwen3, got 'gemma3'"},
      {{{"num_hidden_layers", nullptr}},
       "'num_hidden_layers': expected a whole number, the file has none"},
      {{{"hidden_size", 1.5}}, "'hidden_size': expected a whole number from 1 to 1048576, got 1.5"},
      {{{"hidden_size", 18446744073709551615U}},
       "'hidden_size': expected a whole number from 1 to 1048576, got 18446744073709551615"},
      {{{"num_key_value_heads", 3}}, "'num_key_value_heads': expected a divisor of the 4 heads"},
      {{{"head_dim", 7}}, "'head_dim': expected an even width of a head, got 7"},
      {{{"rms_norm_eps", -1}}, "'rms_norm_eps': expected a number above 0, got -1"},
      {{{"hidden_act", "gelu"}},
       "'hidden_act': expected \"silu\": other activations are not known here, got \"gelu\""},
      {{{"rope_scaling", {{"rope_type", "yarn"}}}},
       "'rope_scaling': expected the rotations default or llama3, got \"yarn\""},
      {{{"rope_parameters", {{"rope_type", "default"}}}, {"rope_scaling", {{"rope_type", "yarn"}}}},
       "'rope_scaling': expected none beside another rope_parameters"},
      {{{"rope_parameters", {{"rope_type", "llama3"}}}},
       "'factor': expected a number above 0, got none"},
      {{{"tie_word_embeddings", false}}, "expected a tensor 'lm_head.weight' [40, 32]"},
      {{{"attention_bias", true}}, "expected a tensor 'model.layers.0.self_attn.q_proj.bias' [32]"},
      {{{"num_hidden_layers", 1}},
       "tensor 'model.layers.1.input_layernorm.weight': expected a tensor of a llama model"},
      {{{"intermediate_size", 65}},
       "tensor 'model.layers.0.mlp.gate_proj.weight': expected [65, 32], got [64, 32]"}};
  for (const auto& [changes, message] : cases) {
    EXPECT_THAT(error(changes), ::testing::HasSubstr(message)) << changes;
  }
  EXPECT_THAT(error({{"sliding_window", 5}, {"model_type", "mistral"}}),
              ::testing::HasSubstr("'sliding_window': expected at least the 6 tokens"));
  EXPECT_THAT(error(json::object(), testing::tiny_llama(), 65),
              ::testing::HasSubstr("'max_position_embeddings': expected at least the 65 tokens"));
  EXPECT_THAT(error(json::object(), testing::tiny_llama(), kLength, 40),
              ::testing::HasSubstr("a token that ends documents below 40, got 40"));
}

TEST_F(HuggingfaceFolder, ReadsNarrowTypesAndDividesFrequencies) {
  const TinyDecoder d = testing::tiny_llama();
  json config = testing::huggingface_config(d);
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 40}};
  const auto folder = testing::write_huggingface_folder(folder_ / "tiny", d, config, DType::kBF16);
  const Imported imported = import_huggingface(folder, kLength);
  for (const NamedTensor& w : imported.weights) {
    EXPECT_EQ(w.tensor.dtype(), DType::kF32);
    if (w.name != "model_layers_0_self_attn_attention.factors") continue;
    // 40 positions are 40 / (2 pi 100^(i / 4)) = 6.37, 2.01, .64 and .20 turns of the pairs.
    const auto factors = w.tensor.span<float>();
    ASSERT_EQ(factors.size(), 4U);
    EXPECT_EQ(factors[0], 1.0F);
    EXPECT_NEAR(factors[1], 1 / (0.66231 / 8 + 0.33769), 1e-3);
    EXPECT_EQ(factors[2], 8.0F);
    EXPECT_EQ(factors[3], 8.0F);
  }
  EXPECT_EQ(ends_of_text(folder), std::vector<std::int64_t>{39});
  EXPECT_EQ(context_of(folder), 64);
  EXPECT_EQ(huggingface_tensor("model_layers_11_mlp_up_proj.weight"),
            "model.layers.11.mlp.up_proj.weight");
}

}  // namespace
}  // namespace steelyard::imports
