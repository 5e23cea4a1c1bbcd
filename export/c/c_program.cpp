#include "steelyard/export/c/c_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>  // IWYU pragma: keep: the type is complete there
#include <stdexcept>
#include <utility>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_stream.h"
#include "steelyard/export/c/c_text.h"
#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/export/stream.h"
#include "steelyard/framework/data/normalizers.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/affine.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kMostTables = 4;   // of bytes, one for each channel
constexpr std::int64_t kTestSamples = 2;  // of the program's test

const Quantization& quantization_of(const Graph& graph, std::size_t value) {
  return *graph.values[value].quantization;
}

std::string first_comment(const Graph& graph, const char* what) {
  return fmt::format("/* {} of {}; model sha256 {}; profile {}. Written by steelyard export. */\n",
                     what, c_comment(graph.name),
                     graph.model_sha256.empty() ? "unknown" : c_comment(graph.model_sha256),
                     fixed_point_profile(graph));
}

// An error of the preprocessor unless the header's digest is this one.
std::string digest_check(const std::string& digest) {
  return fmt::format(
      "#if STEELYARD_MODEL_DIGEST != 0x{}U\n"
      "#error \"the files of a model are not of one export\"\n#endif\n",
      digest);
}

// `text` with other names than STEELYARD_... and steelyard_....
std::string with_prefix(std::string text, const std::string& prefix) {
  std::string upper = prefix;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& [from, to] : {std::pair(std::string("STEELYARD_"), upper + "_"),
                                 std::pair(std::string("steelyard_"), prefix + "_")}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

// A row of 256 codes for each channel of images of bytes, or one row where all have the same; empty
// where samples are no bytes.
std::vector<std::int8_t> code_tables(const Graph& graph) {
  const Shape& in = graph.values[graph.input].shape;
  const Normalization& normal = graph.preprocessing.normalization;
  if (graph.preprocessing.dtype != DType::kU8 || in.empty()) return {};
  const std::int64_t channels = normal.mean.empty() ? 1 : std::ssize(normal.mean);
  if (channels > kMostTables) return {};
  const Quantization& q = quantization_of(graph, input_codes(graph));
  const auto grid = kernels::make_code_grid(q.range, q.scale, q.zero_point);
  const ByteNormalizer normalizer(normal, channels);
  std::vector<std::int8_t> codes;
  for (std::int64_t i = 0; i < channels * 256; ++i) {
    const float x = normalizer(static_cast<std::uint8_t>(i % 256), i / 256);
    codes.push_back(static_cast<std::int8_t>(kernels::quantize_value(x, grid)));
  }
  return codes;
}

class ProgramWriter {
 public:
  // Of the stream's graph, where there is one.
  ProgramWriter(const Graph& whole, const Stream* stream, const std::string& header)
      : whole_(whole),
        stream_(stream),
        graph_(stream != nullptr ? stream->graph : whole),
        header_(header),
        nodes_(graph_),
        tables_(code_tables(graph_)),
        input_(input_codes(graph_)) {
    for (const Node& node : graph_.nodes) {
      if (makes_input_codes(graph_, node)) continue;
      if (stream != nullptr && stream->makes_history(node)) {
        add_c_history(nodes_, node);
      } else {
        op_form(node.op).c(nodes_, node);
      }
    }
    places_ = nodes_.places(input_);
  }

  CProgram program() const {
    const std::string digest = sha256_of(header("") + source("")).substr(0, 8);
    return {header(digest), source(digest), test(digest), size()};
  }

 private:
  CProgramSize size() const {
    const std::int64_t tables = std::ssize(tables_) + c_table_bytes(kernel_text());
    return {.arena_bytes = places_.bytes,
            .least_arena_bytes = places_.least_bytes,
            .state_bytes = places_.persistent_bytes,
            .constant_bytes = nodes_.constant_bytes() + tables,
            .most_constant_bytes = nodes_.most_constant_bytes() + tables};
  }

  std::string kernel_text() const {
    return c_kernels(nodes_.kernels(), quantization_of(graph_, graph_.output).rounding);
  }

  std::int64_t place(std::size_t value) const { return places_.offsets.at(value); }
  std::int64_t size(std::size_t value) const { return shape_size(graph_.values[value].shape); }

  std::string port(const char* name, std::size_t value) const {
    const Quantization& q = quantization_of(graph_, value);
    return fmt::format(
        "/* {}: codes {}, each standing for (code - zero point) * scale. */\n"
        "#define STEELYARD_{}_OFFSET {}\n#define STEELYARD_{}_SIZE {}\n"
        "#define STEELYARD_{}_ZERO_POINT ({})\n#define STEELYARD_{}_SCALE {}\n",
        name[0] == 'I' ? "The input" : "The output", shape_string(graph_.values[value].shape), name,
        place(value), name, size(value), name, q.zero_point, name, c_literal(q.scale));
  }

  std::string header(const std::string& digest) const {
    std::string out = first_comment(graph_, "The integer model");
    out += fmt::format(
        "#if defined(STEELYARD_MODEL_DIGEST) && (STEELYARD_MODEL_DIGEST != 0x{}U)\n"
        "#error \"two models with the same names: steelyard export --prefix gives others\"\n"
        "#endif\n",
        digest);
    out += "#ifndef STEELYARD_MODEL_H\n#define STEELYARD_MODEL_H\n\n#include <stdint.h>\n\n";
    out += fmt::format("/* Of model.h and model.c. */\n#define STEELYARD_MODEL_DIGEST 0x{}U\n\n",
                       digest);
    out += fmt::format("/* Constants of at most {} bytes. */\n\n", size().constant_bytes);
    out += "/* Memory of the values and of unpacked weights: nothing else is written to. */\n";
    out += fmt::format("#define STEELYARD_ARENA_BYTES {}\n\n", places_.bytes);
    if (stream_ != nullptr) out += c_stream_constants(*stream_, places_.persistent_bytes);
    out += port("INPUT", input_) + "\n" + port("OUTPUT", graph_.output) + "\n";
    out +=
        fmt::format("/* Preprocessing: {} */\n", c_json(preprocessing_json(graph_.preprocessing)));
    if (!graph_.class_names.empty()) {
      out += fmt::format("/* The classes or characters: {} */\n", c_json(graph_.class_names));
    }
    out += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
    if (!tables_.empty()) {
      out += fmt::format(
          "/* The code of a byte of the data, preprocessed{}. */\n"
          "#define STEELYARD_BYTE_TABLES {}\n"
          "extern const int8_t steelyard_code_of_byte[STEELYARD_BYTE_TABLES][256];\n\n",
          tables_.size() == 256 ? "" : ", for each channel", tables_.size() / 256);
    }
    if (stream_ != nullptr) out += c_stream_declaration();
    out +=
        "/* Computes one sample: reads the input at arena + STEELYARD_INPUT_OFFSET, whose place "
        "is\n"
        "   used again, and leaves the output at arena + STEELYARD_OUTPUT_OFFSET. */\n"
        "void steelyard_run(int8_t *arena);\n\n"
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    return out;
  }

  std::string source(const std::string& digest) const {
    std::string out = first_comment(graph_, "The program of the integer model");
    out += fmt::format("#include \"{}\"\n\n", header_) + digest_check(digest) + "\n";
    out +=
        "/* Signed integers are shifted as two's complement. */\n"
        "typedef char steelyard_shifts_keep_the_sign[((-1 >> 1) == -1) ? 1 : -1];\n";
    out += kernel_text() + "\n" + nodes_.constants();
    if (!tables_.empty()) {
      out += "const int8_t steelyard_code_of_byte[STEELYARD_BYTE_TABLES][256] = {\n";
      for (std::size_t first = 0; first < tables_.size(); first += 256) {
        const auto row = std::span<const std::int8_t>(tables_).subspan(first, 256);
        out += "  {" + c_list(row) + "},\n";
      }
      out += "};\n";
    }
    out += "\nvoid steelyard_run(int8_t *arena) {\n";
    if (nodes_.calls().empty()) out += "  (void)arena;\n";
    for (const CCall& call : nodes_.calls()) {
      out +=
          fmt::format("  /* {} */\n  {}(&{}", c_comment(call.layer), call.kernel, call.constants);
      for (const std::size_t value : call.inputs) out += fmt::format(", &arena[{}]", place(value));
      out += fmt::format(", &arena[{}]", place(call.output));
      if (call.scratch) {
        out += fmt::format(", &arena[{}]", places_.scratch.at(call.output));
      }
      out += ");\n";
    }
    out += "}\n";
    return stream_ != nullptr ? out + c_stream_reset() : out;
  }

  // What the test's program makes again: noise of all codes, then of those near the zero point.
  std::int32_t test_code(std::uint32_t& state, std::int64_t sample) const {
    state = state * 1664525U + 1013904223U;
    const std::int32_t noise = static_cast<std::int32_t>(state >> 24) - 128;
    if (sample == 0) return noise;
    return std::clamp(noise / 4 + quantization_of(graph_, input_).zero_point, -128, 127);
  }

  std::vector<std::int8_t> expected() const {
    Shape shape = graph_.values[graph_.input].shape;
    shape.insert(shape.begin(), kTestSamples);
    const Tensor inputs = Tensor::empty(shape);
    const Quantization& q = quantization_of(graph_, input_);
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < inputs.size(); ++i) {
      const std::int32_t code = test_code(state, i / size(input_));
      inputs.data<float>()[i] = static_cast<float>(code - q.zero_point) * q.scale;
    }
    const Tensor codes = Interpreter(graph_).run_all(inputs)[graph_.output];
    return {codes.span<std::int8_t>().begin(), codes.span<std::int8_t>().end()};
  }

  std::string test(const std::string& digest) const {
    std::string out = first_comment(graph_, "A test of the program");
    if (stream_ != nullptr) {
      return out + c_stream_test(*stream_, whole_, header_) + "\n" + digest_check(digest);
    }
    out +=
        R"(/* main() compares the codes of made inputs with those that training's interpreter gives for them. */
#include <stdio.h>

)";
    out += fmt::format("#include \"{}\"\n\n#define SAMPLES {}\n\n", header_, kTestSamples);
    out +=
        fmt::format("static const int8_t expected[SAMPLES * STEELYARD_OUTPUT_SIZE] = {{\n  {}}};\n",
                    c_list(std::span<const std::int8_t>(expected())));
    out += R"(
static int8_t arena[STEELYARD_ARENA_BYTES];

int main(void) {
  uint32_t state = 1;
  long differing = 0;
  int32_t sample;
  int32_t i;
  for (sample = 0; sample < SAMPLES; ++sample) {
    for (i = 0; i < STEELYARD_INPUT_SIZE; ++i) {
      int32_t code;
      state = (state * 1664525U) + 1013904223U;
      code = (int32_t)(state >> 24) - 128;
      if (sample > 0) {
        code = (code / 4) + STEELYARD_INPUT_ZERO_POINT;
        code = (code < INT8_MIN) ? INT8_MIN : code;
        code = (code > INT8_MAX) ? INT8_MAX : code;
      }
      arena[STEELYARD_INPUT_OFFSET + i] = (int8_t)code;
    }
    steelyard_run(arena);
    for (i = 0; i < STEELYARD_OUTPUT_SIZE; ++i) {
      if (arena[STEELYARD_OUTPUT_OFFSET + i] != expected[(sample * STEELYARD_OUTPUT_SIZE) + i]) {
        ++differing;
      }
    }
  }
  printf("%ld of %ld codes differ\n", differing, (long)SAMPLES * STEELYARD_OUTPUT_SIZE);
  return (differing == 0) ? 0 : 1;
}
)";
    return out + "\n" + digest_check(digest);
  }

  const Graph& whole_;
  const Stream* stream_;
  const Graph& graph_;
  std::string header_;
  CNodes nodes_;
  std::vector<std::int8_t> tables_;
  std::size_t input_;
  CNodes::Places places_;
};

}  // namespace

