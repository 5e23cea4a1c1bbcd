// A decoder's passes over new tokens alone against its passes over all of them.
#include "steelyard/layers/decoding.h"

#include <gtest/gtest.h>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/qat/blocks/block_layers.h"
#include "steelyard/recipes/text/generation.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_decoder.h"

namespace steelyard {
namespace {

using kernels::BlockType;
using testing::all_close;
using testing::message_of;
using testing::TinyDecoder;
using Tokens = std::vector<std::int64_t>;

std::shared_ptr<Module> model_of(const TinyDecoder& decoder, BlockType target,
                                 std::optional<std::int64_t> border = {}) {
  const testing::TemporaryFolder folder;
  const GgufReader file(testing::write_decoder(folder / "tiny.gguf", decoder));
  const imports::Imported imported = imports::import_decoder(file, 1, border);
  std::shared_ptr<Module> model = imports::build(imported.graph, true, "tiny.gguf");
  load_into(*model, imported.weights, "tiny.gguf");
  if (target != BlockType::kF32) qat::use_blocks(*model, target);
  return model;
}

Tensor row_of(const Tokens& tokens) {
  return Tensor::from(tokens, {1, std::ssize(tokens)}).to(DType::kF32);
}

// The logits after the last of the tokens, by a pass over all.
Tensor whole_pass(Module& model, const Tokens& tokens) {
  const NoGradGuard no_grad;
  const Tensor all = model(Variable(row_of(tokens)), {}).value();
  const Tensor last = Tensor::empty({1, 1, all.dim(-1)});
  std::copy_n(all.data<float>() + all.size() - last.size(), last.size(), last.data<float>());
  return last;
}

struct DecodingCase {
  const char* name;
  TinyDecoder decoder;
  BlockType target;
};

class Kept : public ::testing::TestWithParam<DecodingCase> {
 protected:
  std::shared_ptr<Module> model_ = model_of(GetParam().decoder, GetParam().target);
};

TEST_P(Kept, LogitsAreThoseOfAPassOverAllTokens) {
  Decoding decoding(*model_, 64);
  Tokens all;
  for (const Tokens& more : {Tokens{3, 1, 39, 0, 17}, Tokens{8}, Tokens{2, 3}, Tokens{9},
                             Tokens(50, 11), Tokens{4, 4, 5, 6}, Tokens{1}}) {
    all.insert(all.end(), more.begin(), more.end());
    const Tensor logits = decoding.next(row_of(more));
    EXPECT_EQ(logits.shape(), (Shape{1, 1, 40}));
    EXPECT_TRUE(all_close(logits, whole_pass(*model_, all), 1e-5, 1e-5)) << all.size();
  }
  EXPECT_EQ(all.size(), 64U) << "its room";
  EXPECT_EQ(message_of<std::invalid_argument>([&] { decoding.next(row_of({1})); }),
            "[CausalAttention] expected one text of at most 64 positions, got 1 of 65");
}

TEST_P(Kept, TokensAreThoseOfPassesOverAllTokens) {
  for (const Tokens& prompt : {Tokens{5}, Tokens{3, 1, 39, 0, 17, 8, 5}}) {
    const std::int64_t most = 64 - std::ssize(prompt);
    Tokens expected = prompt, added;
    Rng unused(1);
    while (expected.size() < 64) {
      const Tensor logits = whole_pass(*model_, expected);
      expected.push_back(choose_token(logits.span<float>(), {}, unused));
    }
    expected.erase(expected.begin(), expected.begin() + std::ssize(prompt));
    generate(*model_, prompt, most, {}, 1, [&](std::int64_t token) {
      added.push_back(token);
      return true;
    });
    EXPECT_EQ(added, expected);
  }
}

TinyDecoder llama_with_factors() {
  TinyDecoder decoder = testing::tiny_llama();
  decoder.factors = true;
  return decoder;
}

INSTANTIATE_TEST_SUITE_P(
    Files, Kept,
    ::testing::Values(DecodingCase{"llama", llama_with_factors(), BlockType::kF32},
                      DecodingCase{"qwen2", testing::tiny_qwen2(), BlockType::kF32},
                      DecodingCase{"qwen3", testing::tiny_qwen3(), BlockType::kF32},
                      DecodingCase{"llama_q4_0", testing::tiny_llama(), BlockType::kQ4_0},
                      DecodingCase{"qwen2_q8_0", testing::tiny_qwen2(), BlockType::kQ8_0},
                      DecodingCase{"qwen3_mxfp4", testing::tiny_qwen3(), BlockType::kMxfp4}),
    [](const auto& param) { return param.param.name; });

// llama.cpp knows of no borders between documents.
TEST(Decoding, TakesATextAsOneDocument) {
  const std::shared_ptr<Module> separate =
      model_of(testing::tiny_llama(), BlockType::kF32, /*border=*/7);
  const std::shared_ptr<Module> plain = model_of(testing::tiny_llama(), BlockType::kF32);
  const Tokens tokens{3, 7, 1, 4};
  const Tensor logits = Decoding(*separate, 4).next(row_of(tokens));
  EXPECT_TRUE(all_close(logits, whole_pass(*plain, tokens), 1e-5, 1e-5));
  EXPECT_FALSE(all_close(logits, whole_pass(*separate, tokens), 1e-3, 1e-3));
}

TEST(Generation, EndsWhenItIsTold) {
  const std::shared_ptr<Module> model = model_of(testing::tiny_llama(), BlockType::kF32);
  int count = 0;
  generate(*model, {1}, 20, {}, 1, [&](std::int64_t) { return ++count < 3; });
  EXPECT_EQ(count, 3);
}

TEST(Decoding, TakesDecoders) {
  const std::shared_ptr<Module> model = model_of(testing::tiny_llama(), BlockType::kF32);
  const auto message = [](const Module& of, std::int64_t room) {
    return message_of<std::invalid_argument>([&] { Decoding(of, room); });
  };
  EXPECT_EQ(message(*model, 0), "[Decoding] expected a room of at least 1, got 0");
  EXPECT_EQ(message(Sequential(Sequential::Children{}), 1),
            "[Decoding] expected a model with CausalAttention");
  EXPECT_EQ(message(SwiGLU(), 1), "[Decoding] expected a graph of a decoder's layers, got SwiGLU");
}

}  // namespace
}  // namespace steelyard
