// Small random language models as folders of transformers, of the same weights as a GGUF file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_decoder.h"

namespace steelyard::testing {

// What the folder calls a tensor of the GGUF file.
inline std::string huggingface_name(const std::string& gguf) {
  static const std::map<std::string, std::string> kParts = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_output", "self_attn.o_proj"},
      {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"}};
  const std::size_t last = gguf.rfind('.'), before = gguf.rfind('.', last - 1);
  const bool in_block = gguf.starts_with("blk.");
  const std::string part =
      in_block ? gguf.substr(before + 1, last - before - 1) : gguf.substr(0, last);
  const std::string block = in_block ? "model.layers." + gguf.substr(4, before - 3) : "";
  return block + kParts.at(part) + gguf.substr(last);
}

// Rows of queries and keys as transformers orders them: convert_hf_to_gguf.py puts the halves of a
// llama's heads side by side.
inline Tensor huggingface_rows(const TinyDecoder& d, const NamedTensor& t) {
  const bool paired =
      t.name.find("attn_q.") != std::string::npos || t.name.find("attn_k.") != std::string::npos;
  if (d.architecture != "llama" || !paired) return t.tensor;
  Tensor rows = Tensor::empty(t.tensor.shape());
  const std::int64_t width = d.head_width(), columns = t.tensor.size() / t.tensor.dim(0);
  for (std::int64_t r = 0; r < t.tensor.dim(0); ++r) {
    const std::int64_t head = r / width * width, at = r % width;
    const std::int64_t to = head + at / 2 + (at % 2) * (width / 2);
    std::copy_n(t.tensor.data<float>() + r * columns, columns, rows.data<float>() + to * columns);
  }
  return rows;
}

inline nlohmann::json huggingface_config(const TinyDecoder& d) {
  return {{"model_type", d.architecture},
          {"hidden_size", d.width},
          {"intermediate_size", d.hidden},
          {"num_hidden_layers", d.blocks},
          {"num_attention_heads", d.heads},
          {"num_key_value_heads", d.key_heads},
          {"head_dim", d.head_width()},
          {"vocab_size", d.vocabulary},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5F},
          {"rope_theta", 100.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", d.tied},
          {"eos_token_id", 39}};
}

inline std::filesystem::path write_huggingface_folder(const std::filesystem::path& folder,
                                                      const TinyDecoder& d,
                                                      const nlohmann::json& config,
                                                      DType dtype = DType::kF32) {
  std::filesystem::create_directories(folder);
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& t : tensors_of(d)) {
    if (t.name == "rope_freqs.weight") continue;
    tensors.push_back({huggingface_name(t.name), huggingface_rows(d, t).to(dtype)});
  }
  write_safetensors(folder / "model.safetensors", {std::move(tensors), {{"format", "pt"}}});
  write_bytes(folder / "config.json", config.dump());
  return folder;
}

}  // namespace steelyard::testing
