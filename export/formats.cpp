#include "steelyard/export/formats.h"

#include <stdexcept>

#include "steelyard/export/c_header.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::deploy {
namespace {

bool always() { return true; }
std::string nothing(const Graph&) { return ""; }

}  // namespace

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> formats{
      {"safetensors", "safetensors", ".safetensors", true, always, nothing,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions&) {
         save_graph(path, graph);
       }},
      {"onnx", "ONNX", ".onnx", true, can_write_onnx, onnx_refusal,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions& options) {
         write_onnx(path, graph, options.onnx);
       }},
      {"c", "C", ".h", false, always, c_refusal,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions&) {
         if (const std::string why = c_refusal(graph); !why.empty()) {
           throw InputError("export: " + why);
         }
         write_c_header(path, graph);
       }},
  };
  return formats;
}

const ExportFormat& export_format(std::string_view name) {
  std::string known;
  for (const ExportFormat& format : export_formats()) {
    if (format.name == name) return format;
    known.append(known.empty() ? "" : ", ").append(format.name);
  }
  throw std::invalid_argument("[export] unknown format '" + std::string(name) +
                              "', expected one of " + known);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> default_format_names() {
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) {
    if (format.by_default && format.can_write()) names.emplace_back(format.name);
  }
  return names;
}

}  // namespace steelyard::deploy
