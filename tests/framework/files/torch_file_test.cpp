// Files of torch.save(), written here opcode by opcode (Python's Lib/pickletools.py). That files of
// PyTorch itself are read is tested in tests/reference/.
#include "steelyard/framework/files/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zip_files.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::zip_of;

std::string bytes(std::uint64_t value, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}
std::string text(const std::string& value) { return "X" + bytes(value.size(), 4) + value; }
std::string number(std::int32_t value) { return "J" + bytes(static_cast<std::uint32_t>(value), 4); }
std::string tuple(const std::vector<std::int32_t>& values) {
  std::string items = "(";
  for (const std::int32_t value : values) items += number(value);
  return items + "t";
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
const std::string kOrderedDict = global("collections", "OrderedDict") + ")R";

std::string storage(const std::string& type, const std::string& key, std::int32_t elements) {
  return "(" + text("storage") + global("torch", type) + text(key) + text("cpu") +
         number(elements) + "tQ";
}
// `more`: an argument after PyTorch's usual ones.
std::string tensor(const std::string& stored, const std::vector<std::int32_t>& shape,
                   const std::vector<std::int32_t>& strides, std::int32_t offset = 0,
                   const std::string& more = "") {
  return global("torch._utils", "_rebuild_tensor_v2") + "(" + stored + number(offset) +
         tuple(shape) + tuple(strides) + "\x89" + kOrderedDict + more + "tR";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string items = "}(";
  for (const auto& [name, value] : entries) items += text(name) + value;
  return items + "u";
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
const std::string kSix = raw<float>({0, 1, 2, 3, 4, 5});
const std::string kSixStored = storage("FloatStorage", "0", 6);

using Files = std::vector<std::pair<std::string, std::string>>;

class TorchFiles : public ::testing::Test {
 protected:
  TorchFile read_archive(const Files& files) const {
    testing::write_bytes(folder_ / "model.pt", zip_of(files));
    return read_torch_file(folder_ / "model.pt");
  }
  TorchFile read_pickle(const std::string& pickle, const Files& more = {}) const {
    Files files{{"model/data.pkl", pickle}, {"model/data/0", kSix}};
    files.insert(files.end(), more.begin(), more.end());
    return read_archive(files);
  }
  TorchFile read(const std::string& value, const Files& more = {}) const {
    return read_pickle("\x80\x02" + value + ".", more);
  }
  std::string error(const std::string& value, const Files& more = {}) const {
    const std::string whole = message_of<InputError>([&] { read(value, more); });
    const std::string name = (folder_ / "model.pt").string() + ": ";
    EXPECT_TRUE(whole.starts_with(name)) << whole;
    return whole.substr(std::min(whole.size(), name.size()));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TorchFiles, TensorsAreRowMajorWhateverTheirStrides) {
  const TorchFile file = read(dict({{"plain", tensor(kSixStored, {2, 3}, {3, 1})},
                                    {"transposed", tensor(kSixStored, {3, 2}, {1, 3})},
                                    {"column", tensor(kSixStored, {2}, {3}, 1)},
                                    {"scalar", tensor(kSixStored, {}, {}, 4)},
                                    {"none", tensor(kSixStored, {0, 3}, {3, 1})},
                                    {"again", tensor(kSixStored, {2, 3}, {3, 1})}}));
  ASSERT_EQ(file.tensors.size(), 6U);
  EXPECT_EQ(file.entry, "");
  const auto values = [&](std::size_t i) {
    const auto span = file.tensors[i].tensor.span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(file.tensors[1].name, "transposed");
  EXPECT_EQ(file.tensors[1].tensor.shape(), (Shape{3, 2}));
  EXPECT_THAT(values(0), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values(1), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values(2), ElementsAre(1, 4));
  EXPECT_THAT(values(3), ElementsAre(4));
  EXPECT_EQ(file.tensors[3].tensor.shape(), Shape{});
  EXPECT_EQ(file.tensors[4].tensor.shape(), (Shape{0, 3}));
  EXPECT_TRUE(file.tensors[5].tensor.shares_storage_with(file.tensors[0].tensor));
}

// Views of a stack of matrices, each transposed; and the same the other way round.
TEST_F(TorchFiles, ManyViewsOfOneStorage) {
  constexpr std::int32_t kCount = 40, kRows = 8, kColumns = 16;
  constexpr std::int32_t kSize = kRows * kColumns;
  std::vector<float> numbers(kCount * kSize);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const std::string stack = storage("FloatStorage", "s", kCount * kSize);
  for (const bool interleaved : {false, true}) {
    std::vector<std::pair<std::string, std::string>> views;
    for (std::int32_t i = 0; i < kCount; ++i) {
      const auto view = interleaved ? tensor(stack, {kSize}, {kCount}, i)
                                    : tensor(stack, {kColumns, kRows}, {1, kColumns}, i * kSize);
      views.emplace_back("w" + std::to_string(i), view);
    }
    const TorchFile file = read(dict(views), {{"model/data/s", raw(numbers)}});
    ASSERT_EQ(file.tensors.size(), std::size_t{kCount});
    const float expected = interleaved ? 2 * kCount + 39 : 39 * kSize + 2 * kColumns;
    EXPECT_EQ(file.tensors.back().tensor.span<float>()[2], expected);
  }
}

TEST_F(TorchFiles, NegatedTensorsAreRefused) {
  const auto with = [&](const std::string& properties) {
    return dict({{"w", tensor(kSixStored, {6}, {1}, 0, properties)}});
  };
  EXPECT_NO_THROW(read(with("}")));
  EXPECT_NO_THROW(read(with("N")));
  EXPECT_THAT(error(with("}(" + text("neg") + "\x88u")),
              HasSubstr("tensor 'w': has properties beside its numbers"));
}

TEST_F(TorchFiles, EveryType) {
  struct Type {
    const char* storage;
    DType dtype;
  };
  const std::vector<Type> types{{"DoubleStorage", DType::kF64}, {"FloatStorage", DType::kF32},
                                {"HalfStorage", DType::kF16},   {"BFloat16Storage", DType::kBF16},
                                {"LongStorage", DType::kI64},   {"IntStorage", DType::kI32},
                                {"CharStorage", DType::kI8},    {"ByteStorage", DType::kU8},
                                {"BoolStorage", DType::kBool}};
  std::vector<std::pair<std::string, std::string>> entries;
  Files files;
  for (const Type& type : types) {
    entries.emplace_back(type.storage, tensor(storage(type.storage, type.storage, 1), {1}, {1}));
    const std::string one = "\1" + std::string(dtype_bytes(type.dtype) - 1, '\0');
    files.emplace_back("model/data/" + std::string(type.storage), one);
  }
  const TorchFile file = read(dict(entries), files);
  for (std::size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(file.tensors[i].tensor.dtype(), types[i].dtype) << types[i].storage;
    EXPECT_EQ(*static_cast<const char*>(file.tensors[i].tensor.raw()), 1) << types[i].storage;
  }
}

TEST_F(TorchFiles, WhatIsAroundAStateDict) {
  const std::string six = tensor(kSixStored, {6}, {1});
  const std::string state = dict({{"w", six}});
  // Numbers, texts, lists and tuples of all kinds, and the memo.
  const std::string rest = dict({{"epoch", "K\x07"},
                                 {"best", "G\x3F\xF8" + std::string(6, '\0')},
                                 {"seed", "\x8A\x09" + std::string(8, '\1') + "\x7F"},
                                 {"step", "\x8A\x02\xFF\xFE"},
                                 {"args", "](N\x88" + text("x") +
                                              "q\x01\x86h\x01\x85M\x01\x02"
                                              "e"},
                                 {"state_dict", state}});
  const TorchFile inner = read(rest);
  EXPECT_EQ(inner.entry, "state_dict");
  ASSERT_EQ(inner.tensors.size(), 1U);
  EXPECT_EQ(inner.tensors[0].name, "w");
  EXPECT_EQ(read(dict({{"epoch", "N"}, {"model", state}})).entry, "model");
  EXPECT_EQ(read(dict({{"model", state}, {"model_state_dict", state}})).entry, "model_state_dict");
  // A training script's checkpoint may hold other tensors.
  EXPECT_EQ(read(dict({{"best_acc1", six}, {"epoch", "N"}, {"state_dict", state}})).entry,
            "state_dict");
  // Tensors at the top are the state dict, whatever their names.
  EXPECT_EQ(read(dict({{"model", six}})).tensors[0].name, "model");
  // An ordered dict with attributes, as Module.state_dict() gives; a parameter.
  const std::string parameter =
      global("torch._utils", "_rebuild_parameter") + "(" + six + "\x88" + kOrderedDict + "tR";
  const std::string ordered =
      kOrderedDict + "(" + text("p") + parameter + "u" + dict({{"_metadata", kOrderedDict}}) + "b";
  EXPECT_EQ(read(ordered).tensors[0].name, "p");
}

TEST_F(TorchFiles, NothingIsExecuted) {
  const std::string six = tensor(kSixStored, {6}, {1});
  const auto entry = [&](const std::string& value) { return dict({{"w", six}, {"x", value}}); };
  const std::string why = ": only tensors, dicts, lists, tuples, numbers and texts are read";
  EXPECT_EQ(error(global("os", "system") + "(" + text("true") + "tR"),
            "data.pkl, byte 2: names os.system" + why +
                " (torch.save(model.state_dict(), ...) writes such a file)");
  struct Hostile {
    std::string value, message;
  };
  const std::vector<Hostile> all{
      {entry(text("builtins") + text("eval") + "\x93"), "names builtins.eval"},
      {entry(global("torch", "ShortStorage")), "names torch.ShortStorage"},
      {entry(global("torch\x1B", "x")), "names torch\\x1b.x"},
      {entry("K\1)R"), "expected a call of a global, got one of the number 1"},
      {entry(global("collections", "OrderedDict") + "(]tR"), "made of other values"},
      {entry("K\1K\2b"), "expected a dict, got the number 1"},
      {entry("\x81"), "the opcode 0x81 is not read"},
      {entry("("), "expected"},
      {"", "byte 2: expected one value at the end"},
      {"0", "byte 2: the stack is empty"},
      {"u", "byte 2: there is no mark"},
      {"}(K\1u", "a key without a value"},
      {"h\5", "nothing was stored as 5"},
      {"\x80\x07", "protocol 7, expected 2 to 5"},
      {"K", "cut off"},
      {"X\xFF\xFF\xFF\xFF", "cut off"},
      {"\x8D" + std::string(8, '\xFF'), "cut off"},
      {"cos", "cut off"},
      {"K\1", "expected a state dict, got the number 1"},
      {"}", "got one of nothing"},
      {dict({{"epoch", "K\1"}, {"net", "}"}}), "got one of epoch, net"},
      {entry("K\1"), "tensor 'x': expected a tensor, got the number 1"},
      {entry(kOrderedDict), "tensor 'x': expected a tensor, got a dict"},
      {entry(global("torch", "FloatStorage") + ")R"), "tensor 'x': is no tensor"},
      {"}(K\1" + six + "u", "expected names of tensors, got the number 1"},
      {dict({{"\xFF", six}}), "expected names of tensors"},
      {dict({{"w", six}, {"w", six}}), "two tensors have the name 'w'"},
      {entry(tensor(kSixStored, {2, 3}, {3, 2})), "is outside of its 6 elements"},
      {entry(tensor(kSixStored, {6}, {1}, 1)), "is outside of its 6 elements"},
      {entry(tensor(kSixStored, {2, 2, 2, 2}, {0, 0, 0, 0})), "repeats its 6 elements"},
      {entry(tensor(kSixStored, {6}, {-1})), "strides: expected numbers of at least 0"},
      {entry(tensor(kSixStored, {6}, {1, 1})), "has 1 dimensions and 2 strides"},
      {entry(tensor(kSixStored, {6}, {1}, -1)), "a negative offset"},
      {entry(tensor(kSixStored, {0, 2147483647, 2147483647}, {1, 1, 1})), "is too large"},
      {entry(tensor(kSixStored, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1})),
       "expected at most 8 dimensions, got 9"},
      {entry(tensor(storage("FloatStorage", "1", 6), {6}, {1})), "the archive has no data/1"},
      {entry(tensor(storage("FloatStorage", "0", 7), {6}, {1})),
       "expected 7 elements of f32 in data/0, got 24 bytes"},
      {entry(tensor(storage("DoubleStorage", "0", 6), {6}, {1})), "expected 6 elements of f64"},
      {entry(tensor(storage("BoolStorage", "0", 24), {24}, {1})), "expected 0 or 1 at index 6"},
      {entry(tensor(text("x"), {6}, {1})), "expected a storage as argument 1"},
      {entry(tensor(text("x") + "Q", {6}, {1})), "expected a storage of numbers"}};
  for (const Hostile& hostile : all) {
    EXPECT_THAT(error(hostile.value), HasSubstr(hostile.message));
  }
  EXPECT_THAT(error(entry(six), {{"model/byteorder", "big"}}), HasSubstr("not little-endian"));
  EXPECT_THAT(message_of<InputError>([&] {
                read_archive({{"model/data/0", kSix}});
              }),
              HasSubstr("model.pt: not a PyTorch file: the archive has no data.pkl"));
  // Many views of one storage need no more than the file says.
  std::vector<std::pair<std::string, std::string>> views;
  for (int i = 0; i < 100; ++i) {
    views.emplace_back("v" + std::to_string(i), tensor(kSixStored, {5 - i % 5}, {1}, i % 5));
  }
  EXPECT_EQ(read(dict(views)).tensors.size(), 100U);
}

TEST_F(TorchFiles, ChangedBytesAreRefusedOrHarmless) {
  const std::string pickle = "\x80\x02" + dict({{"w", tensor(kSixStored, {2, 3}, {1, 2})}}) + ".";
  for (std::size_t size = 0; size < pickle.size(); size += 3) {
    EXPECT_THAT(message_of<InputError>([&] { read_pickle(pickle.substr(0, size)); }),
                HasSubstr("data.pkl, byte "));
  }
  for (std::size_t at = 0; at < pickle.size(); ++at) {
    std::string bad = pickle;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    try {
      read_pickle(bad);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.pt: "));
    }
  }
}

}  // namespace
}  // namespace steelyard
