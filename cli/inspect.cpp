#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/verbs.h"
#include "framework/checkpoint.h"
#include "framework/safetensors.h"

namespace steelyard::cli {
namespace {

ExitCode inspect(const std::string& path) {
  const TensorFile file = load_tensors(path);
  const bool native = SafetensorsReader(path).header().metadata.contains("format_version");
  fmt::print("{}: {}, {} tensors\n", path,
             native ? "Steelyard checkpoint, checksums verified" : "safetensors file",
             file.tensors.size());
  for (const auto& [key, value] : file.metadata) {
    fmt::print("  {} = {}\n", key, value);
  }
  std::size_t width = 0;
  for (const NamedTensor& t : file.tensors) width = std::max(width, t.name.size());
  std::int64_t bytes = 0;
  for (const NamedTensor& t : file.tensors) {
    fmt::print("{:<{}}  {:<4}  {:<18} {:>12} bytes\n", t.name, width, dtype_name(t.tensor.dtype()),
               shape_string(t.tensor.shape()), t.tensor.bytes());
    bytes += t.tensor.bytes();
  }
  fmt::print("{} bytes of tensors\n", bytes);
  return kDone;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "inspect", "List the tensors and metadata of a checkpoint or safetensors file");
  verb->add_option("file", *path, "The file")->required();
  return [path] { return inspect(*path); };
}

}  // namespace steelyard::cli
