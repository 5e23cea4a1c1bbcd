// Language models from GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/import/translate.h"

namespace steelyard::imports {

// The values of general.architecture that are known, sorted.
std::vector<std::string> known_architectures();

// The tensor of a file that a parameter is: of blk_0_attn_q.weight blk.0.attn_q.weight.
std::string tensor_of_parameter(const std::string& parameter);

// The network and the weights of a file for sequences of `length` tokens: a decoder that gives
// [length, vocabulary] logits. Parameters have the names of the file's tensors, with underscores
// around the number of a block, and rows in the file's order. Attention does not look over tokens
// `border`, after which positions begin again at 0. Throws InputError that names the
// file, and the tensor or the key, for another architecture, what it has that is not known here,
// and whatever does not fit.
Imported import_decoder(const GgufReader& file, std::int64_t length,
                        std::optional<std::int64_t> border = {});

// Tokens of the longest sequence that the model was made for, where the file says it.
std::optional<std::int64_t> context_length(const GgufReader& file);

}  // namespace steelyard::imports
