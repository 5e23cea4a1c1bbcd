// Language models of GGUF files against plain formulas in double.
#include "steelyard/import/language/gguf_decoder.h"

#include <gtest/gtest.h>

#include <map>

#include "steelyard/framework/files/gguf/gguf_values.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_decoder.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::message_of;
using testing::TemporaryFolder;
using testing::TinyDecoder;
using testing::write_decoder;

using Values = std::vector<double>;

// Logits of one sequence, position by position, from a file's tensors: Touvron et al., "Llama 2",
// arXiv:2307.09288, with biases and norms of heads as Qwen2 and Qwen3 have them.
class PlainDecoder {
 public:
  PlainDecoder(const TinyDecoder& shape, const std::vector<NamedTensor>& tensors) : d_(shape) {
    for (const NamedTensor& t : tensors) tensors_[t.name] = testing::values(t.tensor);
  }

  Values logits(const std::vector<std::int64_t>& tokens) {
    std::vector<Values> x;
    for (const std::int64_t token : tokens) {
      const Values& table = tensors_.at("token_embd.weight");
      x.emplace_back(table.begin() + token * d_.width, table.begin() + (token + 1) * d_.width);
    }
    for (std::int64_t i = 0; i < d_.blocks; ++i) block("blk." + std::to_string(i) + ".", x);
    Values all;
    for (const Values& row : x) {
      const Values normed = norm("output_norm", row);
      for (const double value : product(d_.tied ? "token_embd" : "output", normed)) {
        all.push_back(value);
      }
    }
    return all;
  }

 private:
  Values norm(const std::string& name, const Values& x) const {
    const Values& gamma = tensors_.at(name + ".weight");
    Values y = x;
    for (std::size_t first = 0; first < x.size(); first += gamma.size()) {
      double squares = 0;
      for (std::size_t c = 0; c < gamma.size(); ++c) squares += x[first + c] * x[first + c];
      const double rms = std::sqrt(squares / double(gamma.size()) + double(1e-5F));
      for (std::size_t c = 0; c < gamma.size(); ++c) y[first + c] = x[first + c] / rms * gamma[c];
    }
    return y;
  }

  Values product(const std::string& name, const Values& x) const {
    const Values& weight = tensors_.at(name + ".weight");
    const auto bias = tensors_.find(name + ".bias");
    Values y(weight.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += weight[r * x.size() + c] * x[c];
      if (bias != tensors_.end()) y[r] += bias->second[r];
    }
    return y;
  }

  void rotate(Values& x, std::size_t position) const {
    const auto width = static_cast<std::size_t>(d_.head_width());
    for (std::size_t head = 0; head < x.size(); head += width) {
      for (std::size_t pair = 0; pair < width / 2; ++pair) {
        double angle = double(position) * std::pow(100.0, -2.0 * double(pair) / double(width));
        if (d_.factors) angle /= tensors_.at("rope_freqs.weight")[pair];
        const bool llama = d_.architecture == "llama";
        double& a = x[head + (llama ? 2 * pair : pair)];
        double& b = x[head + (llama ? 2 * pair + 1 : pair + width / 2)];
        const double before = a;
        a = before * std::cos(angle) - b * std::sin(angle);
        b = before * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  Values attention(const std::vector<Values>& q, const std::vector<Values>& k,
                   const std::vector<Values>& v, std::size_t i) const {
    const std::int64_t width = d_.head_width();
    Values y(q[i].size());
    for (std::int64_t h = 0; h < d_.heads; ++h) {
      const std::int64_t kv = h / (d_.heads / d_.key_heads) * width;
      Values shares;
      double sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < width; ++c) score += q[i][h * width + c] * k[j][kv + c];
        shares.push_back(std::exp(score / std::sqrt(double(width))));
        sum += shares.back();
      }
      for (std::size_t j = 0; j <= i; ++j) {
        for (std::int64_t c = 0; c < width; ++c) y[h * width + c] += shares[j] / sum * v[j][kv + c];
      }
    }
    return y;
  }

  void block(const std::string& name, std::vector<Values>& x) const {
    std::vector<Values> q, k, v;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Values normed = norm(name + "attn_norm", x[i]);
      q.push_back(product(name + "attn_q", normed));
      k.push_back(product(name + "attn_k", normed));
      v.push_back(product(name + "attn_v", normed));
      if (d_.head_norms) {
        q.back() = norm(name + "attn_q_norm", q.back());
        k.back() = norm(name + "attn_k_norm", k.back());
      }
      rotate(q.back(), i);
      rotate(k.back(), i);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      add(product(name + "attn_output", attention(q, k, v, i)), x[i]);
      const Values normed = norm(name + "ffn_norm", x[i]);
      Values gate = product(name + "ffn_gate", normed);
      const Values up = product(name + "ffn_up", normed);
      for (std::size_t c = 0; c < gate.size(); ++c) gate[c] *= up[c] / (1 + std::exp(-gate[c]));
      add(product(name + "ffn_down", gate), x[i]);
    }
  }

