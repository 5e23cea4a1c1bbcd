// Read twice: as an event file, and as the values of records that are written and then damaged.
#include "steelyard/framework/files/event_file.h"

#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

void check_records(std::string_view bytes) {
  std::string prefix;
  const auto records = whole_records(bytes);
  for (const std::string_view record : records) {
    fuzz::require(record.data() == bytes.data() + prefix.size(), "a gap between records");
    prefix += record;
  }
  const std::string more =
      prefix + scalar_record({.wall_time = 1, .step = 2, .values = {{"t", 3}}});
  fuzz::require(whole_records(more).size() == records.size() + 1, "an added record is not read");
}

// One damaged byte costs its record and those behind it, no other.
void check_damage(std::string_view bytes) {
  std::string file = version_record(0);
  std::vector<std::size_t> ends{file.size()};
  while (bytes.size() >= 4) {
    const auto tag = bytes.substr(4, static_cast<unsigned char>(bytes[0]) % 32);
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    file += scalar_record(
        {.wall_time = value, .step = bytes[1], .values = {{std::string(tag), value}}});
    ends.push_back(file.size());
    bytes.remove_prefix(4 + tag.size());
  }
  fuzz::require(whole_records(file).size() == ends.size(), "a record that was written is not read");
  const std::size_t at =
      bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]) * 37 % file.size();
  file[at] = static_cast<char>(file[at] ^ (bytes.size() > 1 && bytes[1] != 0 ? bytes[1] : 1));
  const auto whole = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
  fuzz::require(static_cast<std::ptrdiff_t>(whole_records(file).size()) == whole,
                "damage at byte " + std::to_string(at) + " is not seen");
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  steelyard::check_records(steelyard::fuzz::view(data, size));
  steelyard::check_damage(steelyard::fuzz::view(data, size));
  return 0;
}
