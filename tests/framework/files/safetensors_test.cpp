#include "steelyard/framework/files/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/rng.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string u64_bytes(std::uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(n >> (8 * i) & 0xFF);
  return bytes;
}

// A file by hand: prefix, header as given, data.
std::string file_of(const std::string& header, const std::string& data) {
  return u64_bytes(header.size()) + header + data;
}

class SafetensorsFile : public ::testing::Test {
 protected:
  TensorFile read(const std::string& bytes) {
    write_bytes(path_, bytes);
    return read_safetensors(path_);
  }
  std::string error_of(const std::string& bytes) {
    return message_of<InputError>([&] { read(bytes); });
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "x.safetensors";
};

// A sparse file of 4 GiB, read where less memory is left.
TEST_F(SafetensorsFile, OutOfMemoryNamesTheFileTheTensorAndItsBytes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs its address space";
#endif
  constexpr std::uint64_t kBytes = std::uint64_t{4} << 30;
  write_bytes(path_, file_of(R"({"w":{"dtype":"U8","shape":[4294967296],"data_offsets":[0,)" +
                                 std::to_string(kBytes) + "]}}",
                             ""));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + kBytes);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit small = {std::uint64_t{3} << 30, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  const std::string message = message_of<OutOfMemory>([&] { read_safetensors(path_); });
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(message.find(path_.string() +
                         ": tensor 'w' of 4294967296 bytes: out of memory on cpu: asked for "),
            0u)
      << message;
}

// As the reference writer lays it out: metadata first, no spaces, padding behind.
TEST_F(SafetensorsFile, ReadsAForeignFile) {
  std::string data = u64_bytes(7);                             // i64 scalar
  data += std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);  // f32 1, -2
  data += std::string("\x00\x3c", 2);                          // f16 1
  data += std::string("\x01\x00", 2);                          // bool
  const TensorFile file = read(file_of(
      R"({"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[16,18]},)"
      R"("m":{"dtype":"BOOL","shape":[2],"data_offsets":[18,20]},)"
      R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[20,20]}}    )",
      data));
  EXPECT_EQ(file.metadata, (TensorFileMetadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.tensors[0].tensor.item(), 7);
  EXPECT_EQ(file.tensors[0].tensor.rank(), 0);
  EXPECT_EQ(file.tensors[1].name, "w");
  EXPECT_EQ(file.tensors[1].tensor.shape(), (Shape{1, 2}));
  EXPECT_EQ(file.tensors[1].tensor.span<float>()[1], -2.0F);
  EXPECT_EQ(file.tensors[2].tensor.to(DType::kF32).item(), 1.0);
  EXPECT_TRUE(file.tensors[3].tensor.span<bool>()[0]);
  EXPECT_FALSE(file.tensors[3].tensor.span<bool>()[1]);
  EXPECT_EQ(file.tensors[4].tensor.shape(), (Shape{0, 3}));
}

TEST_F(SafetensorsFile, WritesTheReferenceLayoutByteByByte) {
  write_safetensors(path_, {{{"b", Tensor::from<std::uint8_t>({1, 2, 3}, {3})},
                             {"z", Tensor::from<float>({1.0F}, {1})},
                             {"a", Tensor::from<float>({-2.0F}, {1, 1})},
                             {"s", Tensor::from<std::int64_t>({-1}, {})}},
                            {{"k", "v\"\n"}}});
  std::string header =
      R"({"__metadata__":{"k":"v\"\n"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},)"
      R"("z":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  while (header.size() % 8 != 0) header += ' ';
  const std::string data = u64_bytes(~std::uint64_t{0}) +
                           std::string("\x00\x00\x00\xc0\x00\x00\x80\x3f\x01\x02\x03", 11);
  EXPECT_EQ(read_bytes(path_), file_of(header, data));
}

