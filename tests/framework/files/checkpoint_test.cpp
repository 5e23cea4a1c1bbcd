#include "steelyard/framework/files/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/trained_weights.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

class CheckpointFile : public ::testing::Test {
 protected:
  static Checkpoint small() {
    return {{{"conv.weight", Tensor::from<float>({1.0F, -2.0F, 3.5F}, {1, 3})},
             {"steps", Tensor::from<std::int64_t>({41}, {})},
             {"conv.weight/momentum", Tensor::from<float>({0.5F}, {1})},
             {"empty", Tensor::zeros({0})}},
            {{"epoch", "3"}, {"rng \"state\"\\", "sha256\":\"0\n\xC3\xA9"}, {"x", ""}}};
  }
  std::string saved() {
    save_checkpoint(path_, small());
    return read_bytes(path_);
  }
  // Both ways of loading must refuse the bytes.
  void expect_rejected(const std::string& bytes, const std::string& what) {
    write_bytes(path_, bytes);
    EXPECT_THROW(load_checkpoint(path_), InputError) << what;
    EXPECT_THROW(load_tensors(path_), InputError) << what;
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "c.safetensors";
};

TEST_F(CheckpointFile, ReturnsWhatWasSaved) {
  saved();
  for (const Checkpoint& c : {load_checkpoint(path_), load_tensors(path_)}) {
    EXPECT_EQ(c.metadata, small().metadata);
    ASSERT_EQ(c.tensors.size(), 4u);
    EXPECT_EQ(c.tensors[0].name, "steps");
    EXPECT_EQ(c.tensors[0].tensor.item(), 41);
    EXPECT_EQ(c.tensors[1].name, "conv.weight");
    EXPECT_EQ(c.tensors[1].tensor.span<float>()[2], 3.5F);
  }
}

TEST_F(CheckpointFile, EqualContentsGiveEqualBytes) {
  const std::string first = saved();
  Checkpoint other = small();
  std::reverse(other.tensors.begin(), other.tensors.end());
  save_checkpoint(folder_ / "elsewhere", other);
  EXPECT_EQ(read_bytes(folder_ / "elsewhere"), first);
}

TEST_F(CheckpointFile, DigestsAreWhatTheFormatSays) {
  const std::string bytes = saved();
  const TensorFile raw = read_safetensors(path_);
  EXPECT_EQ(raw.metadata.at("format"), "steelyard-checkpoint");
  EXPECT_EQ(raw.metadata.at("format_version"), "1");
  EXPECT_EQ(raw.metadata.at("sha256:steps"), sha256_of(std::string(")\0\0\0\0\0\0\0", 8)));
  const std::string digest = raw.metadata.at("sha256");
  std::string header = bytes.substr(0, bytes.find('}' + std::string("}")) + 2);
  while (header.size() % 8 != 0) header += ' ';
  header.replace(header.find(digest), digest.size(), 64, '0');
  EXPECT_EQ(digest, sha256_of(header));
}

TEST_F(CheckpointFile, RejectsEverySingleBitFlip) {
  const std::string whole = saved();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    expect_rejected(bytes, "bit " + std::to_string(bit));
  }
}

TEST_F(CheckpointFile, RejectsEveryTruncationAndExtension) {
  const std::string whole = saved();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_rejected(whole.substr(0, n), std::to_string(n) + " bytes");
  }
  expect_rejected(whole + '\0', "one byte more");
}

TEST_F(CheckpointFile, DamageNamesTheTensor) {
  std::string bytes = saved();
  bytes[bytes.size() - 1] ^= 1;  // float tensors lie last, by name
  write_bytes(path_, bytes);
  EXPECT_NE(message_of<InputError>([&] {
              load_checkpoint(path_);
            }).find("damaged: tensor 'conv.weight/momentum'"),
            std::string::npos);
}

TEST_F(CheckpointFile, TellsAnotherVersionFromDamage) {
  // A file of version 2 whose header digest is right.
  TensorFile future{{}, {{"format", "steelyard-checkpoint"}, {"format_version", "2"}}};
  future.metadata["sha256"] = std::string(64, '0');
  future.metadata["sha256"] = sha256_of(encode_safetensors_header({}, future.metadata));
  write_safetensors(path_, future);
  EXPECT_NE(message_of<InputError>([&] { load_tensors(path_); }).find("version '2'"),
            std::string::npos);
}

TEST_F(CheckpointFile, ForeignFilesAreTensorsButNoCheckpoints) {
  write_safetensors(path_, {{{"a", Tensor::zeros({2})}}, {{"format", "pt"}}});
  EXPECT_EQ(load_tensors(path_).metadata.at("format"), "pt");
  EXPECT_NE(
      message_of<InputError>([&] { load_checkpoint(path_); }).find("another safetensors file"),
      std::string::npos);
}

TEST_F(CheckpointFile, ReservedMetadataIsRefused) {
  for (const char* key : {"format", "format_version", "sha256", "sha256:w"}) {
    EXPECT_THROW(save_checkpoint(path_, {{}, {{key, "x"}}}), std::invalid_argument) << key;
  }
}

