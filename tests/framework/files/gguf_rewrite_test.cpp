#include "steelyard/framework/files/gguf/gguf_rewrite.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_decoder.h"

namespace steelyard {
namespace {

using kernels::BlockType;
using testing::all_close;
using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;

constexpr const char* kMatrix = "blk.0.ffn_down.weight";
constexpr const char* kVector = "blk.0.ffn_norm.weight";

class GgufRewrite : public ::testing::Test {
 protected:
  std::filesystem::path source(BlockType type) {
    testing::TinyDecoder d = testing::tiny_llama();
    d.type = type;
    return testing::write_decoder(folder_ / "source.gguf", d);
  }
  static Tensor values_in(const GgufReader& file, const char* tensor) {
    return read_values(file, *file.find(tensor));
  }
  std::string error(const GgufValues& values) {
    const GgufReader file(source(BlockType::kF32));
    return message_of<InputError>([&] { rewrite_gguf(file, {values}, folder_ / "new.gguf"); });
  }

  TemporaryFolder folder_;
  std::filesystem::path new_ = folder_ / "new.gguf";
};

// Values that the file's bytes stand for already: not even other encodings of them.
TEST_F(GgufRewrite, CopiesBytesThatStandForTheValues) {
  for (const BlockType type : {BlockType::kF32, BlockType::kF16, BlockType::kBF16, BlockType::kQ4_0,
                               BlockType::kQ8_0, BlockType::kMxfp4}) {
    const std::filesystem::path path = source(type);
    const GgufReader file(path);
    std::vector<GgufValues> values;
    for (const GgufTensor& t : file.header().tensors)
      values.push_back({t.name, read_values(file, t)});
    for (GgufValues& v : values) {
      const bool blocks = type != BlockType::kF32 && type != BlockType::kF16 &&
                          type != BlockType::kBF16 && v.values.rank() == 2;
      if (blocks) v.type = type;
    }
    rewrite_gguf(file, values, new_);
    const GgufReader again(new_);
    EXPECT_EQ(again.header().tensors, file.header().tensors) << kernels::ggml_type(type).name;
    for (const GgufTensor& t : file.header().tensors) {
      EXPECT_TRUE(all_close(read_values(again, t), read_values(file, t), 0, 0));
    }
  }
}

TEST_F(GgufRewrite, WithoutValuesIsTheSameFile) {
  const std::filesystem::path path = source(BlockType::kQ4_1);
  rewrite_gguf(GgufReader(path), {}, new_);
  EXPECT_EQ(read_bytes(new_), read_bytes(path));
}

TEST_F(GgufRewrite, WritesNewValuesInTheTypeAskedFor) {
  const GgufReader file(source(BlockType::kF16));
  const Tensor matrix = testing::random_tensor({32, 64}, 7, DType::kF32);
  rewrite_gguf(file, {{kMatrix, matrix, BlockType::kQ8_0}, {kVector, Tensor::full({32}, 1.5)}},
               new_);
  const GgufReader again(new_);
  EXPECT_EQ(again.find(kMatrix)->type->name, "q8_0");
  EXPECT_TRUE(all_close(values_in(again, kMatrix), matrix, 0, 1.0 / 127));
  EXPECT_EQ(again.find(kVector)->type->name, "f32");
  EXPECT_EQ(values_in(again, kVector).data<float>()[31], 1.5F);
  EXPECT_EQ(again.find("blk.0.ffn_up.weight")->type->name, "f16");
  EXPECT_EQ(again.header().find("general.file_type")->whole_number(), 7);
  EXPECT_EQ(again.header().find("general.name")->text(), "tiny");
}

TEST_F(GgufRewrite, WritesSearchedScales) {
  const GgufReader file(source(BlockType::kF32));
  const Tensor matrix = testing::random_tensor({32, 64}, 7, DType::kF32);
  const auto written = [&](bool searched) {
    rewrite_gguf(file, {{kMatrix, matrix, BlockType::kQ4_0, searched}}, new_);
    return values_in(GgufReader(new_), kMatrix);
  };
  const auto error = [&](const Tensor& values) {
    double sum = 0;
    for (std::int64_t i = 0; i < matrix.size(); ++i) {
      sum += std::pow(double{values.data<float>()[i]} - double{matrix.data<float>()[i]}, 2);
    }
    return sum;
  };
  EXPECT_LT(error(written(true)), 0.9 * error(written(false)));
}

// What is decoded alone becomes f32 where it is given again.
TEST_F(GgufRewrite, ReadsTypesThatAreNotWritten) {
  const std::filesystem::path path = folder_ / "k.gguf";
  GgufWriter writer(path, {}, {{"w", {256, 2}, &kernels::ggml_type(BlockType::kQ6_K)}});
  std::vector<std::uint8_t> bytes(std::size_t{2} * 210, 0);
  bytes[0] = 0x35;    // the first value's low bits, and those of the 64th
  bytes[192] = 0xFE;  // times -2
  bytes[209] = 0x3C;  // times 1
  writer.write(bytes.data(), bytes.size());
  writer.commit();
  const GgufReader file(path);
  const Tensor values = read_values(file, *file.find("w"));
  EXPECT_EQ(values.shape(), (Shape{2, 256}));
  EXPECT_EQ(values.data<float>()[0], -2.0F * (5 - 32));
  EXPECT_EQ(values.data<float>()[1], 64.0F);
  EXPECT_EQ(values.data<float>()[16], 0.0F);
  rewrite_gguf(file, {}, new_);
  EXPECT_EQ(read_bytes(new_), read_bytes(path));
  rewrite_gguf(file, {{"w", values}}, new_);
  EXPECT_EQ(GgufReader(new_).find("w")->type->name, "f32");
  EXPECT_TRUE(all_close(values_in(GgufReader(new_), "w"), values, 0, 0));
}

// Values that float16 does not hold are not rounded to it.
TEST_F(GgufRewrite, KeepsAFloatTypeOnlyWhereItIsExact) {
  const GgufReader file(source(BlockType::kF16));
  rewrite_gguf(file, {{kMatrix, Tensor::full({32, 64}, 1.25)}}, new_);
  EXPECT_EQ(GgufReader(new_).find(kMatrix)->type->name, "f16");
  rewrite_gguf(file, {{kMatrix, Tensor::full({32, 64}, 0.1)}}, new_);
  EXPECT_EQ(GgufReader(new_).find(kMatrix)->type->name, "f32");
}

TEST_F(GgufRewrite, MayReplaceItsSource) {
  const std::filesystem::path path = source(BlockType::kF32);
  rewrite_gguf(GgufReader(path), {{kVector, Tensor::full({32}, 2.0)}}, path);
  EXPECT_EQ(values_in(GgufReader(path), kVector).data<float>()[0], 2.0F);
}

TEST_F(GgufRewrite, NamesWhatDoesNotFit) {
  const std::string file = (folder_ / "source.gguf").string() + ": tensor '";
  EXPECT_EQ(error({"blk.9.x", Tensor::zeros({2})}), file + "blk.9.x': the file has no such tensor");
  EXPECT_EQ(error({kVector, Tensor::zeros({2})}),
            file + kVector + "': expected values [32], got [2]");
  EXPECT_EQ(error({kVector, Tensor::full({32}, std::nan(""))}),
            file + kVector + "': expected finite values, got NaN or infinity");
  EXPECT_EQ(error({kVector, Tensor::zeros({32}), BlockType::kQ2_0}),
            file + kVector + "': expected rows of whole blocks of 64 for q2_0, got rows of 32");
}

}  // namespace
}  // namespace steelyard
