#include "steelyard/framework/files/gguf/gguf.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <string>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

// A file by hand, from the format's description.
template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string u32(std::uint32_t value) { return raw(value); }
std::string u64(std::uint64_t value) { return raw(value); }
std::string str(const std::string& text) { return u64(text.size()) + text; }
std::string beginning(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
  return "GGUF" + u32(version) + u64(tensors) + u64(entries);
}
std::string entry(const std::string& key, std::uint32_t type, const std::string& value) {
  return str(key) + u32(type) + value;
}
std::string tensor(const std::string& name, const std::vector<std::uint64_t>& sizes,
                   std::uint32_t type, std::uint64_t offset) {
  std::string bytes = str(name) + u32(static_cast<std::uint32_t>(sizes.size()));
  for (const std::uint64_t size : sizes) bytes += u64(size);
  return bytes + u32(type) + u64(offset);
}
std::string padded(std::string bytes, std::size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes;
}

constexpr std::uint32_t kArray = 9, kText = 8;

// Every type of value, alone and in an array; two tensors, the second one of blocks.
std::string everything() {
  std::string entries, data;
  const std::vector<std::string> numbers = {"\x07",
                                            "\xFE",
                                            raw<std::uint16_t>(65535),
                                            raw<std::int16_t>(-2),
                                            u32(7),
                                            raw<std::int32_t>(-7),
                                            raw(1.5F),
                                            std::string("\x01", 1)};
  std::uint64_t count = 0;
  const auto add = [&](std::uint32_t type, const std::string& bytes, const std::string& two) {
    entries += entry("one." + std::to_string(type), type, bytes);
    entries += entry("two." + std::to_string(type), kArray, u32(type) + u64(2) + two);
    count += 2;
  };
  for (std::uint32_t type = 0; type < numbers.size(); ++type) {
    add(type, numbers[type], numbers[type] + numbers[type]);
  }
  add(kText, str("caf\xC3\xA9"), str("") + str(std::string("a\0\xFF", 3)));
  add(10, u64(1ULL << 63), u64(0) + u64(1));
  add(11, raw<std::int64_t>(-1), raw<std::int64_t>(2) + raw<std::int64_t>(3));
  add(12, raw(-0.25), raw(0.0) + raw(1e300));
  entries += entry("none", kArray, u32(kText) + u64(0));
  const std::string header = padded(beginning(2, count + 1) + entries + tensor("w", {3, 2}, 0, 0) +
                                    tensor("blocks.weight", {64, 1, 2}, 2, 32));
  for (int i = 0; i < 24; ++i) data += static_cast<char>(i);
  data = padded(data);
  for (int i = 0; i < 72; ++i) data += static_cast<char>(100 + i);
  return header + padded(data);
}