// A module with two parameters and PyTorch's batch-norm counter.
class Toy : public Module {
 public:
  Toy() {
    register_parameter("weight", Tensor::zeros({2, 2}));
    register_parameter("bias", Tensor::zeros({2}));
    register_buffer("num_batches_tracked", Tensor::zeros({}, DType::kI64));
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Toy"; }
};

float weight(const Toy& toy, std::size_t i) { return module_state(toy)[0].tensor.span<float>()[i]; }

TEST(LoadInto, CopiesInPlaceAndIgnoresTrainingState) {
  Toy toy;
  const Tensor storage = module_state(toy)[0].tensor;
  load_into(toy,
            {{"bias", Tensor::from<double>({0.1, 2.0}, {2})},
             {"weight", Tensor::from<float>({1, 2, 3, 4}, {2, 2}).to(DType::kBF16)},
             {"weight/momentum", Tensor::zeros({7})}},
            "x.safetensors");
  EXPECT_EQ(weight(toy, 3), 4.0F);
  EXPECT_TRUE(storage.shares_storage_with(module_state(toy)[0].tensor));
  EXPECT_EQ(module_state(toy)[1].tensor.span<float>()[0], 0.1F);
  EXPECT_EQ(module_state(toy)[2].name, "num_batches_tracked");
}

TEST(LoadInto, ListsEverythingThatDisagreesAndChangesNothing) {
  Toy toy;
  const std::string message = message_of<InputError>([&] {
    load_into(toy,
              {{"weight", Tensor::full({2, 2}, 1.0)},
               {"num_batches_tracked", Tensor::zeros({3}, DType::kI64)},
               {"z", Tensor::zeros({1})},
               {"c", Tensor::zeros({1})}},
              "x.safetensors");
  });
  EXPECT_EQ(message,
            "x.safetensors: tensors do not fit the model: missing: bias; unexpected: c, z; "
            "wrong shape: num_batches_tracked expected [] got [3]");
  EXPECT_EQ(weight(toy, 0), 0.0F);
}

// The names of the other file are what helps; thousands of them are not.
TEST(LoadInto, ShowsTheFirstNamesOfManyWithTheirNumberAndANearName) {
  Toy toy;
  std::vector<NamedTensor> given{{"module.weight", Tensor::zeros({2, 2})},
                                 {"biases", Tensor::zeros({2})}};
  for (int i = 0; i < 20; ++i) {
    std::string name("x");
    name += std::to_string(100 + i);
    given.push_back({name, Tensor::zeros({1})});
  }
  EXPECT_EQ(message_of<InputError>([&] { load_into(toy, given, "x.safetensors"); }),
            "x.safetensors: tensors do not fit the model: missing: bias (the file has 'biases'), "
            "weight (the file has 'module.weight'); unexpected: biases, module.weight, x100, x101, "
            "x102 and 17 more, 22 in all");
}

TEST(LoadInto, EveryTensorIsGivenOnceAndDefined) {
  Toy toy;
  const NamedTensor weight{"weight", Tensor::zeros({2, 2})};
  EXPECT_EQ(message_of<InputError>([&] {
              load_into(toy, {weight, {"bias", Tensor()}, weight}, "x");
            }),
            "x: tensors do not fit the model: missing: bias; undefined: bias; given twice: weight");
}

TEST(LoadInto, IntegersDoNotBecomeParameters) {
  Toy toy;
  EXPECT_NE(message_of<InputError>([&] {
              load_into(
                  toy,
                  {{"weight", Tensor::zeros({2, 2}, DType::kI8)}, {"bias", Tensor::zeros({2})}},
                  "x");
            }).find("wrong dtype: weight expected f32 got i8"),
            std::string::npos);
}

// What training could not begin with: the step would name a quantizer, or the loss, and no file.
TEST_F(CheckpointFile, TrainedWeightsAreNumbers) {
  struct Norm : Toy {
    Norm() { register_buffer("running_var", Tensor::full({2}, 1.0)); }
  };
  const auto message = [&](const std::string& name, const Tensor& tensor) {
    std::vector<NamedTensor> tensors{{"weight", Tensor::zeros({2, 2})},
                                     {"bias", Tensor::zeros({2})},
                                     {"running_var", Tensor::zeros({2})}};
    for (NamedTensor& t : tensors) {
      if (t.name == name) t.tensor = tensor;
    }
    write_safetensors(path_, {tensors, {}});
    Norm norm;
    return message_of<InputError>([&] { load_trained_weights(norm, path_); });
  };
  const std::string file = path_.string() + ": tensor '";
  EXPECT_EQ(message("weight", Tensor::from<float>({1, 2, NAN, INFINITY}, {2, 2})),
            file + "weight': expected finite values, got nan at [1, 0]");
  EXPECT_EQ(message("weight", Tensor::from<float>({1, 2, 3, -INFINITY}, {2, 2}).to(DType::kF16)),
            file + "weight': expected finite values, got -inf at [1, 1]");
  EXPECT_EQ(message("bias", Tensor::from<double>({0, -1e300}, {2})),
            file + "bias': -1e+300 at [1] is beyond float32");
  EXPECT_EQ(message("bias", Tensor::from<double>({0, INFINITY}, {2})),
            file + "bias': expected finite values, got inf at [1]");
  EXPECT_EQ(message("running_var", Tensor::from<float>({0, -0.5F}, {2})),
            file + "running_var': expected variances of at least 0, got -0.500000 in channel 1");
}

}  // namespace
}  // namespace steelyard