  static void add(const Values& more, Values& x) {
    for (std::size_t c = 0; c < x.size(); ++c) x[c] += more[c];
  }

  TinyDecoder d_;
  std::map<std::string, Values> tensors_;
};

class Decoder : public ::testing::TestWithParam<TinyDecoder> {
 protected:
  // The network of the file with its weights, as this dtype.
  std::shared_ptr<Module> model_of(const TinyDecoder& d, DType dtype,
                                   std::optional<std::int64_t> border = {}) {
    const GgufReader file(write_decoder(folder_ / "tiny.gguf", d));
    imported_ = import_decoder(file, 6, border);
    const std::shared_ptr<Module> model = build(imported_.graph, true, "tiny.gguf");
    std::map<std::string, Tensor> weights;
    for (const NamedTensor& w : imported_.weights) weights[w.name] = w.tensor;
    for (const NamedBuffer& buffer : model->named_buffers()) weights.erase(buffer.name);
    for (NamedParameter& p : model->named_parameters()) {
      p.variable.set_value(weights.at(p.name).to(dtype));
      weights.erase(p.name);
    }
    EXPECT_TRUE(weights.empty());
    return model;
  }

  TemporaryFolder folder_;
  Imported imported_;
};

const std::vector<std::int64_t> kTokens{3, 1, 39, 0, 17, 8};

Tensor tokens_as(DType dtype) {
  return Tensor::from(kTokens, {1, std::ssize(kTokens)}).to(DType::kF32).to(dtype);
}

TEST_P(Decoder, GivesTheLogitsOfItsDefinition) {
  const TinyDecoder& d = GetParam();
  const std::shared_ptr<Module> model = model_of(d, DType::kF64);
  const GgufReader file(folder_ / "tiny.gguf");
  std::vector<NamedTensor> stored;
  for (const GgufTensor& t : file.header().tensors)
    stored.push_back({t.name, read_values(file, t)});
  const Tensor expected =
      Tensor::from(PlainDecoder(d, stored).logits(kTokens), {1, 6, d.vocabulary});
  ForwardContext context;
  const Tensor wide = (*model)(Variable(tokens_as(DType::kF64)), context).value();
  EXPECT_TRUE(all_close(wide, expected, 1e-10, 1e-10));
  const std::shared_ptr<Module> narrow = model_of(d, DType::kF32);
  const Tensor logits = (*narrow)(Variable(tokens_as(DType::kF32)), context).value();
  EXPECT_TRUE(all_close(logits.to(DType::kF64), expected, 1e-5, 1e-5));
  EXPECT_EQ(imported_.graph.output_sample, (Shape{6, d.vocabulary}));
}