bool is_c_prefix(std::string_view prefix) {
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  return !prefix.empty() && is_small(prefix[0]) &&
         std::all_of(prefix.begin(), prefix.end(),
                     [&](char c) { return is_small(c) || (c >= '0' && c <= '9') || c == '_'; });
}

std::string c_program_refusal(const Graph& graph) {
  return fixed_point_refusal(graph, "a C program",
                             [](const OpForm& form) { return form.c != nullptr; });
}

CProgram c_program(const Graph& graph, const std::optional<StreamOptions>& options,
                   const std::string& header) {
  validate(graph);
  if (const std::string why = c_program_refusal(graph); !why.empty()) {
    throw std::invalid_argument(why);
  }
  std::optional<Stream> stream;
  if (options) stream = stream_of(graph, *options);
  return ProgramWriter(graph, stream ? &*stream : nullptr, header).program();
}

std::vector<std::filesystem::path> write_c_program(const std::filesystem::path& header,
                                                   const Graph& graph,
                                                   const std::optional<StreamOptions>& stream,
                                                   const std::string& prefix) {
  const std::string name = header.filename().string();
  if (name.find_first_of("\"\\") != std::string::npos || name != printable(name)) {
    throw InputError("export: " + printable(header.string()) +
                     ": expected a name that #include can have in quotes");
  }
  if (!prefix.empty() && !is_c_prefix(prefix)) {
    throw std::invalid_argument("[c_program] expected a prefix of names, got " + prefix);
  }
  const CProgram program = c_program(graph, stream, name);
  const std::filesystem::path base = header.parent_path() / header.stem();
  const std::vector<std::filesystem::path> paths{header, base.string() + ".c",
                                                 base.string() + "_test.c"};
  const std::string* texts[] = {&program.header, &program.source, &program.test};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    write_file_atomic(paths[i], prefix.empty() ? *texts[i] : with_prefix(*texts[i], prefix));
  }
  return paths;
}

}  // namespace steelyard::deploy
