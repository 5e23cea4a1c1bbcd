#include "steelyard/framework/files/event_file.h"

#include <array>
#include <bit>
#include <cstring>

namespace steelyard {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::size_t kHeaderBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kFooterBytes = sizeof(std::uint32_t);

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0x82F63B78U & (0U - (crc & 1U)));
    table[i] = crc;
  }
  return table;
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <typename T>
void append(std::string& out, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  out.append(raw, sizeof value);
}

template <typename T>
T read(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string record(const std::string& data) {
  std::string out;
  append(out, static_cast<std::uint64_t>(data.size()));
  append(out, masked_crc(out));
  out += data;
  append(out, masked_crc(data));
  return out;
}

// A protocol buffer message under construction.
class Message {
 public:
  void add_double(int field, double value) {
    key(field, 1);
    append(bytes_, value);
  }
  void add_float(int field, float value) {
    key(field, 5);
    append(bytes_, value);
  }
  void add_varint(int field, std::uint64_t value) {
    key(field, 0);
    varint(value);
  }
  void add_bytes(int field, const std::string& value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<std::uint64_t>(field << 3 | wire_type)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

std::string version_record(double wall_time) {
  Message event;
  event.add_double(1, wall_time);
  event.add_bytes(3, "brain.Event:2");
  return record(event.bytes());
}

std::string scalar_record(const ScalarEvent& scalars) {
  Message summary;
  for (const auto& [tag, number] : scalars.values) {
    Message value;
    value.add_bytes(1, tag);
    value.add_float(2, number);
    summary.add_bytes(1, value.bytes());
  }
  Message event;
  event.add_double(1, scalars.wall_time);
  event.add_varint(2, static_cast<std::uint64_t>(scalars.step));
  event.add_bytes(5, summary.bytes());
  return record(event.bytes());
}

std::vector<std::string_view> whole_records(std::string_view bytes) {
  std::vector<std::string_view> records;
  while (bytes.size() >= kHeaderBytes + kFooterBytes) {
    const std::string_view length_bytes = bytes.substr(0, sizeof(std::uint64_t));
    const auto length = read<std::uint64_t>(bytes);
    if (read<std::uint32_t>(bytes.substr(sizeof length)) != masked_crc(length_bytes)) break;
    if (length > bytes.size() - kHeaderBytes - kFooterBytes) break;
    const std::string_view data = bytes.substr(kHeaderBytes, length);
    if (read<std::uint32_t>(bytes.substr(kHeaderBytes + length)) != masked_crc(data)) break;
    records.push_back(bytes.substr(0, kHeaderBytes + length + kFooterBytes));
    bytes.remove_prefix(records.back().size());
  }
  return records;
}

std::string_view content_of_record(std::string_view record) {
  constexpr std::size_t kBefore = kHeaderBytes + 1 + sizeof(double);  // the first field is the time
  if (record.size() < kBefore + kFooterBytes) return {};
  return record.substr(kBefore, record.size() - kBefore - kFooterBytes);
}

}  // namespace steelyard