// The token 39 ends a document: {3, 1, 39} and {0, 17, 8}.
TEST_P(Decoder, GivesTheLogitsOfEachDocumentAlone) {
  const TinyDecoder& d = GetParam();
  const std::shared_ptr<Module> model = model_of(d, DType::kF64, 39);
  const auto logits_of = [](Module& m, const Tensor& tokens) {
    const Tensor logits = m(Variable(tokens), {}).value();
    return logits.reshape({tokens.size(), logits.dim(-1)});
  };
  const Tensor both = logits_of(*model, tokens_as(DType::kF64));
  const std::shared_ptr<Module> plain = model_of(d, DType::kF64);
  for (const std::int64_t first : {0, 3}) {
    const Tensor own = Tensor::empty({1, 3}, DType::kF64);
    for (std::int64_t i = 0; i < 3; ++i) {
      own.data<double>()[i] = static_cast<double>(kTokens[static_cast<std::size_t>(first + i)]);
    }
    const Tensor alone = logits_of(*plain, own);
    const Tensor part = Tensor::empty({3, d.vocabulary}, DType::kF64);
    std::copy_n(both.data<double>() + first * d.vocabulary, part.size(), part.data<double>());
    EXPECT_TRUE(all_close(part, alone, 1e-12, 1e-12)) << first;
  }
  EXPECT_FALSE(all_close(both, logits_of(*plain, tokens_as(DType::kF64)), 1e-3, 1e-3));
}

TEST_P(Decoder, OfDocumentsSurvivesAsText) {
  model_of(GetParam(), DType::kF32, 39);
  const std::string text = text_of(imported_.graph);
  EXPECT_EQ(text_of(graph_from(text, "text")), text);
  EXPECT_NE(to_string(imported_.graph).find("DocumentStarts(after token 39) <- input"),
            std::string::npos)
      << to_string(imported_.graph);
}

using DecoderGradient = Decoder;
TEST_P(DecoderGradient, IsThatOfFiniteDifferences) {
  const TinyDecoder& d = GetParam();
  // Of two documents in one of the cases.
  const auto border = d.architecture == "qwen3" ? std::optional<std::int64_t>(39) : std::nullopt;
  const std::shared_ptr<Module> model = model_of(d, DType::kF64, border);
  const Tensor targets = Tensor::from<std::int64_t>({1, 39, 0, 17, 8, 2}, {6});
  const auto loss = [&] {
    ForwardContext context;
    const Variable logits = (*model)(Variable(tokens_as(DType::kF64)), context);
    return cross_entropy(reshape(logits, {6, d.vocabulary}), targets);
  };
  std::vector<Variable> leaves;
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.variable.value().size() <= 64) leaves.push_back(p.variable);  // all vectors
  }
  leaves.push_back(model->slot("blk_0_attn_k")->named_parameters()[0].variable);
  EXPECT_TRUE(gradcheck(loss, leaves));
}

TEST(DecoderNames, AreThoseOfTensors) {
  EXPECT_EQ(tensor_of_parameter("blk_12_attn_q_norm.weight"), "blk.12.attn_q_norm.weight");
  EXPECT_EQ(tensor_of_parameter("output_norm.weight"), "output_norm.weight");
  EXPECT_EQ(tensor_of_parameter("blk_12"), "blk_12");
}

TEST_P(Decoder, SurvivesAsText) {
  model_of(GetParam(), DType::kF32);
  const GraphSpec& graph = imported_.graph;
  EXPECT_EQ(text_of(graph_from(text_of(graph), "text")), text_of(graph));
  EXPECT_NE(to_string(graph).find("CausalAttention(4 heads of 8, 2 of keys) <- blk_1_attn_q"),
            std::string::npos)
      << to_string(graph);
}

TinyDecoder of_type(kernels::BlockType type) {
  TinyDecoder d = testing::tiny_llama();
  d.type = type;
  return d;
}
TinyDecoder with_factors() {
  TinyDecoder d = testing::tiny_llama();
  d.factors = true;
  return d;
}

std::string name_of(const ::testing::TestParamInfo<TinyDecoder>& param) {
  return param.param.architecture + (param.param.factors ? "_with_factors_" : "_") +
         std::string(kernels::ggml_type(param.param.type).name);
}

