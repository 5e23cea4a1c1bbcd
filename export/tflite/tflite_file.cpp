// The flatbuffer of a TFLite file. Fields are written by their numbers in the schema.
#include <flatbuffers/flatbuffers.h>

#include <algorithm>

#include "steelyard/export/tflite/tflite_model.h"

namespace steelyard::deploy {
namespace {

using flatbuffers::Offset;
using flatbuffers::Table;
using TableOffset = Offset<Table>;

constexpr std::uint32_t kSchemaVersion = 3;
constexpr const char* kIdentifier = "TFL3";
constexpr std::size_t kBufferAlignment = 16;

// Where field `number` of a table is kept in its vtable.
constexpr flatbuffers::voffset_t place(int number) {
  return static_cast<flatbuffers::voffset_t>(4 + 2 * number);
}

class TfliteWriter {
 public:
  std::string write(const TfliteModel& model) {
    collect_codes(model);
    const auto metadata = tables(model.metadata, [&](const auto& entry) {
      const auto name = builder_.CreateString(entry.first);
      return table([&] {
        builder_.AddOffset(place(0), name);
        builder_.AddElement<std::uint32_t>(place(1), entry.second, 0);
      });
    });
    const auto buffers =
        tables(model.buffers, [&](const std::string& bytes) { return buffer(bytes); });
    const auto codes = tables(codes_, [&](const Code& code) { return operator_code(code); });
    const auto subgraphs = builder_.CreateVector(std::vector<TableOffset>{subgraph(model)});
    const auto signatures = builder_.CreateVector(std::vector<TableOffset>{signature(model)});
    const auto description = builder_.CreateString(model.description);
    const TableOffset root = table([&] {
      builder_.AddElement<std::uint32_t>(place(0), kSchemaVersion, 0);
      builder_.AddOffset(place(1), codes);
      builder_.AddOffset(place(2), subgraphs);
      builder_.AddOffset(place(3), description);
      builder_.AddOffset(place(4), buffers);
      builder_.AddOffset(place(6), metadata);
      builder_.AddOffset(place(7), signatures);
    });
    builder_.Finish(root, kIdentifier);
    return {reinterpret_cast<const char*>(builder_.GetBufferPointer()), builder_.GetSize()};
  }

 private:
  using Code = std::pair<TfliteOp, std::int32_t>;  // with its version

  template <typename Fill>
  TableOffset table(const Fill& fill) {
    const flatbuffers::uoffset_t start = builder_.StartTable();
    fill();
    return TableOffset(builder_.EndTable(start));
  }

  template <typename Rows, typename Write>
  Offset<flatbuffers::Vector<TableOffset>> tables(const Rows& rows, const Write& write) {
    std::vector<TableOffset> offsets;
    for (const auto& row : rows) offsets.push_back(write(row));
    return builder_.CreateVector(offsets);
  }

  void collect_codes(const TfliteModel& model) {
    for (const TfliteOperator& op : model.operators) {
      const Code code{op.op, op.version};
      if (std::find(codes_.begin(), codes_.end(), code) == codes_.end()) codes_.push_back(code);
    }
  }

  TableOffset operator_code(const Code& code) {
    const auto number = static_cast<std::int32_t>(code.first);
    return table([&] {
      builder_.AddElement<std::int8_t>(place(0), static_cast<std::int8_t>(number), 0);
      builder_.AddElement<std::int32_t>(place(2), code.second, 1);
      builder_.AddElement<std::int32_t>(place(3), number, 0);
    });
  }

  TableOffset buffer(const std::string& bytes) {
    if (bytes.empty()) return table([] {});
    builder_.ForceVectorAlignment(bytes.size(), 1, kBufferAlignment);
    const auto data =
        builder_.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    return table([&] { builder_.AddOffset(place(0), data); });
  }

  TableOffset quantization(const TfliteQuantization& q) {
    const auto scales = builder_.CreateVector(q.scales);
    const auto zero_points = builder_.CreateVector(q.zero_points);
    return table([&] {
      builder_.AddOffset(place(2), scales);
      builder_.AddOffset(place(3), zero_points);
      builder_.AddElement<std::int32_t>(place(6), q.axis, 0);
    });
  }

