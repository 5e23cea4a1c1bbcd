#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/graph_text.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/file_kind.h"
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

// A file of tensors, and what it is.
std::pair<TensorFile, std::string> read_tensors(const std::string& path) {
  if (kind_of(InputFile(path)) == kTorchKind) {
    TorchFile file = read_torch_file(path);
    const std::string entry = file.entry.empty() ? "" : ", entry '" + file.entry + "'";
    return {{std::move(file.tensors), {}}, "PyTorch file" + entry};
  }
  const bool native = SafetensorsReader(path).header().metadata.contains("format_version");
  return {load_tensors(path),
          native ? "Steelyard checkpoint, checksums verified" : "safetensors file"};
}

ExitCode list_tensors(const std::string& path) {
  if (is_folder(path)) {
    throw InputError(
        printable(path) +
        ": expected a regular file, got a folder (of a run, --graph prints the network; "
        "its checkpoint is last.safetensors)");
  }
  const auto [file, what] = read_tensors(path);
  fmt::print("{}: {}, {} tensors\n", shown(path), what, file.tensors.size());
  for (const auto& [key, value] : file.metadata) {
    fmt::print("  {} = {}\n", printable(key), printable(value, kMetadataWidth));
  }
  std::size_t width = 0;
  for (const NamedTensor& t : file.tensors) width = std::max(width, printable(t.name).size());
  std::int64_t bytes = 0;
  for (const NamedTensor& t : file.tensors) {
    fmt::print("{:<{}}  {:<4}  {:<18} {:>12} bytes\n", printable(t.name), width,
               dtype_name(t.tensor.dtype()), shape_string(t.tensor.shape()), t.tensor.bytes());
    bytes += t.tensor.bytes();
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
                   "A checkpoint, safetensors or PyTorch file; with --graph an exported "
                   "model.safetensors or a run's folder")
      ->required();
  verb->add_flag("--graph", *graph, "Print the deployed network, operation by operation");
  return [path, graph](const Registries& registries) {
    return *graph ? print_graph(*path, registries) : list_tensors(*path);
  };
}

}  // namespace steelyard::cli