INSTANTIATE_TEST_SUITE_P(
    Files, Decoder,
    ::testing::Values(testing::tiny_llama(), testing::tiny_qwen2(), testing::tiny_qwen3(),
                      with_factors(), of_type(kernels::BlockType::kF16),
                      of_type(kernels::BlockType::kBF16), of_type(kernels::BlockType::kQ8_0),
                      of_type(kernels::BlockType::kQ4_0), of_type(kernels::BlockType::kQ4_1),
                      of_type(kernels::BlockType::kIq4Nl), of_type(kernels::BlockType::kMxfp4)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Files, DecoderGradient,
                         ::testing::Values(with_factors(), testing::tiny_qwen2(),
                                           testing::tiny_qwen3()),
                         name_of);

// A file with other entries and tensors than a Llama's.
class DecoderRefusal : public ::testing::Test {
 protected:
  std::string refusal(const TinyDecoder& d = testing::tiny_llama(), std::int64_t length = 6) {
    testing::write_gguf(path_, entries_, tensors_, d.type);
    return message_of<InputError>([&] { import_decoder(GgufReader(path_), length); });
  }
  void set(const std::string& key, const GgufValue& value) {
    std::erase_if(entries_, [&](const GgufEntry& entry) { return entry.key == key; });
    entries_.push_back({key, value});
  }
  Tensor& tensor(const std::string& name) {
    for (NamedTensor& t : tensors_) {
      if (t.name == name) return t.tensor;
    }
    throw std::out_of_range(name);
  }
  std::string file() const { return path_.string() + ": "; }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "bad.gguf";
  std::vector<GgufEntry> entries_ = testing::entries_of(testing::tiny_llama());
  std::vector<NamedTensor> tensors_ = testing::tensors_of(testing::tiny_llama());
};

TEST_F(DecoderRefusal, NamesTheArchitecture) {
  set("general.architecture", GgufValue::of_string("gemma3"));
  EXPECT_EQ(refusal(), file() +
                           "metadata 'general.architecture': expected one of llama, qwen2, "
                           "qwen3, got 'gemma3'");
}

TEST_F(DecoderRefusal, NamesTheTokenThatEndsDocuments) {
  testing::write_gguf(path_, entries_, tensors_, testing::tiny_llama().type);
  EXPECT_EQ(message_of<InputError>([&] { import_decoder(GgufReader(path_), 6, 40); }),
            file() + "expected the number of a token that ends documents below 40, got 40");
}

TEST_F(DecoderRefusal, NamesTheTensorAndBothShapes) {
  tensor("blk.1.ffn_up.weight") = Tensor::zeros({64, 16});
  EXPECT_EQ(refusal(), file() + "tensor 'blk.1.ffn_up.weight': expected [64, 32], got [64, 16]");
}

TEST_F(DecoderRefusal, NamesATensorThatIsMissing) {
  std::erase_if(tensors_, [](const NamedTensor& t) { return t.name == "blk.0.attn_norm.weight"; });
  EXPECT_EQ(refusal(), file() + "expected a tensor 'blk.0.attn_norm.weight' [32]");
}

TEST_F(DecoderRefusal, NamesATensorThatItDoesNotKnow) {
  tensors_.push_back({"blk.0.attn_sinks.weight", Tensor::zeros({4})});
  EXPECT_EQ(refusal(), file() +
                           "tensor 'blk.0.attn_sinks.weight': expected a tensor of a llama "
                           "model, which has none of this name");
}

TEST_F(DecoderRefusal, NamesAnEntry) {
  set("llama.rope.scaling.type", GgufValue::of_string("yarn"));
  EXPECT_EQ(refusal(), file() + "metadata 'llama.rope.scaling.type': expected 'none', got 'yarn'");
  set("llama.rope.scaling.type", GgufValue::of_string("none"));
  set("llama.attention.head_count_kv", GgufValue::of_u32(3));
  EXPECT_EQ(refusal(), file() +
                           "metadata 'llama.attention.head_count_kv': expected a divisor of "
                           "the 4 heads, got 3");
  set("llama.attention.head_count_kv", GgufValue::of_u32(0));
  EXPECT_EQ(refusal(), file() +
                           "metadata 'llama.attention.head_count_kv': expected a whole number "
                           "from 1 to 1048576, got 0");
  set("llama.attention.head_count_kv", GgufValue::of_u32(2));
  EXPECT_EQ(refusal(testing::tiny_llama(), 65),
            file() +
                "metadata 'llama.context_length': expected at least the 65 tokens of a "
                "sequence, got 64");
  set("llama.expert_count", GgufValue::of_u32(8));
  EXPECT_EQ(refusal(), file() +
                           "metadata 'llama.expert_count': expected 0: models of experts are "
                           "not known here");
}

TEST_F(DecoderRefusal, NamesWhatScalesRotations) {
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"}) {
    const std::string whole = std::string("llama.") + key;
    set(whole, GgufValue::of_f32(4));
    EXPECT_EQ(refusal(),
              file() + "metadata '" + whole + "': expected 1: scaled rotations are not known here");
    set(whole, GgufValue::of_f32(1));
  }
  testing::write_gguf(path_, entries_, tensors_, testing::tiny_llama().type);
  EXPECT_NO_THROW(import_decoder(GgufReader(path_), 6));
}

