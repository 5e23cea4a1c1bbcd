// TensorBoard's event files: scalars as protocol-buffer records, each framed by its length and
// checksums. Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace steelyard {

struct ScalarEvent {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::vector<std::pair<std::string, float>> values;  // by tag
};

// The record that a file starts with.
std::string version_record(double wall_time);
std::string scalar_record(const ScalarEvent& event);

// The records of a file, up to the first that is cut off or damaged. The views lie in `bytes`.
std::vector<std::string_view> whole_records(std::string_view bytes);

// What a record says apart from its time; records with the same differ in nothing else.
std::string_view content_of_record(std::string_view record);

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace steelyard