class GgufFile : public ::testing::Test {
 protected:
  GgufReader read(const std::string& bytes) {
    write_bytes(path_, bytes);
    return GgufReader(path_);
  }
  std::string error_of(const std::string& bytes) {
    const std::string message = message_of<InputError>([&] { read(bytes); });
    EXPECT_TRUE(message.starts_with(path_.string() + ": offset ")) << message;
    return message.substr(std::min(message.size(), path_.string().size() + 9));
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "x.gguf";
};

TEST_F(GgufFile, HasEveryTypeOfValue) {
  const GgufReader reader = read(everything());
  const GgufHeader& header = reader.header();
  EXPECT_EQ(header.find("one.0")->whole_number(), 7);
  EXPECT_EQ(header.find("one.1")->whole_number(), -2);
  EXPECT_EQ(header.find("one.2")->whole_number(), 65535);
  EXPECT_EQ(header.find("one.3")->whole_number(), -2);
  EXPECT_EQ(header.find("one.4")->whole_number(), 7);
  EXPECT_EQ(header.find("one.5")->number(), -7.0);
  EXPECT_EQ(header.find("one.6")->number(), 1.5);
  EXPECT_EQ(header.find("one.6")->whole_number(), std::nullopt);
  EXPECT_EQ(header.find("one.7")->whole_number(), 1);
  EXPECT_EQ(header.find("one.8")->text(), "caf\xC3\xA9");
  EXPECT_EQ(header.find("one.10")->whole_number(), std::nullopt);
  EXPECT_EQ(header.find("one.10")->number(), 0x1p63);
  EXPECT_EQ(header.find("one.11")->whole_number(), -1);
  EXPECT_EQ(header.find("one.12")->number(), -0.25);
  EXPECT_EQ(header.find("two.8")->texts(),
            (std::vector<std::string_view>{"", std::string_view("a\0\xFF", 3)}));
  EXPECT_EQ(header.find("none")->texts()->size(), 0U);
  EXPECT_EQ(header.find("two.12")->count, 2U);
  EXPECT_EQ(header.find("nothing"), nullptr);
}

TEST_F(GgufFile, HasTensorsAndTheirBytes) {
  const GgufReader reader = read(everything());
  ASSERT_EQ(reader.header().tensors.size(), 2U);
  const GgufTensor& w = reader.header().tensors[0];
  EXPECT_EQ(w.sizes, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(w.bytes(), 24U);
  const GgufTensor* blocks = reader.find("blocks.weight");
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->type->name, "q4_0");
  EXPECT_EQ(blocks->bytes(), 72U);
  std::string bytes(2, '\0');
  reader.bytes_of(*blocks)->read(3, bytes.data(), 2);
  EXPECT_EQ(bytes, "gh");
  EXPECT_EQ(reader.find("v"), nullptr);
}

void copy(const GgufReader& from, const std::filesystem::path& to) {
  GgufWriter writer(to, from.header().entries, from.header().tensors);
  for (const GgufTensor& t : from.header().tensors) writer.write(*from.bytes_of(t));
  writer.commit();
}

TEST_F(GgufFile, ReadAndWrittenAgainIsTheSameBytes) {
  const std::string bytes = everything();
  const GgufReader reader = read(bytes);
  copy(reader, folder_ / "again.gguf");
  EXPECT_EQ(read_bytes(folder_ / "again.gguf"), bytes);
}

TEST_F(GgufFile, ReadAndWrittenAgainIsTheSameBytesInAnotherAlignment) {
  const std::string bytes = padded(beginning(2, 1) + entry("general.alignment", 4, u32(128)) +
                                       tensor("a", {1}, 0, 0) + tensor("b", {1}, 0, 128),
                                   128) +
                            padded("abcd", 128) + padded("efgh", 128);
  const GgufReader reader = read(bytes);
  EXPECT_EQ(reader.header().alignment, 128U);
  copy(reader, folder_ / "again.gguf");
  EXPECT_EQ(read_bytes(folder_ / "again.gguf"), bytes);
}

TEST_F(GgufFile, MayEndWithoutTheLastPadding) {
  const std::string bytes = padded(beginning(1, 0) + tensor("a", {1}, 0, 0)) + "abcd";
  const GgufReader reader = read(bytes);
  copy(reader, folder_ / "again.gguf");
  EXPECT_EQ(read_bytes(folder_ / "again.gguf"), padded(bytes));
}

TEST_F(GgufFile, MadeValuesAreThoseOfTheFormat) {
  const std::vector<GgufEntry> entries = {{"a", GgufValue::of_u32(7)},
                                          {"b", GgufValue::of_f32(0.5F)},
                                          {"c", GgufValue::of_string("x")},
                                          {"d", GgufValue::of_strings({"y", ""})}};
  std::vector<GgufTensor> none;
  EXPECT_EQ(encode_gguf_header(entries, none),
            padded(beginning(0, 4) + entry("a", 4, u32(7)) + entry("b", 6, raw(0.5F)) +
                   entry("c", kText, str("x")) +
                   entry("d", kArray, u32(kText) + u64(2) + str("y") + str(""))));
}

// A file of one entry and one tensor with this in place of one of its parts.
struct Parts {
  std::string start = beginning(1, 1);
  std::string metadata = entry("k", 4, u32(1));
  std::string info = tensor("t", {32}, 2, 0);
  std::string data = std::string(32, 'x');
  std::string bytes() const { return padded(start + metadata + info) + data; }
};

TEST_F(GgufFile, RefusesWhatIsNoFileOfIt) {
  EXPECT_EQ(error_of(""), "0: not a GGUF file: too short");
  EXPECT_EQ(error_of("GGUF"), "0: not a GGUF file: too short");
  EXPECT_EQ(error_of("GGML" + u32(3) + u64(0)), "0: not a GGUF file: it does not begin with GGUF");
  EXPECT_EQ(error_of(beginning(0, 0, 2)), "4: expected version 3, got 2");
  EXPECT_EQ(error_of(beginning(0, 0, 0x03000000)),
            "4: expected little-endian numbers, got big-endian ones");
}

TEST_F(GgufFile, RefusesCountsThatTheFileHasNot) {
  for (const std::uint64_t count : {std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_EQ(error_of(beginning(count, 0)),
              "8: expected a number of tensors of at most 65536, got " + std::to_string(count));
    EXPECT_EQ(
        error_of(beginning(0, count)),
        "16: expected a number of metadata entries of at most 65536, got " + std::to_string(count));
  }
  EXPECT_EQ(error_of(beginning(65536, 0)),
            "8: expected a number of tensors that the file has, got 65536 with 8 bytes left");
  EXPECT_EQ(error_of(beginning(0, 1)),
            "16: expected a number of metadata entries that the file has, got 1 with 0 bytes left");
}

TEST_F(GgufFile, RefusesMetadata) {
  const auto error = [&](const std::string& metadata, std::uint64_t entries = 1) {
    Parts parts;
    parts.start = beginning(1, entries);
    parts.metadata = metadata;
    return error_of(parts.bytes());
  };
  EXPECT_EQ(error(u64(1ULL << 63) + "k"),
            "24: expected a key of at most 65535, got 9223372036854775808");
  EXPECT_EQ(error(entry("", 4, u32(1))), "24: expected a key of at least one byte");
  EXPECT_EQ(error(entry("k", 4, u32(1)) + entry("k", 4, u32(1)), 2), "41: duplicate key 'k'");
  EXPECT_EQ(error(entry("k", 13, u32(1))), "33: expected a type of a value from 0 to 12, got 13");
  EXPECT_EQ(error(entry("k", kText, u64(1ULL << 63))),
            "37: expected a string of at most 268435456, got 9223372036854775808");
  EXPECT_EQ(error(entry("k", kText, u64(1000))),
            "37: expected a string that the file has, got 1000 with 83 bytes left");
  EXPECT_EQ(error(entry("k", kArray, u32(12) + u64(1ULL << 61))),
            "41: expected a length of an array of at most 268435456, got 2305843009213693952");
  EXPECT_EQ(error(entry("k", kArray, u32(12) + u64(1000))),
            "41: expected a length of an array that the file has, got 1000 with 79 bytes left");
  EXPECT_EQ(error(entry("k", kArray, u32(kArray) + u64(0))), "37: expected no array of arrays");
  EXPECT_EQ(error(entry("k", kArray, u32(99) + u64(0))),
            "37: expected a type of elements from 0 to 12, got 99");
  EXPECT_EQ(error(entry("k", 7, "\x02")), "37: expected a bool of 0 or 1, got 2");
  EXPECT_EQ(error(entry("k", kArray, u32(7) + u64(2) + "\x01\x03")),
            "50: expected a bool of 0 or 1, got 3");
  const std::string key = "general.alignment";
  EXPECT_EQ(error(entry(key, 10, u64(32))), "49: expected an alignment of type u32");
  for (const std::uint32_t alignment : {0U, 24U, 1U << 21}) {
    EXPECT_EQ(error(entry(key, 4, u32(alignment))),
              "49: expected an alignment that is a power of two up to 1048576, got " +
                  std::to_string(alignment));
  }
}

TEST_F(GgufFile, RefusesTensors) {
  const auto error = [&](const std::string& info, std::uint64_t tensors = 1) {
    Parts parts;
    parts.start = beginning(tensors, 1);
    parts.info = info;
    return error_of(parts.bytes());
  };
  EXPECT_EQ(error(tensor(std::string(64, 'n'), {32}, 2, 0)),
            "41: expected a tensor's name of at most 63, got 64");
  EXPECT_EQ(error(tensor("", {32, 1}, 2, 0)),
            "41: tensor '': expected a name of 1 to 63 bytes, got 0");
  EXPECT_EQ(error(tensor("t", {}, 2, 0) + u64(0)),
            "41: tensor 't': expected 1 to 4 dimensions, got 0");
  EXPECT_EQ(error(tensor("t", {1, 1, 1, 1, 1}, 2, 0)),
            "50: tensor 't': expected 1 to 4 dimensions, got 5");
  EXPECT_EQ(error(tensor("t", {32, 0}, 2, 0)), "41: tensor 't': expected sizes from 1, got 0");
  EXPECT_EQ(error(tensor("t", {1ULL << 63}, 0, 0)),
            "54: tensor 't': expected a size below 2^63, got 9223372036854775808");
  EXPECT_EQ(error(tensor("t", {1ULL << 32, 1ULL << 31}, 0, 0)),
            "41: tensor 't': more than 2^63 elements");
  EXPECT_EQ(error(tensor("t", {1ULL << 62}, 0, 0)), "41: tensor 't': more than 2^63 bytes");
  EXPECT_EQ(error(tensor("t", {48}, 2, 0)),
            "41: tensor 't': expected rows of whole blocks of 32 for q4_0, got rows of 48");
  for (const std::uint32_t type : {4U, 43U, 0xFFFFFFFFU}) {
    EXPECT_EQ(error(tensor("t", {32}, type, 0)),
              "62: tensor 't': expected a type of ggml's, got " + std::to_string(type));
  }
  EXPECT_EQ(error(tensor("t", {32}, 2, 0) + tensor("t", {32}, 2, 32), 2),
            "74: duplicate tensor 't'");
}

TEST_F(GgufFile, RefusesPlaces) {
  const auto error = [&](const std::string& info, const std::string& data,
                         std::uint64_t tensors = 1) {
    return error_of(padded(beginning(tensors, 0) + info) + data);
  };
  const std::string two = tensor("a", {1}, 0, 0);
  EXPECT_EQ(error(tensor("a", {1}, 0, 32), std::string(64, 'x')),
            "64: tensor 'a': expected its bytes at 0 behind here, got 32");
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{31}}) {
    EXPECT_EQ(
        error(two + tensor("b", {1}, 0, offset), std::string(64, 'x'), 2),
        "96: tensor 'b': expected its bytes at 32 behind here, got " + std::to_string(offset));
  }
  EXPECT_EQ(error(tensor("a", {1ULL << 40, 1}, 0, 0), std::string(64, 'x')),
            "96: tensor 'a': expected 4398046511104 bytes at 0 behind here, the file has 64");
  EXPECT_EQ(error(two + tensor("b", {1}, 0, 32), std::string(35, 'x'), 2),
            "96: tensor 'b': expected 4 bytes at 32 behind here, the file has 35");
  EXPECT_EQ(error(two + tensor("b", {1}, 0, 32), "", 2),
            "96: tensor 'a': expected 4 bytes at 0 behind here, the file has 0");
  EXPECT_EQ(error(tensor("a", {1}, 0, 0), std::string(33, 'x')),
            "96: 1 bytes behind the last tensor");
}

