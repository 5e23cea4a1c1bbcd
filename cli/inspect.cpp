#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/files/torch_file.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/runtime/graph_file.h"

namespace steelyard::cli {
namespace {

constexpr std::size_t kMetadataWidth = 100;

// The network that a run folder or an exported model holds.
ExitCode print_graph(const std::string& path, const Registries& registries) {
  if (!is_folder(path)) {
    fmt::print("{}", deploy::to_string(deploy::load_graph(path)));
    return kDone;
  }
  const LoadedRun run = load_run(path, "last", registries, RunData::kNone);
  print_notes(run.notes);
  fmt::print("{}", deploy::to_string(deployed_graph(*run.experiment)));
  return kDone;
}

struct ListedTensor {
  std::string name;
  std::string_view type;
  Shape shape;
  std::uint64_t bytes;
};

// A file of tensors: what it is, its metadata, and what it holds.
struct Listing {
  std::string what;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<ListedTensor> tensors;
};

Listing listing_of(std::string what, const TensorFile& file) {
  Listing listing{std::move(what), {file.metadata.begin(), file.metadata.end()}, {}};
  for (const NamedTensor& t : file.tensors) {
    listing.tensors.push_back({t.name, dtype_name(t.tensor.dtype()), t.tensor.shape(),
                               static_cast<std::uint64_t>(t.tensor.bytes())});
  }
  return listing;
}

std::string text_of(const GgufValue& value) {
  if (const auto text = value.text()) return std::string(*text);
  if (const auto number = value.whole_number()) return std::to_string(*number);
  if (const auto number = value.number()) {
    return value.type == GgufValueType::kF32 ? fmt::format("{}", static_cast<float>(*number))
                                             : fmt::format("{}", *number);
  }
  return fmt::format("{} {}", value.count,
                     value.element == GgufValueType::kString ? "texts" : "numbers");
}

Listing listing_of_gguf(const std::string& path) {
  const GgufReader file(path);
  Listing listing{"GGUF model", {}, {}};
  for (const GgufEntry& entry : file.header().entries) {
    listing.metadata.emplace_back(entry.key, text_of(entry.value));
  }
  for (const GgufTensor& t : file.header().tensors) {
    listing.tensors.push_back({t.name, t.type->name, shape_of(t), t.bytes()});
  }
  return listing;
}

Listing listing_of(const std::string& path) {
  const std::string kind = kind_of(InputFile(path));
  if (kind == kGgufKind) return listing_of_gguf(path);
  if (kind == kTorchKind) {
    TorchFile file = read_torch_file(path);
    const std::string entry = file.entry.empty() ? "" : ", entry '" + file.entry + "'";
    return listing_of("PyTorch file" + entry, {std::move(file.tensors), {}});
  }
  const bool native = SafetensorsReader(path).header().metadata.contains("format_version");
  return listing_of(native ? "Steelyard checkpoint, checksums verified" : "safetensors file",
                    load_tensors(path));
}

ExitCode list_tensors(const std::string& path) {
  if (is_folder(path)) {
    throw InputError(
        printable(path) +
        ": expected a regular file, got a folder (of a run, --graph prints the network; "
        "its checkpoint is last.safetensors)");
  }
  const Listing listing = listing_of(path);
  fmt::print("{}: {}, {} tensors\n", shown(path), listing.what, listing.tensors.size());
  for (const auto& [key, value] : listing.metadata) {
    fmt::print("  {} = {}\n", printable(key), printable(value, kMetadataWidth));
  }
  std::size_t width = 0;
  for (const ListedTensor& t : listing.tensors) width = std::max(width, printable(t.name).size());
  std::uint64_t bytes = 0;
  for (const ListedTensor& t : listing.tensors) {
    fmt::print("{:<{}}  {:<6}  {:<18} {:>12} bytes\n", printable(t.name), width, t.type,
               shape_string(t.shape), t.bytes);
    bytes += t.bytes;
  }
  fmt::print("{} bytes of tensors\n", bytes);
  return kDone;
}

}  // namespace

Verb add_inspect(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  auto graph = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand(
      "inspect", "List the tensors and metadata of a file, or print the network of a run");
  verb->add_option("file", *path,
                   "A checkpoint, safetensors, PyTorch or GGUF file; with --graph an exported "
                   "model.safetensors or a run's folder")
      ->required();
  verb->add_flag("--graph", *graph, "Print the deployed network, operation by operation");
  return [path, graph](const Registries& registries) {
    return *graph ? print_graph(*path, registries) : list_tensors(*path);
  };
}

}  // namespace steelyard::cli
