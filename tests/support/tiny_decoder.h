// Small random language models as GGUF files.
#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/tensor/named_tensor.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {

struct TinyDecoder {
  std::string architecture = "llama";
  bool tied = true, biases = false, head_norms = false, factors = false;
  kernels::BlockType type = kernels::BlockType::kF32;  // of matrices; vectors are f32
  std::int64_t blocks = 2, width = 32, hidden = 64, heads = 4, key_heads = 2, vocabulary = 40;

  std::int64_t head_width() const { return width / heads; }
};

inline TinyDecoder tiny_llama() { return {}; }
inline TinyDecoder tiny_qwen2() { return {.architecture = "qwen2", .tied = false, .biases = true}; }
inline TinyDecoder tiny_qwen3() { return {.architecture = "qwen3", .head_norms = true}; }

// f32, in an order that files have: values around 0, of vectors around 1.
inline std::vector<NamedTensor> tensors_of(const TinyDecoder& d) {
  std::vector<NamedTensor> all;
  const auto add = [&](const std::string& name, const Shape& shape) {
    Tensor values = random_tensor(shape, all.size() + 1, DType::kF32);
    for (float& value : values.span<float>()) {
      value = shape.size() == 1 ? 1 + 0.2F * value : 0.3F * value;
    }
    all.push_back({name, values});
  };
  add("token_embd.weight", {d.vocabulary, d.width});
  if (d.factors) add("rope_freqs.weight", {d.head_width() / 2});
  for (std::int64_t i = 0; i < d.blocks; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    const std::int64_t keys = d.key_heads * d.head_width();
    add(block + "attn_norm.weight", {d.width});
    for (const auto& [name, rows] :
         {std::pair{"attn_q", d.width}, std::pair{"attn_k", keys}, std::pair{"attn_v", keys}}) {
      add(block + name + ".weight", {rows, d.width});
      if (d.biases) add(block + name + ".bias", {rows});
    }
    for (const char* name : {"attn_q_norm", "attn_k_norm"}) {
      if (d.head_norms) add(block + name + ".weight", {d.head_width()});
    }
    add(block + "attn_output.weight", {d.width, d.width});
    add(block + "ffn_norm.weight", {d.width});
    add(block + "ffn_gate.weight", {d.hidden, d.width});
    add(block + "ffn_up.weight", {d.hidden, d.width});
    add(block + "ffn_down.weight", {d.width, d.hidden});
  }
  add("output_norm.weight", {d.width});
  if (!d.tied) add("output.weight", {d.vocabulary, d.width});
  return all;
}

inline std::vector<GgufEntry> entries_of(const TinyDecoder& d) {
  const auto number = [](std::int64_t n) { return GgufValue::of_u32(static_cast<unsigned>(n)); };
  const std::string prefix = d.architecture + ".";
  return {{"general.architecture", GgufValue::of_string(d.architecture)},
          {"general.name", GgufValue::of_string("tiny")},
          {prefix + "block_count", number(d.blocks)},
          {prefix + "context_length", number(64)},
          {prefix + "embedding_length", number(d.width)},
          {prefix + "feed_forward_length", number(d.hidden)},
          {prefix + "attention.head_count", number(d.heads)},
          {prefix + "attention.head_count_kv", number(d.key_heads)},
          {prefix + "attention.layer_norm_rms_epsilon", GgufValue::of_f32(1e-5F)},
          {prefix + "rope.freq_base", GgufValue::of_f32(100.0F)},
          {"tokenizer.ggml.tokens", GgufValue::of_strings({"a", "b"})}};
}

inline void write_gguf(const std::filesystem::path& path, const std::vector<GgufEntry>& entries,
                       const std::vector<NamedTensor>& tensors, kernels::BlockType type) {
  std::vector<GgufTensor> header;
  for (const NamedTensor& t : tensors) {
    const Shape& shape = t.tensor.shape();
    const auto of = shape.size() == 1 ? kernels::BlockType::kF32 : type;
    header.push_back({t.name, {shape.rbegin(), shape.rend()}, &kernels::ggml_type(of)});
  }
  GgufWriter writer(path, entries, header);
  for (const NamedTensor& t : tensors) {
    const auto of = t.tensor.rank() == 1 ? kernels::BlockType::kF32 : type;
    visit_blocks(of, [&](auto format) {
      using Format = decltype(format);
      const std::int64_t n = t.tensor.size() / Format::kElements;
      std::vector<std::uint8_t> bytes(n * Format::kBytes);
      run(Device{},
          kernels::EncodeBlocks<Format>{
              .n = n, .x = t.tensor.data<float>(), .scales = nullptr, .blocks = bytes.data()});
      writer.write(bytes.data(), bytes.size());
    });
  }
  writer.commit();
}

inline std::filesystem::path write_decoder(const std::filesystem::path& path,
                                           const TinyDecoder& decoder) {
  write_gguf(path, entries_of(decoder), tensors_of(decoder), decoder.type);
  return path;
}

}  // namespace steelyard::testing