TEST_F(GgufFile, RefusesEveryCutFile) {
  const std::string bytes = everything();
  const std::size_t end = bytes.size() - 24;  // without the last padding it is whole
  for (std::size_t length = 0; length < end; ++length) {
    const auto cut = range_in_memory(bytes.substr(0, length));
    EXPECT_TRUE(message_of<InputError>([&] {
                  parse_gguf_header("cut", *cut);
                }).starts_with("cut: offset "));
  }
  parse_gguf_header("whole", *range_in_memory(bytes.substr(0, end)));
}

TEST_F(GgufFile, WritersRefuseWhatReadersWould) {
  const auto error = [&](const std::vector<GgufEntry>& entries, std::vector<GgufTensor> tensors) {
    return message_of<std::invalid_argument>([&] { encode_gguf_header(entries, tensors); });
  };
  const GgufTensor t{"t", {32}, kernels::find_ggml_type("q4_0"), 0};
  EXPECT_EQ(error({{"k", GgufValue::of_u32(1)}, {"k", GgufValue::of_u32(1)}}, {}),
            "[gguf] key 'k': duplicate");
  EXPECT_EQ(error({{"general.alignment", GgufValue::of_u32(3)}}, {}),
            "[gguf] key 'general.alignment': expected an alignment that is a power of two up to "
            "1048576, got 3");
  EXPECT_EQ(error({}, {t, t}), "[gguf] tensor 't': duplicate");
  GgufTensor odd = t;
  odd.sizes = {33};
  EXPECT_EQ(error({}, {odd}),
            "[gguf] tensor 't': expected rows of whole blocks of 32 for q4_0, got rows of 33");
}

