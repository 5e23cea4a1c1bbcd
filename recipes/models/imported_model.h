// Imported networks: `model: {onnx: file}`, `gguf` and `huggingface`.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/tokens/token_options.h"
#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/import/translate.h"
#include "steelyard/recipes/models/model_registry.h"

namespace steelyard {

// The key of checkpoints' metadata under which the network is.
inline constexpr const char* kNetworkKey = "network";

struct ImportedModel {
  imports::GraphSpec graph;
  std::optional<std::vector<NamedTensor>> weights = {};  // none of a checkpoint
  std::string sha256 = {};                               // of what was imported, likewise
  std::vector<std::string> notes = {};
};

// Reads the file or folder `spec.file()` for such samples, or the network of a checkpoint of a run
// that began with one. `tokens` says what documents are to a language model. Throws InputError;
// imports::UnsupportedGraph where an operation has no form here.
ImportedModel read_imported_model(const ModelSpec& spec, const imports::SampleSpec& sample,
                                  const std::optional<TokenOptions>& tokens = {});

// The token after which a language model of this file begins another document; none where a
// sequence is one text. Throws InputError where neither options nor file name one.
std::optional<std::int64_t> document_border(const std::optional<TokenOptions>& tokens,
                                            const GgufReader& file);
// The same of a folder of transformers.
std::optional<std::int64_t> document_border(const std::optional<TokenOptions>& tokens,
                                            const std::filesystem::path& folder);

// Throws InputError for a folder of transformers whose config.json says that its weights are codes.
void require_float_folder(const std::filesystem::path& folder);

// The float network, whose weights are not set. `classes` is the dataset's, 0 when it has none.
// Throws InputError where the samples or the outputs do not fit.
std::shared_ptr<Module> build_imported_model(const imports::GraphSpec& graph, const ModelSpec& spec,
                                             const imports::SampleSpec& sample,
                                             std::int64_t classes, bool with_head);

// The model and the activation after it (imports::GraphSpec::head), which it was built without.
std::shared_ptr<Module> with_output_activation(const imports::GraphSpec& graph,
                                               std::shared_ptr<Module> model);

}  // namespace steelyard
