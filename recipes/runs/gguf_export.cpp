#include "steelyard/recipes/runs/gguf_export.h"

#include <algorithm>
#include <map>

#include "steelyard/framework/files/gguf/gguf_rewrite.h"
#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "steelyard/qat/blocks/block_layers.h"
#include "steelyard/qat/blocks/block_ops.h"
#include "steelyard/qat/blocks/stored_layers.h"
#include "steelyard/recipes/models/imported_model.h"

namespace steelyard {
namespace {

using Schemes = std::map<std::string, qat::BlockScheme>;  // of the parameters that are blocks

void compare_weights(const GgufReader& file, Module& model, const Schemes& schemes,
                     GgufComparison& result) {
  const NoGradGuard no_grad;
  for (const NamedParameter& p : model.named_parameters()) {
    const std::string name = imports::tensor_of_parameter(p.name);
    const GgufTensor* tensor = file.find(name);
    if (tensor == nullptr || shape_of(*tensor) != p.variable.shape()) {
      throw InputError(file.name() + ": expected a tensor '" + name + "' " +
                       shape_string(p.variable.shape()));
    }
    const Tensor stored = read_values(file, *tensor);
    if (const auto blocks = schemes.find(p.name); blocks != schemes.end()) {
      result.values += stored.size();
      result.differing_values +=
          differing_values(stored, qat::block_values(p.variable, blocks->second).value());
    } else {
      result.others += stored.size();
      result.differing_others += differing_values(stored, p.variable.value());
    }
  }
}

// The model of the file alone, with the arithmetic of training: products are those of the file's
// blocks where training has blocks.
std::shared_ptr<Module> model_of(const GgufReader& file, std::int64_t length,
                                 const Schemes& schemes,
                                 const std::optional<TokenOptions>& tokens) {
  const imports::Imported imported =
      imports::import_decoder(file, length, document_border(tokens, file));
  std::shared_ptr<Module> model = imports::build(imported.graph, /*with_head=*/true, file.name());
  load_into(*model, imported.weights, file.name());
  qat::use_stored_blocks(*model, [&](const std::string& parameter) {
    const GgufTensor* tensor = file.find(imports::tensor_of_parameter(parameter));
    const auto type = tensor == nullptr ? std::nullopt : block_type_of(*tensor);
    const bool blocks = schemes.contains(parameter) && type && qat::has_block_product(*type);
    return blocks ? std::optional(qat::StoredBlocks{read_blocks(file, *tensor), *type})
                  : std::nullopt;
  });
  return model;
}

void compare_logits(Module& ours, Module& theirs, const Dataset& test, GgufComparison& result) {
  const Tensor a = outputs_of(ours, test, {}, 1), b = outputs_of(theirs, test, {}, 1);
  result.tokens = a.size() / a.dim(-1);
  result.differing_tokens = differing_tokens(a, b);
}

}  // namespace

std::filesystem::path gguf_path(const std::filesystem::path& folder) {
  return folder / "model.gguf";
}

std::filesystem::path source_gguf(const LoadedRun& run) {
  const std::filesystem::path source = run.experiment->recipe().model.gguf.value();
  const auto known = run.sources.find("model.gguf");
  if (known != run.sources.end() && sha256_of_file(source) != known->second) {
    throw InputError(printable(source.string()) +
                     ": model.gguf: expected the file that the run began with, which has its "
                     "metadata and its vocabulary (sha256 " +
                     known->second + ")");
  }
  return source;
}

void write_gguf(const LoadedRun& run, const std::filesystem::path& path) {
  Experiment& experiment = *run.experiment;
  const std::filesystem::path source = source_gguf(run);
  if (std::error_code error; std::filesystem::equivalent(source, path, error)) {
    throw InputError(printable(path.string()) +
                     ": is the float model (model.gguf), which the new file would replace: "
                     "expected another folder");
  }
  const GgufReader file(source);
  const Schemes schemes = qat::block_weights(experiment.model());
  std::vector<GgufValues> values;
  for (const NamedParameter& p : experiment.model().named_parameters()) {
    GgufValues& added =
        values.emplace_back(GgufValues{imports::tensor_of_parameter(p.name), p.variable.value()});
    const auto blocks = schemes.find(p.name);
    if (blocks == schemes.end()) continue;
    added.type = blocks->second.type;
    added.searched = blocks->second.scales == qat::BlockScales::kSearch;
  }
  rewrite_gguf(file, values, path);
}

GgufComparison compare_gguf(const LoadedRun& run, const std::filesystem::path& path,
                            std::int64_t samples) {
  Experiment& experiment = *run.experiment;
  const GgufReader file(path);
  const Schemes schemes = qat::block_weights(experiment.model());
  GgufComparison result;
  compare_weights(file, experiment.model(), schemes, result);
  const Dataset test =
      spread_samples(experiment.test(), std::min(samples, experiment.test().size()));
  const std::shared_ptr<Module> theirs =
      model_of(file, test.sample_shape()[0], schemes, experiment.recipe().data.tokens);
  compare_logits(experiment.model(), *theirs, test, result);
  return result;
}

}  // namespace steelyard