TEST_F(SafetensorsFile, EveryDTypeSurvivesARoundTrip) {
  TensorFile file;
  Rng rng(3);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI8, DType::kU8, DType::kBool}) {
    Tensor t = Tensor::empty({3, 5}, dtype);
    auto* bytes = static_cast<unsigned char*>(t.raw());
    for (std::int64_t i = 0; i < t.bytes(); ++i) {
      bytes[i] = static_cast<unsigned char>(rng.below(dtype == DType::kBool ? 2 : 256));
    }
    file.tensors.push_back({std::string(dtype_name(dtype)) + " \xC3\xA9", t});
  }
  write_safetensors(path_, file);
  const TensorFile back = read_safetensors(path_);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const NamedTensor& t : file.tensors) {
    const auto same = std::find_if(back.tensors.begin(), back.tensors.end(),
                                   [&](const NamedTensor& b) { return b.name == t.name; });
    ASSERT_NE(same, back.tensors.end()) << t.name;
    ASSERT_EQ(same->tensor.dtype(), t.tensor.dtype());
    ASSERT_EQ(same->tensor.shape(), t.tensor.shape());
    EXPECT_EQ(
        std::memcmp(same->tensor.raw(), t.tensor.raw(), static_cast<std::size_t>(t.tensor.bytes())),
        0);
  }
}

TEST_F(SafetensorsFile, AnEmptyFileOfTensorsIsValid) {
  write_safetensors(path_, {});
  EXPECT_TRUE(read_safetensors(path_).tensors.empty());
  EXPECT_EQ(read_bytes(path_), file_of("{}      ", ""));
}

