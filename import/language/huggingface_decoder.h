// Language models from folders of Hugging Face's transformers: config.json beside safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors_folder.h"
#include "steelyard/import/language/decoder_network.h"
#include "steelyard/import/translate.h"

namespace steelyard::imports {

// The largest config.json that is read.
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;

inline constexpr const char* kConfigFile = "config.json";

// The tensor of a folder that a parameter or a module is: of
// model_layers_0_self_attn_q_proj.weight model.layers.0.self_attn.q_proj.weight.
std::string huggingface_tensor(const std::string& parameter);

// The network and the weights of a folder for sequences of `length` tokens: a decoder that gives
// [length, vocabulary] logits. Parameters have the names of the folder's tensors, with underscores
// for the points before a module's name. Attention does not look over tokens `border`, after which
// positions begin again at 0. Source: transformers' LlamaConfig, MistralConfig, Qwen2Config and
// Qwen3Config. Throws InputError that names the file, and the key or the tensor, for another
// model_type, what it has that is not known here, and whatever does not fit.
Imported import_huggingface(const std::filesystem::path& folder, std::int64_t length,
                            std::optional<std::int64_t> border = {});
// The network that config.json says, with these weights.
Imported import_huggingface(const std::filesystem::path& folder, std::int64_t length,
                            std::optional<std::int64_t> border, DecoderWeights& weights);

// Tokens of the longest sequence that the model was made for and whose every token sees all before
// it, where the folder says it.
std::optional<std::int64_t> context_of(const std::filesystem::path& folder);

// The tokens that end a text (eos_token_id), the first of which is put behind documents.
std::vector<std::int64_t> ends_of_text(const std::filesystem::path& folder);

// The sha256 of config.json and of the files with the weights, together.
std::string digest_of_huggingface(const std::filesystem::path& folder);

}  // namespace steelyard::imports
