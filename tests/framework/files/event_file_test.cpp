#include "steelyard/framework/files/event_file.h"

#include <gtest/gtest.h>

namespace steelyard {
namespace {

// The check values of RFC 3720, B.4, and of the catalogue of parametrised CRC algorithms.
TEST(EventFile, Crc32cOfKnownTexts) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

TEST(EventFile, AVersionRecordByteByByte) {
  const std::string record = version_record(1.5);
  const std::string data =
      std::string("\x09\0\0\0\0\0\0\xF8\x3F", 9) + "\x1A\x0D" + "brain.Event:2";
  ASSERT_EQ(record.size(), 8 + 4 + data.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, data.size()), data);
}

TEST(EventFile, WholeRecordsEndBeforeDamage) {
  const std::string first = version_record(1), second = scalar_record({2, 300, {{"loss", 0.5F}}});
  const std::string file = first + second;
  EXPECT_EQ(whole_records(file), (std::vector<std::string_view>{first, second}));
  EXPECT_TRUE(whole_records("").empty());
  for (std::size_t cut = 0; cut < second.size(); ++cut) {
    EXPECT_EQ(whole_records(std::string_view(file).substr(0, first.size() + cut)).size(), 1U);
  }
  for (std::size_t i = 0; i < second.size(); ++i) {
    std::string damaged = file;
    damaged[first.size() + i] = static_cast<char>(damaged[first.size() + i] ^ 4);
    EXPECT_EQ(whole_records(damaged).size(), 1U) << i;
  }
}

}  // namespace
}  // namespace steelyard