TEST_F(SafetensorsFile, WriterRefusesWhatTheFormatCannotHold) {
  const Tensor one = Tensor::zeros({1});
  const auto refused = [&](TensorFile file) {
    return message_of<std::invalid_argument>([&] { write_safetensors(path_, file); });
  };
  EXPECT_NE(refused({{{"a", one}, {"a", one}}, {}}).find("duplicate name"), std::string::npos);
  EXPECT_NE(refused({{{"__metadata__", one}}, {}}).find("reserved"), std::string::npos);
  EXPECT_NE(refused({{{"a", Tensor()}}, {}}).find("undefined"), std::string::npos);
  EXPECT_NE(refused({{{"\xFF", one}}, {}}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(refused({{}, {{"k", std::string(17 << 20, 'x')}}}).find("16 MiB"), std::string::npos);
  EXPECT_NE(refused({{{"a", Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1, 1})}}, {}}).find("rank"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

struct BadHeader {
  const char* name;
  std::string header;
  std::string data;
  const char* message;
};

class SafetensorsRejects : public ::testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsRejects, WithItsReason) {
  const TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  write_bytes(path, file_of(GetParam().header, GetParam().data));
  const std::string message = message_of<InputError>([&] { read_safetensors(path); });
  EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

std::string tensor_json(const std::string& shape, const std::string& offsets,
                        const std::string& dtype = "F32") {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string one(const std::string& info) { return R"({"a":)" + info + "}"; }

const std::string kFour(4, '\0');

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsRejects,
    ::testing::Values(
        BadHeader{"empty", "", "", "begin with '{'"},
        BadHeader{"bom", "\xEF\xBB\xBF{}", "", "begin with '{'"},
        BadHeader{"leading_space", " {}", "", "begin with '{'"},
        BadHeader{"array", "[]", "", "begin with '{'"},
        BadHeader{"unfinished", "{", "", "not valid JSON"},
        BadHeader{"trailing_garbage", "{} x", "", "not valid JSON"},
        BadHeader{"second_object", "{}{}", "", "not valid JSON"},
        BadHeader{"nul_padding", std::string("{}\0\0", 4), "", "NUL byte"},
        BadHeader{"hidden_after_nul", std::string("{}\0}{", 5), "", "offset 10: NUL byte"},
        BadHeader{"comment", "{} // c", "", "not valid JSON"},
        BadHeader{"bad_utf8", "{\"\xFF\":1}", "", "not valid JSON"},
        BadHeader{"lone_surrogate", R"({"\uD800":1})", "", "not valid JSON"},
        BadHeader{"duplicate_tensor",
                  R"({"a":)" + tensor_json("[1]", "[0,4]") + R"(,"a":)" +
                      tensor_json("[1]", "[4,8]") + "}",
                  kFour + kFour, "duplicate name 'a'"},
        BadHeader{"duplicate_escaped",
                  R"({"a":)" + tensor_json("[1]", "[0,4]") + R"(,"\u0061":)" +
                      tensor_json("[1]", "[4,8]") + "}",
                  kFour + kFour, "duplicate name 'a'"},
        BadHeader{"duplicate_metadata_object", R"({"__metadata__":{},"__metadata__":{}})", "",
                  "duplicate name '__metadata__'"},
        BadHeader{"duplicate_metadata", R"({"__metadata__":{"k":"1","k":"2"}})", "",
                  "duplicate metadata key 'k'"},
        BadHeader{"metadata_number", R"({"__metadata__":{"k":1}})", "",
                  "expected a string for metadata 'k', got 1"},
        BadHeader{"metadata_nested", R"({"__metadata__":{"k":{"l":"m"}}})", "", "got an object"},
        BadHeader{"metadata_string", R"({"__metadata__":"k"})", "", "expected an object"},
        BadHeader{"duplicate_field",
                  one(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"), kFour,
                  "duplicate field 'dtype'"},
        BadHeader{"unknown_field", one(R"({"dtype":"F32","stride":[1]})"), kFour,
                  "unknown field 'stride'"},
        BadHeader{"missing_field", one(R"({"dtype":"F32","shape":[1]})"), kFour,
                  "missing field 'data_offsets'"},
        BadHeader{"null_tensor", one("null"), "", "got null"},
        BadHeader{"null_shape", one(tensor_json("null", "[0,4]")), kFour,
                  "unexpected null in 'shape'"},
        BadHeader{"true_shape", one(tensor_json("[true]", "[0,4]")), kFour, "unexpected a boolean"},
        BadHeader{"nested_shape", one(tensor_json("[[1]]", "[0,4]")), kFour, "unexpected an array"},
        BadHeader{"deep", one(std::string(100'000, '[')), "", "got an array"},
        BadHeader{"negative_dimension", one(tensor_json("[-1]", "[0,4]")), kFour, "unexpected -1"},
        BadHeader{"float_dimension", one(tensor_json("[1.0]", "[0,4]")), kFour, "unexpected 1.0"},
        BadHeader{"huge_number", one(tensor_json("[1e999]", "[0,4]")), kFour, "not valid JSON"},
        BadHeader{"dimension_64_bits", one(tensor_json("[9223372036854775808]", "[0,4]")), kFour,
                  "exceeds 63 bits"},
        BadHeader{"overflow", one(tensor_json("[4294967296,4294967296]", "[0,0]")), "",
                  "exceeds 63 bits"},
        BadHeader{"overflow_bytes", one(tensor_json("[4611686018427387904]", "[0,0]")), "",
                  "exceeds 63 bits"},
        BadHeader{"overflow_then_zero", one(tensor_json("[4294967296,4294967296,0]", "[0,0]")), "",
                  "exceeds 63 bits"},
        BadHeader{"rank_9", one(tensor_json("[1,1,1,1,1,1,1,1,1]", "[0,4]")), kFour,
                  "rank at most 8"},
        BadHeader{"one_offset", one(tensor_json("[1]", "[0]")), kFour, "two data_offsets"},
        BadHeader{"three_offsets", one(tensor_json("[1]", "[0,4,4]")), kFour, "two data_offsets"},
        BadHeader{"reversed_offsets", one(tensor_json("[1]", "[4,0]")), kFour, "expected 4 bytes"},
        BadHeader{"short_tensor", one(tensor_json("[2]", "[0,4]")), kFour, "expected 8 bytes"},
        BadHeader{"begins_late", one(tensor_json("[1]", "[4,8]")), kFour + kFour,
                  "begin at 0, got 4"},
        BadHeader{"hole",
                  R"({"a":)" + tensor_json("[1]", "[0,4]") + R"(,"b":)" +
                      tensor_json("[1]", "[8,12]") + "}",
                  kFour + kFour + kFour, "begin at 4, got 8"},
        BadHeader{"overlap",
                  R"({"a":)" + tensor_json("[1]", "[0,4]") + R"(,"b":)" +
                      tensor_json("[1]", "[0,4]") + "}",
                  kFour, "begin at 4, got 0"},
        BadHeader{"data_missing", one(tensor_json("[1]", "[0,4]")), "",
                  "expected 4 bytes of tensors"},
        BadHeader{"data_left_over", one(tensor_json("[1]", "[0,4]")), kFour + "x", "got 5"},
        BadHeader{"claims_an_exabyte",
                  one(tensor_json("[1152921504606846976]", "[0,4611686018427387904]")), kFour,
                  "expected 4611686018427387904 bytes of tensors"},
        BadHeader{"unknown_dtype", one(tensor_json("[1]", "[0,1]", "F8_E4M3")), "x",
                  "tensor 'a': unsupported dtype 'F8_E4M3'"},
        BadHeader{"bool_of_2", one(tensor_json("[2]", "[0,2]", "BOOL")), "\x01\x02",
                  "expected 0 or 1 at index 1, got 2"},
        BadHeader{"newline_in_name", "{\"a\\nb\":null}", "", "a\\x0ab"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_F(SafetensorsFile, RejectsBadPrefixes) {
  EXPECT_NE(error_of("").find("at least 8 bytes, got 0"), std::string::npos);
  EXPECT_NE(error_of("1234567").find("got 7"), std::string::npos);
  EXPECT_NE(error_of(u64_bytes(3) + "{}").find("header of 3 bytes, the file has 2"),
            std::string::npos);
  EXPECT_NE(error_of(u64_bytes(~std::uint64_t{0}) + "{}").find("at most 16777216"),
            std::string::npos);
  EXPECT_NE(
      error_of("\x93\x07\xEE\x10\x80\xC1\x9E\x42 random")
          .find(": not a safetensors file: expected a header of at most 16777216 bytes, got "),
      std::string::npos);
  EXPECT_NE(error_of(u64_bytes(19778) + "\x93\x07\xEE")
                .find(": not a safetensors file: expected a header of 19778 bytes, the file has 3"),
            std::string::npos);
  EXPECT_NE(error_of(u64_bytes((16 << 20) + 1) + std::string((16 << 20) + 1, '{')).find("at most"),
            std::string::npos);
}

TEST_F(SafetensorsFile, RejectsTooManyTensors) {
  std::string header = "{";
  for (int i = 0; i <= 65536; ++i) {
    header +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":" + tensor_json("[0]", "[0,0]", "U8");
  }
  EXPECT_NE(error_of(file_of(header + "}", "")).find("at most 65536 tensors"), std::string::npos);
}

TEST_F(SafetensorsFile, RejectsEveryTruncation) {
  write_safetensors(path_, {{{"a", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({1})}}, {}});
  const std::string whole = read_bytes(path_);
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "") << n;
  EXPECT_NE(error_of(whole + '\0'), "");
}

// Random damage is read or rejected, but nothing else ever happens.
TEST_F(SafetensorsFile, SurvivesRandomDamage) {
  write_safetensors(path_, {{{"weight", Tensor::zeros({2, 3})},
                             {"mask", Tensor::zeros({4}, DType::kBool)},
                             {"steps", Tensor::zeros({}, DType::kI64)}},
                            {{"epoch", "3"}}});
  const std::string whole = read_bytes(path_);
  Rng rng(11);
  int rejected = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = whole;
    for (std::uint64_t i = 0; i <= rng.below(4); ++i) {
      const auto from = static_cast<std::size_t>(rng.below(bytes.size()));
      const auto to = static_cast<std::size_t>(rng.below(bytes.size()));
      switch (rng.below(3)) {
        case 0:
          bytes[to] = static_cast<char>(rng.below(256));
          break;
        case 1:
          bytes[to] = bytes[from];  // characters that mean something
          break;
        default:
          bytes.insert(to, bytes.substr(from, static_cast<std::size_t>(rng.below(8))));
      }
    }
    try {
      read(bytes);
    } catch (const InputError&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 2000);
}

}  // namespace
}  // namespace steelyard
