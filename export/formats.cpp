#include "steelyard/export/formats.h"

#include <stdexcept>

#include "steelyard/export/c_header.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/tflite.h"
#include "steelyard/export/tflite_model.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::deploy {
namespace {

bool always() { return true; }
std::string nothing(const Graph&) { return ""; }

// Of a format that rounds as floats.
template <std::string (*refusal)(const Graph&)>
std::string refusal_in_floats(const Graph& graph) {
  for (const Value& value : graph.values) {
    if (value.quantization && value.quantization->fixed_point()) {
      return "it has no codes in fixed point, as the profile tflm has them";
    }
  }
  return refusal(graph);
}

// Throws what a format refuses.
void require_form(const std::string& refusal) {
  if (!refusal.empty()) throw InputError("export: " + refusal);
}

}  // namespace

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> formats{
      {"safetensors", "safetensors", ".safetensors", true, true, always, nothing,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions&) {
         save_graph(path, graph);
       }},
      {"onnx", "ONNX", ".onnx", true, false, can_write_onnx, refusal_in_floats<onnx_refusal>,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions& options) {
         require_form(refusal_in_floats<nothing>(graph));
         write_onnx(path, graph, options.onnx);
       }},
      {"c", "C", ".h", false, false, always, refusal_in_floats<c_refusal>,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions&) {
         require_form(refusal_in_floats<c_refusal>(graph));
         write_c_header(path, graph);
       }},
      {"tflite", "TFLite", ".tflite", false, true, can_write_tflite, tflite_refusal,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions&) {
         require_form(tflite_refusal(graph));
         write_tflite(path, graph);
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

std::vector<std::string> default_format_names(qat::Profile profile) {
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) {
    const bool chosen = qat::is_fixed_point(profile) ? format.fixed_by_default : format.by_default;
    if (chosen && format.can_write()) names.emplace_back(format.name);
  }
  return names;
}

}  // namespace steelyard::deploy
