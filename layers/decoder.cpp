#include "steelyard/layers/decoder.h"

#include <cmath>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/swiglu.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/products/attention.h"
#include "steelyard/framework/ops/products/linear.h"

namespace steelyard {
namespace {

const CausalAttentionOptions& checked_attention(const CausalAttentionOptions& o) {
  const auto fail = [](const std::string& expected, const std::string& got) {
    throw std::invalid_argument("[CausalAttention] expected " + expected + ", got " + got);
  };
  if (o.heads < 1 || o.key_heads < 1 || o.heads % o.key_heads != 0) {
    fail("heads that are a multiple of key_heads",
         std::to_string(o.heads) + " and " + std::to_string(o.key_heads));
  }
  if (o.width < 2 || o.width % 2 != 0) fail("an even width", std::to_string(o.width));
  if (!(o.base > 0) || !std::isfinite(o.base)) fail("a base above 0", std::to_string(o.base));
  if (!o.factors.empty() && std::ssize(o.factors) != o.width / 2) {
    fail(std::to_string(o.width / 2) + " factors", std::to_string(o.factors.size()));
  }
  return o;
}

const std::vector<Variable>& counted(const char* layer, const std::vector<Variable>& inputs,
                                     std::size_t count) {
  if (inputs.size() == count) return inputs;
  throw std::invalid_argument("[" + std::string(layer) + "] expected " + std::to_string(count) +
                              " inputs, got " + std::to_string(inputs.size()));
}

// Writes rows [1, T, F] to `all` [1, room, F], which is made where there is none, behind the
// `count` that it has; returns all rows.
Tensor append(const Tensor& rows, std::int64_t count, std::int64_t room, Tensor& all) {
  const std::int64_t after = count + rows.dim(1), width = rows.dim(2);
  if (rows.dim(0) != 1 || after > room) {
    throw std::invalid_argument("[CausalAttention] expected one text of at most " +
                                std::to_string(room) + " positions, got " +
                                std::to_string(rows.dim(0)) + " of " + std::to_string(after));
  }
  if (!all.defined()) all = Tensor::empty({1, room, width}, rows.dtype(), rows.device());
  ops::scatter("append", rows, all,
               {.shape = rows.shape(), .first = count * width, .strides = {0, width, 1}});
  return Tensor::borrow(all.raw(), {1, after, width}, rows.dtype(), rows.device(),
                        std::make_shared<Tensor>(all));
}

}  // namespace

CausalAttention::CausalAttention(const CausalAttentionOptions& options)
    : options_(checked_attention(options)) {
  if (options.factors.empty()) return;
  factors_ = register_buffer("factors",
                             Tensor::from(options.factors, {options.width / 2}).to(DType::kF32));
}

Variable DocumentStarts::forward(const Variable& x, ForwardContext&) {
  return Variable(document_starts(x.value(), options_.border));
}

std::string DocumentStarts::description() const {
  return "DocumentStarts(after token " + std::to_string(options_.border) + ")";
}

RotaryOptions CausalAttention::angles() const {
  return {
      .width = options_.width, .base = options_.base, .pairs = options_.pairs, .factors = factors_};
}

Variable CausalAttention::join(const std::vector<Variable>& inputs, ForwardContext&) {
  const bool has_starts = inputs.size() == 4;
  counted("CausalAttention", inputs, has_starts ? 4 : 3);
  RotaryOptions angles = this->angles();
  if (has_starts) angles.starts = inputs[3].value();
  return causal_attention(rotary(inputs[0], angles), rotary(inputs[1], angles), inputs[2],
                          {.queries = options_.heads, .keys = options_.key_heads}, angles.starts);
}

Variable CausalAttention::go_on(const std::vector<Variable>& inputs, KeptKeys& kept) const {
  counted("CausalAttention", inputs, inputs.size() == 4 ? 4 : 3);
  const NoGradGuard no_grad;
  RotaryOptions angles = this->angles();
  angles.first = kept.count;
  const Variable keys(append(rotary(inputs[1], angles).value(), kept.count, kept.room, kept.keys));
  const Variable values(append(inputs[2].value(), kept.count, kept.room, kept.values));
  kept.count += inputs[1].dim(1);
  return causal_attention(rotary(inputs[0], angles), keys, values,
                          {.queries = options_.heads, .keys = options_.key_heads});
}

std::string CausalAttention::description() const {
  return "CausalAttention(" + std::to_string(options_.heads) + " heads of " +
         std::to_string(options_.width) + ", " + std::to_string(options_.key_heads) + " of keys)";
}

Variable SwiGLU::join(const std::vector<Variable>& inputs, ForwardContext&) {
  counted("SwiGLU", inputs, 2);
  return swiglu(inputs[0], inputs[1]);
}

EmbeddingHead::EmbeddingHead(const std::shared_ptr<Embedding>& embedding) {
  if (embedding == nullptr) throw std::invalid_argument("[EmbeddingHead] expected an embedding");
  table_ = embedding->weight();
}

Variable EmbeddingHead::forward(const Variable& x, ForwardContext&) {
  return linear(x, table_, {});
}

std::string EmbeddingHead::description() const {
  return "EmbeddingHead(" + std::to_string(table_.dim(0)) + ", " + std::to_string(table_.dim(1)) +
         ")";
}

}  // namespace steelyard