// What llama.cpp would not load.
TEST_F(DecoderRefusal, NamesTensorsThatAnArchitectureHasOrNot) {
  const auto without = [&](const std::string& name, const TinyDecoder& d) {
    entries_ = testing::entries_of(d);
    tensors_ = testing::tensors_of(d);
    std::erase_if(tensors_, [&](const NamedTensor& t) { return t.name == name; });
    return refusal(d);
  };
  EXPECT_EQ(without("blk.1.attn_q_norm.weight", testing::tiny_qwen3()),
            file() + "expected a tensor 'blk.1.attn_q_norm.weight' [8]");
  EXPECT_EQ(without("blk.0.attn_k.bias", testing::tiny_qwen2()),
            file() + "expected a tensor 'blk.0.attn_k.bias' [16]");
  const auto with = [&](const std::string& name, const Shape& shape, const TinyDecoder& d) {
    entries_ = testing::entries_of(d);
    tensors_ = testing::tensors_of(d);
    tensors_.push_back({name, Tensor::zeros(shape)});
    return refusal(d);
  };
  const auto unknown = [&](const std::string& name, const std::string& architecture) {
    return file() + "tensor '" + name + "': expected a tensor of a " + architecture +
           " model, which has none of this name";
  };
  EXPECT_EQ(with("blk.0.attn_q_norm.weight", {8}, testing::tiny_llama()),
            unknown("blk.0.attn_q_norm.weight", "llama"));
  EXPECT_EQ(with("output.bias", {11}, testing::tiny_qwen2()), unknown("output.bias", "qwen2"));
  EXPECT_EQ(with("blk.0.attn_q.bias", {32}, testing::tiny_qwen3()),
            unknown("blk.0.attn_q.bias", "qwen3"));
}

TEST_F(DecoderRefusal, NamesATypeThatIsNotRead) {
  // As many bytes as f32 has.
  std::vector<GgufTensor> header;
  for (const NamedTensor& t : tensors_) {
    const Shape& shape = t.tensor.shape();
    header.push_back({t.name, {shape.rbegin(), shape.rend()}, kernels::find_ggml_type("f32")});
  }
  header[0].type = kernels::find_ggml_type("i32");
  GgufWriter writer(path_, entries_, header);
  for (const NamedTensor& t : tensors_) writer.write(t.tensor.raw(), t.tensor.bytes());
  writer.commit();
  EXPECT_EQ(message_of<InputError>([&] { import_decoder(GgufReader(path_), 6); }),
            file() +
                "tensor 'token_embd.weight': expected a type among f32, f16, bf16, q8_0, "
                "q4_0, q4_1, q5_0, q5_1, q2_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4, got "
                "i32");
}

}  // namespace
}  // namespace steelyard::imports
