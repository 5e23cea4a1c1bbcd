#include "steelyard/export/formats.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/export/c/c_header.h"
#include "steelyard/export/c/c_program.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/tflite/tflite.h"
#include "steelyard/export/tflite/tflite_model.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::deploy {
namespace {

bool always() { return true; }
std::string nothing(const Graph&) { return ""; }

using Paths = std::vector<std::filesystem::path>;

bool in_fixed_point(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) {
    return value.quantization && value.quantization->fixed_point();
  });
}

// Of a format that rounds as floats.
template <std::string (*refusal)(const Graph&)>
std::string refusal_in_floats(const Graph& graph) {
  if (in_fixed_point(graph)) return "it has no codes in fixed point, as the profile tflm has them";
  return refusal(graph);
}

// Graphs in fixed point are programs in C, others tables of constants.
std::string refusal_in_c(const Graph& graph) {
  return in_fixed_point(graph) ? c_program_refusal(graph) : c_refusal(graph);
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
         return Paths{path};
       }},
      {"onnx", "ONNX", ".onnx", true, false, can_write_onnx, refusal_in_floats<onnx_refusal>,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions& options) {
         require_form(refusal_in_floats<nothing>(graph));
         write_onnx(path, graph, options.onnx);
         return Paths{path};
       }},
      {"c", "C", ".h", false, false, always, refusal_in_c,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions& options) {
         require_form(refusal_in_c(graph));
         if (in_fixed_point(graph))
           return write_c_program(path, graph, options.stream, options.c_prefix);
         write_c_header(path, graph);
         return Paths{path};
       }},
      {"tflite", "TFLite", ".tflite", false, true, can_write_tflite, tflite_refusal,
       [](const std::filesystem::path& path, const Graph& graph, const ExportOptions& options) {
         require_form(tflite_refusal(graph));
         write_tflite(path, graph,
                      {.pack_int4 = options.tflite_pack_int4, .stream = options.stream});
         return Paths{path};
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