TEST_F(GgufFile, NothingIsReplacedUntilAllIsWritten) {
  write_bytes(path_, "before");
  const GgufTensor t{"t", {4}, kernels::find_ggml_type("f32"), 0};
  {
    GgufWriter writer(path_, {}, {t});
    writer.write("0123456789", 10);
    EXPECT_EQ(message_of<std::invalid_argument>([&] { writer.commit(); }),
              "[gguf] tensor 't': expected 16 bytes, got 10");
  }
  GgufWriter writer(path_, {}, {t});
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { writer.write(std::string(17, 'x').data(), 17); }),
      "[gguf] 1 bytes behind the last tensor's end");
  EXPECT_EQ(read_bytes(path_), "before");
}

// A sparse file whose metadata claims 3 GiB of text, read where 1 GiB is left.
TEST_F(GgufFile, AllocatesNothingByALengthInTheFile) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs its address space";
#endif
  Parts parts;
  parts.metadata = entry("k", kText, u64(std::uint64_t{3} << 30));
  write_bytes(path_, parts.bytes());
  std::filesystem::resize_file(path_, std::uint64_t{4} << 30);
  EXPECT_NE(message_of<InputError>([&] { GgufReader reader(path_); }).find("at most 268435456"),
            std::string::npos);
}

}  // namespace
}  // namespace steelyard