  TableOffset tensor(const TfliteTensor& tensor) {
    const auto shape = builder_.CreateVector(tensor.shape);
    const auto name = builder_.CreateString(tensor.name);
    TableOffset quantized;
    if (tensor.quantization) quantized = quantization(*tensor.quantization);
    return table([&] {
      builder_.AddOffset(place(0), shape);
      builder_.AddElement<std::int8_t>(place(1), static_cast<std::int8_t>(tensor.type), 0);
      builder_.AddElement<std::uint32_t>(place(2), tensor.buffer, 0);
      builder_.AddOffset(place(3), name);
      builder_.AddOffset(place(4), quantized);
      builder_.AddElement<std::uint8_t>(place(5), tensor.is_variable ? 1 : 0, 0);
    });
  }

  TableOffset operation(const TfliteOperator& op) {
    const auto inputs = builder_.CreateVector(op.inputs);
    const auto outputs = builder_.CreateVector(op.outputs);
    Offset<flatbuffers::Vector<std::int32_t>> intermediates;
    if (!op.intermediates.empty()) intermediates = builder_.CreateVector(op.intermediates);
    std::vector<Offset<flatbuffers::String>> texts;
    for (const auto& [number, text] : op.options.texts)
      texts.push_back(builder_.CreateString(text));
    const TableOffset options = table([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        builder_.AddOffset(place(op.options.texts[i].first), texts[i]);
      }
      for (const TfliteField& field : op.options.fields) {
        if (field.bytes == 1) {
          builder_.AddElement<std::int8_t>(place(field.number),
                                           static_cast<std::int8_t>(field.value), 0);
        } else {
          builder_.AddElement<std::int32_t>(place(field.number), field.value, 0);
        }
      }
    });
    const auto code = std::find(codes_.begin(), codes_.end(), Code{op.op, op.version});
    return table([&] {
      builder_.AddElement<std::uint32_t>(place(0),
                                         static_cast<std::uint32_t>(code - codes_.begin()), 0);
      builder_.AddOffset(place(1), inputs);
      builder_.AddOffset(place(2), outputs);
      builder_.AddOffset(place(8), intermediates);
      if (op.options.table == 0) return;
      builder_.AddElement<std::uint8_t>(place(3), op.options.table, 0);
      builder_.AddOffset(place(4), options);
    });
  }

  static std::vector<std::int32_t> indices(const std::vector<TflitePort>& ports) {
    std::vector<std::int32_t> tensors;
    for (const TflitePort& port : ports) tensors.push_back(port.tensor);
    return tensors;
  }

  TableOffset subgraph(const TfliteModel& model) {
    const auto tensors =
        this->tables(model.tensors, [&](const TfliteTensor& one) { return tensor(one); });
    const auto inputs = builder_.CreateVector(indices(model.inputs));
    const auto outputs = builder_.CreateVector(indices(model.outputs));
    const auto operators =
        this->tables(model.operators, [&](const TfliteOperator& one) { return operation(one); });
    const auto name = builder_.CreateString("main");
    return table([&] {
      builder_.AddOffset(place(0), tensors);
      builder_.AddOffset(place(1), inputs);
      builder_.AddOffset(place(2), outputs);
      builder_.AddOffset(place(3), operators);
      builder_.AddOffset(place(4), name);
    });
  }

  Offset<flatbuffers::Vector<TableOffset>> named(const std::vector<TflitePort>& ports) {
    return tables(ports, [&](const TflitePort& port) {
      const auto name = builder_.CreateString(port.name);
      return table([&] {
        builder_.AddOffset(place(0), name);
        builder_.AddElement<std::uint32_t>(place(1), static_cast<std::uint32_t>(port.tensor), 0);
      });
    });
  }

  // Under which LiteRT offers inputs and outputs by name.
  TableOffset signature(const TfliteModel& model) {
    const auto inputs = named(model.inputs);
    const auto outputs = named(model.outputs);
    const auto key = builder_.CreateString("serving_default");
    return table([&] {
      builder_.AddOffset(place(0), inputs);
      builder_.AddOffset(place(1), outputs);
      builder_.AddOffset(place(2), key);
    });
  }

  flatbuffers::FlatBufferBuilder builder_;
  std::vector<Code> codes_;
};

}  // namespace

bool can_write_tflite() { return true; }

std::string tflite_bytes(const TfliteModel& model) { return TfliteWriter().write(model); }

}  // namespace steelyard::deploy
